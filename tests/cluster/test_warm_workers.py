"""Ray's workers as forks, as ``make test`` has them: a process of its own each, and no fork where one could differ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from tests.cluster.recovering import until
from tests.patience import PATIENCE_S
from tests.warm_workers import WANTED
from tests.warm_workers.forks import ALLOCATOR, PLAIN_EVERY, is_like
from tests.warm_workers.start import default_worker, is_forked


@ray.remote(num_cpus=0)
class Told:
    """Tells what its process is, and starts one below it."""

    def of_process(self) -> dict[str, Any]:
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
        return {
            "pid": os.getpid(),
            "child": subprocess.Popen(["sleep", "600"]).pid,
            "forked": any(word.endswith("forks.py") for word in parent),
            "hash": hash("a text"),
            "script": sys.argv[0],
            "path": sys.path[0],
        }


def told(count: int, **options: Any) -> list[dict[str, Any]]:
    actors = [Told.options(**options).remote() for _ in range(count)]
    found: list[dict[str, Any]] = ray.get([actor.of_process.remote() for actor in actors], timeout=PATIENCE_S)
    for one, actor in zip(found, actors, strict=True):
        if one["pid"] % 2:
            ray.kill(actor)
        else:
            os.kill(one["pid"], signal.SIGKILL)
    until(lambda: not any(is_alive(one["child"]) for one in found), "Ray ends what a worker has started, by its process group")
    return found


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(os.environ.get(WANTED) != "1", reason="workers are forks in make test alone")
def test_forks_are_processes_of_their_own_beside_some_that_ray_starts(ray_cluster: None) -> None:
    found = told(PLAIN_EVERY + 1)
    assert {one["forked"] for one in found} == {True, False}
    assert len({one["pid"] for one in found}) == len(found)
    assert {one["script"] for one in found} == {default_worker()}
    assert len({one["path"] for one in found}) == 1
    assert len({one["hash"] for one in found}) > 1, "no job may rely on one seed of hash()"


def test_a_worker_with_an_environment_of_its_own_is_not_forked(ray_cluster: None) -> None:
    assert [one["forked"] for one in told(1, runtime_env={"env_vars": {"RAYAD_TEST_OF_FORKS": "1"}})] == [False]


@pytest.mark.parametrize(
    ("theirs", "like"),
    [
        ({"HOME": "/root"}, True),
        ({"HOME": "/root", "LD_PRELOAD": "", "SPT_NOENV": "1"}, True),
        ({"HOME": "/root", "PYTHONPATH": "elsewhere"}, False),
        ({"HOME": "/root", "ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, False),
        ({}, False),
    ],
)
def test_only_a_worker_with_the_same_environment_is_forked(theirs: dict[str, str], like: bool) -> None:
    assert is_like(theirs, {"HOME": "/root", **ALLOCATOR}) is like


def test_without_the_process_that_forks_a_worker_starts_by_itself(tmp_path: Path) -> None:
    assert not is_forked([f"--temp-dir={tmp_path}", "--session-name=none"])
    assert not is_forked([])
    assert Path(default_worker()).is_file()
