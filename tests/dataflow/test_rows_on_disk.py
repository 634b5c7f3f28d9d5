"""Python values by key of which more is kept than memory may have: in sorted runs, with the same results."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.joins.join import Join
from rayad.dataflow.operators.state.by_key.beyond_memory import RowsBeyondMemory
from rayad.dataflow.operators.state.by_key.by_moment import KeyedByMoment
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict, KeyedDict
from rayad.dataflow.operators.state.by_key.lists import KeyedLists
from rayad.dataflow.operators.state.by_key.sets import GrowingSet
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.due_rows import DueRows
from rayad.dataflow.operators.state.runs.size_of_values import SizeOfRows, size_of
from rayad.dataflow.operators.state.runs.values_below import ValuesBelow
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.progress import Timestamp
from tests.dataflow.disturbed_job import DisturbedJob
from tests.dataflow.driven import Driven
from tests.dataflow.forms import let_small_states_count
from tests.dataflow.keyed_vertices import ALL, Keyed
from tests.thorough import amount, by_turns


def in_rows(vertex: Any) -> list[Any]:
    """The states in rows of a vertex that can be above runs."""
    states = vertex.states().values() if isinstance(vertex, KeyedVertex) else ()
    both = [state.rows if isinstance(state, TwoForms) else state for state in states]
    return [state for state in both if isinstance(state, (RowsBeyondMemory, GrowingSet, KeyedLists))]


ABOVE_RUNS = [keyed for keyed in ALL if in_rows(keyed.make())]
files = StateFiles("state", None)


@pytest.fixture
def _everything_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    let_small_states_count(monkeypatch)
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)


class Held(Driven):
    """A vertex whose state is held within a bound after each step, as the runtime does it."""

    def __init__(self, make: Any, memory: MemoryBound) -> None:
        super().__init__(make)
        self.memory = memory
        self.is_beyond_memory = False

    def step(self, step: Any) -> None:
        super().step(step)
        self.hold()

    def hold(self) -> None:
        assert isinstance(self.vertex, KeyedVertex)
        self.memory.hold(self.vertex.states().values())
        self.is_beyond_memory |= any(state.is_beyond_memory for state in in_rows(self.vertex))


@by_turns(3)
@pytest.mark.parametrize("keyed", ABOVE_RUNS, ids=lambda keyed: keyed.name)
@pytest.mark.usefixtures("_everything_is_much")
@settings(max_examples=amount(each_run=2, soak=60), deadline=None)
@given(data=st.data(), bytes_max=st.sampled_from([0, 1 << 11]))
def test_results_are_those_of_a_vertex_that_has_memory(keyed: Keyed, data: st.DataObject, bytes_max: int) -> None:
    in_memory, held = Driven(keyed.make), Held(keyed.make, MemoryBound(bytes_max, files))
    for step in data.draw(keyed.steps()):
        in_memory.step(step)
        held.step(step)
    assert held.kept() == in_memory.kept()
    in_memory.end(Timestamp(1000))
    held.end(Timestamp(1000))
    assert held.sent() == in_memory.sent()


@pytest.mark.usefixtures("_everything_is_much")
def test_what_is_tried_happens() -> None:
    join = next(keyed for keyed in ABOVE_RUNS if type(keyed.make()) is Join)
    held = Held(join.make, MemoryBound(0, files))
    for side in (0, 1):
        held.step(("recv", side, [(key, "x") for key in range(9)], Timestamp(0)))
    assert held.is_beyond_memory
    assert len(held.sent()[0, Timestamp(0)]) == 9


# -- jobs ------------------------------------------------------------------------------------------

ROWS, KEYS, BOUND = 400, 3_000, 1 << 20
DAY = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)


class Sessions(rd.Process):
    """Counts the records of a key until it has been silent for three minutes."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        kept = context.state or {"count": 0, "last": None, "text": f"{key} " * 40}
        if kept["last"] is not None:
            context.clear_timer(kept["last"] + dt.timedelta(minutes=3))
        kept["count"] += 1
        kept["last"] = context.time
        context.set_timer(context.time + dt.timedelta(minutes=3))
        context.state = kept

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit((context.time, context.state["count"], len(context.state["text"])))
        context.state = None


def counted(state: dict[str, Any], row: dict[str, Any]) -> Any:
    state["seen"].append(row["v"])
    return state, (len(state["seen"]), sum(state["seen"]))


def nothing_yet() -> dict[str, Any]:
    return {"seen": [], "text": "." * 300}


class Job(DisturbedJob):
    def __init__(self, kind: str, folder: Path, bound: int | None = BOUND) -> None:
        self._kind = kind
        super().__init__(folder, bound)

    def program(self, rows: Any) -> Any:
        if self._kind == "process":
            return rows.assign_timestamps("at").key_by("k").process(Sessions, name="kept")
        return rows.key_by("k").stateful_map(counted, nothing_yet, name="kept")

    def rows_of(self, chance: random.Random, epoch: int) -> list[Any]:
        return [
            {"k": chance.randrange(KEYS), "v": chance.randrange(9), "at": DAY + dt.timedelta(seconds=60 * epoch + chance.randrange(60))}
            for _ in range(ROWS)
        ]

    def states_of(self, vertex: Any) -> list[Any]:
        return [vertex.state] if hasattr(vertex, "state") else []


