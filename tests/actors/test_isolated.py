"""A function that ends its process, in a helper beside the replica's: real processes, which really end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.host.isolated import ALONE_MAX, Isolated, isolated
from rayad.actors.replica.core import ReplicaCore
from rayad.dataflow.operators.bad_records import Outcome, Tried, good_of
from rayad.dataflow.operators.map_batches import of_batches
from rayad.dataflow.operators.stateless import Element, Filter, FlatMap, Map
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, Timestamp
from tests.patience import PATIENCE_S
from tests.thorough import amount

EXITS, FAULTS, KILLED, RAISES = 7, 9, 12, 11
HOW = {EXITS: "ended its process: exit status 3", FAULTS: "ended its process: SIGSEGV", KILLED: "ended its process: SIGKILL"}
TOLD = HOW | {RAISES: "ValueError: not 11"}


def deadly(n: int) -> int:
    if n == EXITS:
        os._exit(3)
    if n == FAULTS:
        ctypes.string_at(0)
    if n == KILLED:  # as the kernel does where memory ends
        os.kill(os.getpid(), signal.SIGKILL)
    if n == RAISES:
        raise ValueError(f"not {n}")
    return n


def of_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = [deadly(n) for n in batch.column(0).to_pylist()]
    return pa.record_batch({"n": [10 * n for n in values]})


def step(element: Element, **options: Any) -> Isolated:
    return Isolated(Tried(element, "deadly", "app.py:7", **options), "'vertex'[0]")


def bad(batch: Any) -> list[tuple[Any, str]]:
    assert all((one["operator"], one["line"]) == ("deadly", "app.py:7") for one in (batch if type(batch) is Outcome else []))
    return [(one["record"], one["error"]) for one in batch] if type(batch) is Outcome else []


OPERATORS: dict[str, tuple[Element, Callable[[int], list[Any]]]] = {
    "map": (Map(lambda n: 10 * deadly(n)), lambda n: [10 * n]),
    "flat_map": (FlatMap(lambda n: [deadly(n)] * 2), lambda n: [n, n]),
    "filter": (Filter(lambda n: deadly(n) % 2), lambda n: [n] if n % 2 else []),
    "map_batches": (of_batches(lambda rows: [10 * deadly(n) for n in rows], None, (), {}), lambda n: [10 * n]),
}


BATCHES = ([1, 2, EXITS, 3, RAISES], [4, 5], [FAULTS], [KILLED, 6])
SOME = ([1, 2, RAISES, KILLED],)
"""For operators beside ``map``: a process starts for each that ends, which takes long."""


@pytest.mark.parametrize("name", OPERATORS)
def test_records_that_end_the_process_are_set_aside_and_all_others_go_on(name: str) -> None:
    element, expected = OPERATORS[name]
    batches = BATCHES if name == "map" else amount(SOME, BATCHES)
    made = step(element)
    try:
        for batch in batches:
            out = made.apply(batch)
            assert good_of(out) == [x for n in batch if n not in TOLD for x in expected(n)]
            assert bad(out) == [(n, TOLD[n]) for n in batch if n in TOLD]
        told = [n for batch in batches for n in batch if n in TOLD]
        deadly_in_batches = [n for batch in batches if len(batch) > 1 for n in batch if n in HOW]
        # batches ended one each; a batch of one counts as the first time alone
        assert made.ended == len(HOW.keys() & {*told}) * ALONE_MAX + len(deadly_in_batches)
        assert made.set_aside is not None
        assert (made.set_aside.count, made.set_aside.error) == (len(told), HOW[KILLED])
        assert made.is_isolated
    finally:
        made.close()


def test_columns_stay_columns_and_dead_letters_are_rows() -> None:
    made = step(of_batches(of_columns, None, (), {}))
    try:
        out = made.apply(pa.record_batch({"n": [1, EXITS, 2]}))
        assert isinstance(good_of(out), pa.RecordBatch)
        assert to_rows(good_of(out)) == [{"n": 10}, {"n": 20}]
        assert bad(out) == [({"n": EXITS}, HOW[EXITS])]
        good = made.apply(pa.record_batch({"n": [3]}))
        assert isinstance(good, pa.RecordBatch)
        assert to_rows(good) == [{"n": 30}]
    finally:
        made.close()


def test_what_ends_a_helper_once_sets_nothing_aside(tmp_path: Path) -> None:
    marks = [tmp_path / "in a batch", tmp_path / "alone"]

    def ended_from_outside(n: int) -> int:
        missing = [mark for mark in marks if not mark.exists()]
        if n == 2 and missing:
            missing[0].touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    made = step(Map(ended_from_outside))
    try:
        assert made.apply([1, 2, 3]) == [1, 2, 3]
        assert (made.ended, made.set_aside) == (2, None)
    finally:
        made.close()


@pytest.mark.parametrize("ends", [False, True])
def test_a_function_returns_to_its_replica_unless_it_has_ended_a_helper(ends: bool) -> None:
    made = step(Map(lambda n: (os.getpid(), deadly(n))))
    try:
        where, _ = good_of(made.apply([1, EXITS] if ends else [1]))[0]
        assert where != os.getpid()
        made.acquit()
        where, _ = made.apply([1])[0]
        assert (where != os.getpid()) is ends is made.is_isolated
    finally:
        made.close()


def test_counts_go_on_when_a_function_returns() -> None:
    made = step(Map(deadly))
    try:
        made.apply([RAISES])
        made.acquit()
        made.apply([RAISES, 1])
        assert made.set_aside is not None
        assert made.set_aside.count == 2
    finally:
        made.close()


@pytest.mark.parametrize(("batch", "told"), [([1], "gives"), ([threading.Lock()], "is given")], ids=["results", "records"])
def test_what_cannot_be_pickled_runs_in_the_replica(batch: list[Any], told: str, caplog: pytest.LogCaptureFixture) -> None:
    made = step(Map(lambda n: (os.getpid(), threading.Lock())))
    try:
        where, _ = made.apply(batch)[0]
        assert where == os.getpid()
        assert f"what it {told} cannot be sent to another process" in caplog.text
        assert not made.is_isolated
    finally:
        made.close()


def test_an_error_of_ours_ends_the_job_as_without_a_helper() -> None:
    async def later(n: int) -> int:
        return n

    made = step(Map(later))
    try:
        with pytest.raises(DataflowError, match="returned a coroutine") as caught:
            made.apply([1])
        assert "In the helper process:" in "".join(caught.value.__notes__)
    finally:
        made.close()


class Broken:
    """A model that ends the process as it is loaded."""

    def __init__(self) -> None:
        os._exit(4)

    def __call__(self, batch: list[Any]) -> list[Any]:
        return batch


def test_a_class_that_ends_the_process_as_it_is_made_is_no_records_fault() -> None:
    made = step(of_batches(Broken, None, (), {}))
    told = r"'deadly' \(app.py:7\) ended its helper process \(exit status 4\) while it was made, before it had a record"
    with pytest.raises(DataflowError, match=told):
        made.apply([1])


def test_a_process_that_outlives_the_helper_does_not_hide_its_end() -> None:
    def forks(n: int) -> int:
        if os.fork() == 0:
            signal.alarm(3)
            signal.pause()
        os._exit(5)

    made = step(Map(forks))
    try:
        assert bad(made.apply([1])) == [(1, "ended its process: exit status 5")]
    finally:
        made.close()


def test_a_helper_ends_with_its_replica_whatever_it_is_busy_with(tmp_path: Path) -> None:
    program = """
        import os, sys
        from rayad.actors.host.isolated import Isolated
        from rayad.dataflow.operators.bad_records import Tried
        from rayad.dataflow.operators.stateless import Map

        def hangs(path):
            with os.fdopen(os.open(path, os.O_WRONLY), "w") as out:
                out.write(str(os.getpid()))
            import signal
            signal.pause()

        Isolated(Tried(Map(hangs))).apply([sys.argv[1]])
    """
    told = tmp_path / "pid"
    os.mkfifo(told)
    replica = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(told)])
    helper = psutil.Process(int(told.read_text()))  # ends with the write
    assert helper.is_running()
    replica.kill()
    replica.wait(PATIENCE_S)
    helper.wait(PATIENCE_S)  # raises if it lives on
    assert not psutil.pid_exists(helper.pid)


def test_only_steps_that_ask_for_it_run_apart_and_only_after_so_many_ends() -> None:
    asked, other = Tried(Map(deadly), after_crashes=2), Tried(Map(deadly))
    assert [isolated("", n, {}, asked) is not None for n in (0, 1, 2, 3)] == [False, False, True, True]
    assert isolated("", 9, {}, other) is None
    assert isolated("", 9, {}, Map(deadly)) is None


def test_steps_are_told_before_they_run_each_by_itself_until_the_row_is_over() -> None:
    flow = rd.Dataflow("told")
    told: list[str] = []
    numbers = flow.from_items([1, 2], name="numbers").map(lambda n: told.append(f"in first, {n}") or n, name="first")
    numbers.map(lambda n: told.append(f"in second, {n}") or n, name="second").collect("out")
    plan = flow.plan(1)
    core = ReplicaCore(plan, plan.stages[0], 0, working=told.append)
    core.outputs.emit(0, Timestamp(0), [1, 2])
    first, second = ["first", "in first, 1", "in first, 2", ""], ["second", "in second, 1", "in second, 2", ""]
    assert told == first + second
    told.clear()
    core.outputs.acquit()
    core.outputs.emit(0, Timestamp(0), [1])
    assert told == ["in first, 1", "in second, 1"]
