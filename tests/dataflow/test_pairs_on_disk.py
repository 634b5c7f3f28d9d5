"""Distinct Python values of which more is kept than memory may have: in sorted runs, with the same results."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rayad as rd
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.by_key.sets import GrowingSet
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.pairs_below import PairsBelow
from tests.dataflow.disturbed_job import DisturbedJob
from tests.thorough import by_turns

files = StateFiles("state", None)


def once(seen: GrowingSet, pairs: list[Any]) -> list[Any]:
    """Those that are new, which are kept."""
    fresh = seen.new(dict.fromkeys(comparable(pairs)))
    seen.add(fresh)
    return fresh


# -- which values are equal --------------------------------------------------------------------------
VALUES: list[Any] = [
    1, 1.0, True, Decimal(1), 2**80, -0.0, 0, "a", b"a", None, float("nan"), np.float64("nan"), np.int64(2), 2.0, (1, "a"), (1.0, "a"),
    [1, "a"],
    {"x": 1, "y": [2.0]}, {"y": [2], "x": 1.0}, {"x": {1, 2}}, {"x": {2, 1}}, frozenset({1, 2}), np.array([1, 2]), np.array([[1, 2]]),
    [1, 2],
    dt.date(2026, 11, 28), dt.datetime(2026, 11, 28, tzinfo=dt.UTC), dt.datetime(2026, 11, 28), dt.timedelta(seconds=1), dt.time(1),
    dt.datetime(2026, 11, 28, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), ("a", ("b", None)), ["a", ("b", None)], {"n": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_what_is_on_disk_is_equal_to_what_it_was_equal_to_in_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    chance, held, free = random.Random(seed), GrowingSet(), GrowingSet()
    memory = MemoryBound(1 << 8, files)
    for _ in range(12):
        pairs = [(chance.choice(("k", 1, 1.0, None)), chance.choice(VALUES)) for _ in range(9)]
        assert list(map(repr, originals(once(held, pairs)))) == list(map(repr, originals(once(free, pairs))))
        memory.hold([held])
    assert held.is_beyond_memory
    assert set(held.kept) == set(free.kept)


def test_pairs_are_within_the_bound_and_found_again() -> None:
    seen, memory = GrowingSet(), MemoryBound(1 << 20, files)
    for begin in range(0, 8_000, 200):
        assert len(once(seen, [(n % 7, {"n": n, "text": f"{n} " * 20}) for n in range(begin, begin + 200)])) == 200
        memory.hold([seen])
        assert seen.memory_bytes <= memory.bytes_max
    assert seen.is_beyond_memory
    assert not once(seen, [(n % 7, {"text": f"{n} " * 20, "n": float(n)}) for n in range(0, 8_000, 3)])
    assert len(seen.kept) == 8_000
    some = [value.value["n"] for key, value in seen.pairs_below([3]) if key == 3]
    assert len(some) == len(set(some))
    assert set(some) <= set(range(3, 8_000, 7))


class Own:
    """Compared by what it has, in this process alone."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)


def test_values_without_a_hash_that_is_the_same_everywhere_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    seen, memory = GrowingSet(), MemoryBound(1 << 8, files)
    once(seen, [("k", n) for n in range(5)])
    memory.hold([seen])
    assert seen.is_beyond_memory
    assert len(once(seen, [("k", Own(1)), ("k", 3), ("k", Own(1)), ("k", Own(2))])) == 2
    memory.hold([seen])
    assert len(seen.in_memory()) == 2
    assert not once(seen, [("k", Own(2)), ("k", 4)])
    assert len(seen.kept) == 7


def test_what_cannot_be_pickled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)

    class Odd(int):
        def __reduce__(self) -> Any:
            raise TypeError("not this one")

    seen = GrowingSet()
    once(seen, [("k", 1), ("odd", Odd(7))])
    with pytest.raises(rd.DataflowError, match="what the key 'odd' has, 7 cannot be: not this one"):
        MemoryBound(1 << 8, files).hold([seen])


# -- jobs --------------------------------------------------------------------------------------------
ROWS, KINDS, BOUND = 500, 5_000, 1 << 20


class Job(DisturbedJob):
    def __init__(self, folder: Path, bound: int | None = BOUND) -> None:
        super().__init__(folder, bound)

    def program(self, rows: Any) -> Any:
        return rows.key_by(lambda row: row["k"]).distinct(name="kept")

    def rows_of(self, chance: random.Random, epoch: int) -> list[Any]:
        return [{"k": n % 300, "v": [n, f"{n} " * 40]} for n in (chance.randrange(KINDS) for _ in range(ROWS))]

    def states_of(self, vertex: Any) -> list[Any]:
        return [vertex.seen.rows] if hasattr(vertex, "seen") else []


def test_a_job_gives_the_same_with_most_pairs_on_disk(tmp_path: Path) -> None:
    held = Job(tmp_path / "held")
    found = held.run(disturbed=True)
    assert held.most > 500
    assert found == Job(tmp_path / "free", bound=None).run(disturbed=False)


def test_a_running_job_is_read_wherever_its_pairs_are(tmp_path: Path) -> None:
    read = []
    for bound in (BOUND, None):
        job = Job(tmp_path / str(bound), bound)
        table = job.job.table("kept")
        table.scan()
        for epoch in range(5):
            job.send(epoch, [{"k": n % 300, "v": [n, f"{n} " * 40]} for n in range(epoch, KINDS, 3)])
        read.append(sorted(map(repr, table.scan().to_pylist())))
        job.job.cancel()
    assert read[0] == read[1]
    assert len(read[0]) == KINDS


# -- defects that this must find -----------------------------------------------------------------------
def nothing_is_known(self: PairsBelow, pairs: Any) -> Any:
    return np.zeros(len(pairs), np.bool_)


def all_of_a_place_are_alike(self: PairsBelow, asked: Any, rows: Any) -> Any:
    return np.ones(rows.num_rows, np.bool_)


def loses_every_second(self: PairsBelow, pairs: Any) -> None:
    REAL_PUT(self, list(pairs)[1::2])


def gives_all_but_one_run(self: PairsBelow, groups: frozenset[int], key_groups: int) -> Any:
    return REAL_GIVE(self, groups, key_groups)[1:]


def all_have_one_place(self: PairsBelow, rows: Any) -> Any:
    return REAL_PLACES(self, rows) | np.uint64((1 << 56) - 1)


REAL_PUT, REAL_GIVE, REAL_PLACES = PairsBelow.put_pairs, PairsBelow.give, PairsBelow.places


@by_turns(2)
@pytest.mark.parametrize(
    "defects",
    [
        {"known": nothing_is_known},
        {"places": all_have_one_place, "are_alike": all_of_a_place_are_alike},
        {"put_pairs": loses_every_second},
        {"give": gives_all_but_one_run},
    ],
    ids=lambda defects: " ".join(each.__name__ for each in defects.values()),
)
def test_planted_defects_are_found(defects: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Job(tmp_path / "free", bound=None).run(disturbed=False)
    for method, defect in defects.items():
        monkeypatch.setattr(PairsBelow, method, defect)
    try:
        found = Job(tmp_path / "held").run(disturbed=True)
    except Exception:  # what is lost may also fail
        return
    assert found != sound


def test_pairs_of_one_place_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Job(tmp_path / "free", bound=None).run(disturbed=False)
    monkeypatch.setattr(PairsBelow, "places", all_have_one_place)
    assert Job(tmp_path / "held").run(disturbed=True) == sound