@pytest.mark.parametrize("kind", ["process", "stateful_map"])
def test_a_job_gives_the_same_with_most_keys_on_disk(kind: str, tmp_path: Path) -> None:
    held = Job(kind, tmp_path / "held")
    found = held.run(disturbed=True)
    assert held.most > 500
    assert found == Job(kind, tmp_path / "free", bound=None).run(disturbed=False)


def test_a_running_job_is_read_wherever_its_rows_are(tmp_path: Path) -> None:
    read = []
    for bound in (BOUND, None):
        job = Job("stateful_map", tmp_path / str(bound), bound)
        table = job.job.table("kept")
        table.get(0)
        for epoch in range(4):
            job.send(epoch, [{"k": key, "v": epoch, "at": DAY} for key in range(epoch, KEYS, 3)])
        some = {key: value.value for key, value in table.get_many(range(0, KEYS, 7)).items()}
        read.append((some, sorted(map(repr, table.scan().to_pylist()))))
        job.job.cancel()
    assert read[0] == read[1]


# -- defects that this must find -------------------------------------------------------------------


def is_not_found(self: ValuesBelow, keys: list[Any]) -> dict[Any, Any]:
    return {}


def stays_below(self: ValuesBelow, run: Any, rows: Any) -> None:
    """A key that goes up is below, too."""


def loses_one(self: ValuesBelow, kept: dict[Any, Any], moments: Any) -> None:
    REAL_PUT(self, dict(list(kept.items())[1:]), None if moments is None else moments.slice(1))


def never_due(self: ValuesBelow, has_come: Any) -> dict[Any, Any]:
    return {}


def keeps_what_it_gives(self: ValuesBelow, groups: frozenset[int], key_groups: int) -> Any:
    given = REAL_GIVE(self, groups, key_groups)
    self.add(self.again(given))
    return given


REAL_PUT, REAL_GIVE = ValuesBelow.put_values, ValuesBelow.give


