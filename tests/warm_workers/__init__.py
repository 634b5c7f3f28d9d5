"""Ray's workers as forks of one process that has imported Ray and Rayad, for the tests of ``make test``.

Every actor of every job of the tests is a process. Python, Ray and Rayad take 0.7 s of a processor to start, and a job of five actors most
of four seconds; as a fork it takes 0.2 s. Nothing else is other than Ray does it: the process runs Ray's own ``default_worker.py``, with
the arguments, the environment and the log files that Ray gives it, and it is a process of its own that can be killed or stopped.

What could differ is not forked (``start.py`` and ``forks.py`` say when): a worker with an environment of its own, one of another driver,
one that Ray starts before there is a job. And of all others every fortieth is started as Ray starts it, so that no job of the tests can
rely on what forks have in common, such as one seed of ``hash()``. ``make soak`` and a plain ``pytest`` fork nothing.
See docs/decisions/084-warm-workers.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.patience import PATIENCE_S

FOLDER = Path(__file__).parent
WANTED = "RAYAD_WARM_WORKERS"
"""``make test`` sets it to 1."""


@contextmanager
def ray_of_tests(**options: Any) -> Iterator[None]:
    """A Ray of its own with these options, until the end of the block; its workers are forks where the environment asks for it."""
    options = {"address": "local", **options}  # else it would join a cluster that somebody has left on this machine
    if os.environ.get(WANTED) != "1":
        ray.init(**options)
        yield
        ray.shutdown()
        return
    with pytest.MonkeyPatch.context() as patch:
        _start_workers_with(FOLDER / "start.py", patch)
        ray.init(**options)
    forks = _forks()
    try:
        yield
        ray.shutdown()
    finally:
        forks.terminate()
        forks.wait(PATIENCE_S)


def _start_workers_with(script: Path, patch: pytest.MonkeyPatch) -> None:
    """Ray has a parameter for the script of its workers, but ``ray.init`` has no argument for it."""
    from ray._private.parameter import RayParams

    own = RayParams.update_if_absent

    def with_script(params: Any, **given: Any) -> None:
        # No test reads what Ray's log monitor prints, and it takes a fortieth of a core for each Ray.
        own(params, **({**given, "worker_path": str(script), "include_log_monitor": False} if "worker_path" in given else given))

    patch.setattr(RayParams, "update_if_absent", with_script)


def _forks() -> subprocess.Popen[bytes]:
    """Start the process that forks, as a child of this one, so that the workers are below it, too."""
    import ray._private.worker as worker

    node = worker._global_node
    raylet = node.all_processes["raylet"][0].process.pid
    # Ray reads these once, when it is imported; all workers of this driver have the same.
    own = {"RAY_JOB_ID": ray.get_runtime_context().get_job_id(), "RAY_RAYLET_PID": str(raylet)}
    session = Path(node.get_session_dir_path())
    forks = subprocess.Popen(
        [sys.executable, str(FOLDER / "forks.py"), str(session / "forks"), str(os.getpid())],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
    )
    assert forks.stdout is not None
    assert forks.stdout.readline() == b"ready\n"  # ends with the process, at the latest
    return forks
