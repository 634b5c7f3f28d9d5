"""``ray job submit``: wordcount as a job, and one that fails. Flights as a job, with Spark: test_examples_flights.py."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cluster.job_server import RAY, JobServer, job_server, submit
from tests.examples.running import EXAMPLES
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]
__all__ = ["job_server"]


def test_wordcount_as_a_job(job_server: JobServer) -> None:
    printed = submit(job_server, "wordcount.py", "--top", "3")
    assert re.search(r"│ the +│ [\d,]+ │", printed)
    assert "words/s by 5 Ray actors" in printed.replace("\n", " ")


def test_a_job_that_fails_says_so(job_server: JobServer) -> None:
    command = [RAY, "job", "submit", "--address", job_server.url, "--working-dir", str(EXAMPLES), "--"]
    command += [sys.executable, "wordcount.py", "gone.txt"]
    done = subprocess.run(command, env=job_server.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "'gone.txt' does not exist" in done.stdout
    assert "failed" in done.stdout + done.stderr
