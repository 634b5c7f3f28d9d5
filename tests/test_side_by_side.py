"""Who runs which test when tests run side by side."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checkout import ROOT
from tests.side_by_side import ALSO_SPARK, ONE_CLUSTER, ONE_SPARK, FromBothEnds, Kind, kind_of, kind_of_process, scope_of

ON_RAY = [f"tests/cluster/test_{name}.py::test_{number}" for name in ("attach", "crashes", "page") for number in range(4)]
ALONE = [f"tests/progress/test_laws_{number}.py::test_law" for number in range(20)]


class Process:
    """A process of tests as the scheduler sees it: what it was given, in order."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def run(tests: list[str], *, ray_takes: int, alone_takes: int) -> tuple[list[str], list[str]]:
    """What two processes run, in order, when each test takes so many rounds."""
    config: Any = SimpleNamespace(getvalue={"tx": ["2*popen"]}.get, option=SimpleNamespace(loadscopereorder=True))
    queue: Any = FromBothEnds(config)
    processes = Process("gw0"), Process("gw1")
    for process in processes:
        queue.add_node(process)
        queue.add_node_collection(process, tests)
    queue.schedule()
    ran: tuple[list[str], list[str]] = [], []
    left = [0, 0]
    while any(len(done) < len(process.given) for done, process in zip(ran, processes, strict=True)):
        for number, (done, process) in enumerate(zip(ran, processes, strict=True)):
            if len(done) == len(process.given):
                continue
            test = tests[process.given[len(done)]]
            left[number] = (left[number] or (ray_takes if kind_of(test) is Kind.ON_RAY else alone_takes)) - 1
            if not left[number]:
                done.append(test)
                queue.mark_test_complete(process, tests.index(test))
    assert queue.tests_finished
    assert all(process.shutting_down for process in processes)
    return ran


def files(tests: list[str]) -> set[str]:
    return {test.split("::")[0] for test in tests}


def test_one_process_begins_on_ray_and_the_other_alone() -> None:
    on_ray, alone = run([*ALONE, *ON_RAY], ray_takes=1, alone_takes=1)
    assert on_ray[: len(ON_RAY)] == ON_RAY
    assert alone[0] == ALONE[0]
    assert sorted(on_ray + alone) == sorted(ON_RAY + ALONE)


def test_who_is_done_on_ray_helps_the_other() -> None:
    on_ray, alone = run([*ALONE, *ON_RAY], ray_takes=1, alone_takes=10)
    assert files(on_ray) > files(ON_RAY)
    assert files(alone) < files(ALONE)


def test_who_has_none_left_alone_helps_on_ray_and_both_end_together() -> None:
    on_ray, alone = run([*ALONE, *ON_RAY], ray_takes=10, alone_takes=1)
    assert files(on_ray) == files(ON_RAY)
    assert files(ALONE) < files(alone) <= files(ALONE + ON_RAY)
    took = [sum(10 if test in ON_RAY else 1 for test in tests) for tests in (on_ray, alone)]
    assert abs(took[0] - took[1]) <= 3 * 10, "no more than the three tests that a process has before it asks for others"


def test_what_shares_a_session_or_a_cluster_stays_together() -> None:
    paths = sorted((ROOT / "tests/cluster").glob("test_*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    assert {path for path, text in texts.items() if "spark_fixtures import" in text} == ONE_SPARK
    assert {path for path, text in texts.items() if "job_server import" in text} == ONE_CLUSTER
    own = {path: text for path, text in texts.items() if path not in ONE_SPARK}
    marked = {f"{path}::{name}" for path, text in own.items() for name in re.findall(r"@pytest\.mark\.spark\ndef (test_\w+)", text)}
    in_parameters = {path for path, text in own.items() if re.search(r"marks=\[?pytest\.mark\.spark", text)}
    assert marked | in_parameters == ALSO_SPARK
    assert len({scope_of(f"{path}::test_one") for path in ONE_SPARK} | {scope_of(test) for test in ALSO_SPARK}) == 1
    assert len({scope_of(f"{path}::{test}") for path in ONE_CLUSTER for test in ("test_one", "test_two")}) == 2, (
        "those with Spark, and the others"
    )
    assert len({scope_of(f"tests/types/test_checkers.py::{test}") for test in ("test_one", "test_two")}) == 1
    assert len({scope_of(f"tests/cluster/test_hangs.py::{test}") for test in ("test_one", "test_two")}) == 2
    assert scope_of("tests/machines/test_links.py::test_a") == scope_of("tests/machines/test_machines.py::test_b")


@pytest.mark.parametrize("number", range(4))
def test_every_second_process_begins_on_ray(number: int) -> None:
    assert kind_of_process(number) is (Kind.ALONE if number % 2 else Kind.ON_RAY)