@pytest.mark.parametrize(
    ("method", "defect"),
    [
        ("taken_out", is_not_found),
        ("take_away", stays_below),
        ("put_values", loses_one),
        ("due", never_due),
        ("give", keeps_what_it_gives),
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_planted_defects_are_found(method: str, defect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Job("process", tmp_path / "free", bound=None).run(disturbed=False)
    monkeypatch.setattr(ValuesBelow, method, defect)
    try:
        found = Job("process", tmp_path / "held").run(disturbed=True)
    except Exception:  # what is there twice may also fail
        return
    assert found != sound


# -- the forms -------------------------------------------------------------------------------------


def filled(state: KeyedDict, memory: MemoryBound, keys: range) -> None:
    for begin in range(keys.start, keys.stop, 100):
        some = range(begin, begin + 100)
        with state.changing(some) as kept:
            for key in some:
                kept[key] = {"n": key, "text": f"{key} " * 20}
        memory.hold([state])
        assert state.memory_bytes <= memory.bytes_max


@pytest.mark.parametrize("form", [KeyedDict, GrowingDict])
def test_a_dict_is_within_the_bound_and_has_all(form: Any) -> None:
    state, memory = form(), MemoryBound(1 << 20, files)
    filled(state, memory, range(6_000))
    assert state.is_beyond_memory
    assert len(state.kept) == 6_000
    assert len(list(state.kept.items())) == 6_000
    assert {key for key, value in state.kept.items() if value["n"] == key} == set(range(6_000))
    assert state.kept.get(-1) is None
    assert [state.kept_of([7, 9_000]).get(key, {}).get("n") for key in (7, 9_000)] == [7, None]
    with state.changing([5, 6]) as kept:
        kept[5]["n"] = -5
        del kept[6]
    assert (state.kept[5]["n"], 6 in state.kept, len(state.kept)) == (-5, False, 5_999)
    rows = dict(pair for some in state.taken_out() for pair in some)
    assert (len(rows), rows[5]["n"], len(state.kept), state.is_beyond_memory) == (5_999, -5, 0, False)


def test_keys_that_are_equal_in_python_are_one_key() -> None:
    state, memory = KeyedDict(), MemoryBound(1 << 10, files)
    text = "ab"
    keys = [1, (text, text), "x" * 3, 2.5]
    with state.changing(keys) as kept:
        kept.update(dict.fromkeys(keys, "y" * 70000))
    memory.hold([state])
    assert state.is_beyond_memory
    others = [True, ("ab", "".join(["a", "b"])), "xxx", 2.5]
    with state.changing(others) as kept:
        assert all(key in kept for key in others)
        kept.update(dict.fromkeys(others, "z"))
    assert Counter(map(repr, state.kept)) == Counter(map(repr, keys))
    assert set(state.kept.values()) == {"z"}


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.dataflow.operators.state.runs.values_below.hash_keys", lambda keys: np.full(len(keys), 7, np.uint64))
    state, memory = KeyedDict(), MemoryBound(1 << 20, files)
    filled(state, memory, range(3_000))
    assert state.is_beyond_memory
    assert [state.kept[key]["n"] for key in range(0, 3_000, 500)] == list(range(0, 3_000, 500))


def test_a_key_that_is_new_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state, memory = KeyedDict(), MemoryBound(1 << 20, files)
    filled(state, memory, range(3_000))
    asked: list[Any] = []
    real = ValuesBelow.taken_out
    monkeypatch.setattr(ValuesBelow, "taken_out", lambda self, keys: asked.extend(keys) or real(self, keys))
    with state.changing([1, 9_999]) as kept:
        assert 9_999 not in kept
        kept[9_999] = 1
        kept[1] = 2
    assert (9_998 in state.kept, 9_998 in state.kept) == (False, False)
    assert Counter(asked) == Counter([1, 9_999, 9_998])


class Unreadable:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("no pickle of this")


def test_what_cannot_be_pickled_is_named() -> None:
    state = KeyedDict()
    with state.changing(["a"]) as kept:
        kept["a"] = (Unreadable(), "x" * 100_000)
    with pytest.raises(rd.DataflowError, match=r"state beyond memory.*'a'.*no pickle of this.*state_memory_bytes"):
        MemoryBound(1 << 10, files).hold([state])


class Moments(KeyedByMoment):
    """A moment by key."""

    def moment_of(self, value: Any) -> Any:
        return value[0]


@pytest.mark.parametrize("make", [int, float, lambda n: DAY + dt.timedelta(seconds=n), lambda n: DAY.date() + dt.timedelta(days=n)])
@pytest.mark.parametrize("never", [False, True])
def test_keys_come_in_the_order_of_their_moments_wherever_they_are(make: Any, never: bool) -> None:
    chance = random.Random(3)
    state, memory, expected = Moments(), MemoryBound(1 << 20, files), {}
    if never:  # the first that go to runs have no moments
        with state.changing(range(-2_000, 0)) as kept:
            kept.update(dict.fromkeys(range(-2000, 0), (None, "x" * 100)))
        memory.hold([state])
        assert state.is_beyond_memory
    came: list[Any] = []
    for now in range(30):
        keys = [chance.randrange(4_000) for _ in range(200)]
        with state.changing(keys) as kept:
            for key in keys:
                expected[key] = now + chance.randrange(20)
                kept[key] = (make(expected[key]), "x" * 100)
            state.schedule(keys)
        memory.hold([state])
        assert state._scheduled.keys() <= state._kept.keys(), "what has gone to runs is no longer in the heap"
        found = []
        for some in state.come(lambda moment, mark: moment < mark, make(now)):
            assert [expected[key] for key in some] == sorted(expected[key] for key in some)
            state.drop(some)
            found += some
        assert sorted(found) == sorted(key for key, at in expected.items() if at < now)
        for key in found:
            del expected[key]
        came += found
        if now % 10 == 9:
            again = Moments()
            again.restore(pickle.loads(pickle.dumps(state.checkpoint())))
            state = again
    assert state.is_beyond_memory
    assert came


def test_moments_that_have_no_common_order_as_numbers_stay_in_memory() -> None:
    state, memory = Moments(), MemoryBound(1 << 10, files)
    with state.changing(range(300)) as kept:
        kept.update({key: ((key, "a"), "x" * 1_000) for key in range(300)})
    memory.hold([state])
    assert not state.is_beyond_memory


@pytest.mark.parametrize("block", [1, 3, 100])
def test_rows_come_due_in_order_and_once(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.dataflow.operators.state.runs.due_rows.BLOCK_ROWS", block)
    chance = random.Random(block)
    moments = [chance.choice([None, *range(9)]) for _ in range(60)]
    due, given = DueRows(pa.array(moments)), []
    for mark in (0, 2, 2, 3, 8, 20):
        while rows := due.come(lambda moment, mark=mark: moment < mark, 7).tolist():  # type: ignore[misc]
            assert len(rows) <= 7
            given += rows
        assert sorted(given) == [row for row, moment in enumerate(moments) if moment is not None and moment < mark]
    assert [moments[row] for row in given] == sorted(moment for moment in moments if moment is not None)


class Point:
    """Has slots."""

    __slots__ = ("x", "y")

    def __init__(self, x: Any) -> None:
        self.x = x


def test_sizes_are_those_of_all_parts() -> None:
    text = "x" * 1_000
    assert size_of(text) < size_of([text]) < size_of({"a": [text]}) < size_of(Point([text, "y" * 1_000]))
    assert size_of([text, text]) < 1_300
    assert 80_000 < size_of([str(number) * 10 for number in range(1_000)]) < 200_000
    assert 900_000 < size_of([1_000_000 + number for number in range(30_000)]) < 1_500_000
    assert size_of(np.zeros(1_000)) >= 8_000


def test_the_size_of_a_dict_follows_values_that_grow() -> None:
    size, kept = SizeOfRows(), {key: list[int]() for key in range(1_000)}
    small = size.of(kept)
    for key in kept:
        kept[key].extend(range(1_000, 2_000))
    assert size.of(kept) == small
    size.changed(250)
    assert size.of(kept) > 20 * small
