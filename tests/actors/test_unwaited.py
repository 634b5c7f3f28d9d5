"""A job whose process ends, or that nobody has any more, before it was waited for: one line says so, and what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import rayad as rd
flow = rd.Dataflow("forgotten")
flow.from_items([1, 2, 3]).collect("out")
{}
"""
TOLD = (
    "rayad: job 'forgotten' was dropped before it was complete: in the local runtime submit() only begins a job; call wait() on the "
    "handle, or run()\n"
)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('job = flow.submit(runtime="local")', TOLD),
        ('flow.submit(runtime="local")', TOLD),
        ('def run():\n    job = flow.submit(runtime="local"); job.step(); job.me = job\nrun()', TOLD),
        ('job = flow.submit(runtime="local"); job.wait()', ""),
        ('job = flow.submit(runtime="local"); job.cancel()', ""),
        ('flow.run(runtime="local")', ""),
    ],
)
def test_a_local_job_that_is_forgotten_is_told(code: str, told: str) -> None:
    """Regression: its work was lost without a word, and with exit code 0."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT.format(code)], capture_output=True, text=True, check=True)
    assert ended.stderr == told
