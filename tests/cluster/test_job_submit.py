"""``ray job submit``: wordcount as a job, and one that fails. Flights as a job, with Spark: test_examples_flights.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rayad.snapshots.store import SnapshotStore
from tests.cluster.job_server import RAY, JobServer, ask, job_server, submit
from tests.examples.running import EXAMPLES
from tests.examples.test_scripts import ROADS
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]
__all__ = ["job_server"]


def test_wordcount_as_a_job(job_server: JobServer) -> None:
    printed = submit(job_server, "wordcount.py", "--top", "3")
    assert re.search(r"│ the +│ [\d,]+ │", printed)
    assert re.search(r"words/s by \d+ Ray actors", printed.replace("\n", " "))


@pytest.mark.soak
def test_a_collection_as_a_job(job_server: JobServer) -> None:
    printed = submit(job_server, "live_collection.py", "--ray")
    assert [line for line in ROADS if line not in printed] == []


def test_a_job_that_fails_says_so(job_server: JobServer) -> None:
    command = [RAY, "job", "submit", "--address", job_server.url, "--working-dir", str(EXAMPLES), "--"]
    command += [sys.executable, "wordcount.py", "gone.txt"]
    done = subprocess.run(command, env=job_server.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "'gone.txt' does not exist" in done.stdout
    assert "failed" in done.stdout + done.stderr


def test_ray_job_stop_saves_the_job(job_server: JobServer, tmp_path: Path) -> None:
    """Regression: ``ray job stop`` was known by its signal only."""
    begun = tmp_path / "begun"
    (tmp_path / "job.py").write_text(
        textwrap.dedent(
            f"""
            import pathlib, time
            import rayad as rd

            class Endless(rd.Source):
                def list_parts(self):
                    return [0]

                def build_part(self, part, resume):
                    return Part(resume or 0)

            class Part(rd.SourcePart):
                def __init__(self, at):
                    self.at = at

                def next_batch(self):
                    time.sleep(0.01)
                    self.at += 1
                    return rd.SourceBatch(self.at - 1, [self.at])

                def offset(self):
                    return self.at

            flow = rd.Dataflow("stopped")
            counts = flow.source(Endless(), name="ticks").key_by(lambda n: n % 4).count(name="counts")
            counts.inspect(lambda _: pathlib.Path({str(begun)!r}).touch())
            flow.run(rd.RunConfig(storage_path={str(tmp_path / "jobs")!r}))
            """
        )
    )
    ask(job_server, "submit", "--no-wait", "--submission-id", "to-be-stopped", "--working-dir", tmp_path, "--", sys.executable, "job.py")
    deadline_s = time.monotonic() + PATIENCE_S
    while not begun.exists():
        assert time.monotonic() < deadline_s, ask(job_server, "logs", "to-be-stopped")
        time.sleep(0.2)
    assert "was stopped" in ask(job_server, "stop", "to-be-stopped")
    told = ask(job_server, "logs", "to-be-stopped")
    saved = re.search(r"rayad: SIGTERM: job 'stopped': is saved in (\S+); submit it again with resume='latest'", told)
    assert saved, told
    assert SnapshotStore(os.path.dirname(saved[1])).load(int(os.path.basename(saved[1]))).kind == "savepoint"
