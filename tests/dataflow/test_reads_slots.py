"""Totals in columns at epochs, where slots are left behind and numbered anew."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rayad.dataflow.operators.aggregates.aggregators import Count
from rayad.dataflow.operators.state.reads.at_epochs import Epochs
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.slots.key_index import KeyIndex
from rayad.dataflow.operators.totals.totals import TotalsInColumns

NAMES = [f"k{number}" for number in range(8)]


class At:
    """Totals of names in an epoch of their own."""

    def __init__(self) -> None:
        self.epoch = -1
        self.totals = TotalsInColumns(Count())
        self.read = self.totals.at_epochs(Epochs(lambda: self.epoch, lambda: self.epoch))

    def add(self, names: list[str], value: int) -> None:
        self.totals.merge(pa.record_batch({"k": names, "v": [value] * len(names)}))

    def found(self, epoch: int) -> dict[str, int]:
        entries = self.read.of_all(epoch).in_python()
        return dict(zip(entries.keys, entries.columns["count"], strict=True))


def _dropped() -> At:
    at = At()
    for epoch in range(3):
        at.epoch = epoch
        at.add(NAMES, 1)
    at.epoch = 3
    at.totals.drop(NAMES[:6])
    at.add(NAMES[5:], 10)
    return at


def test_slots_that_are_left_behind_are_read_as_they_were() -> None:
    at = _dropped()
    for epoch in range(3):
        assert at.found(epoch) == dict.fromkeys(NAMES, epoch + 1)
    assert at.found(3) == {"k5": 10, "k6": 13, "k7": 13}


def test_slots_go_when_nobody_can_ask_what_they_had() -> None:
    at = _dropped()
    at.totals.gave()
    assert at.totals.totals is not None
    assert len(at.totals.totals) == 8
    at.read.forget(3)
    at.totals.gave()
    assert len(at.totals.totals) == 3
    assert at.found(3) == {"k5": 10, "k6": 13, "k7": 13}


def test_slots_that_are_numbered_anew_have_what_they_had(monkeypatch: pytest.MonkeyPatch) -> None:
    at = _dropped()
    at.read.forget(2)
    at.epoch = 4
    at.totals.drop(NAMES[5:7])
    at.read.forget(3)
    at.totals.gave()
    assert at.totals.totals is not None
    assert len(at.totals.totals) == 3
    at.epoch = 5
    at.add(["k0", "k6"], 100)
    assert at.found(3) == {"k5": 10, "k6": 13, "k7": 13}
    assert at.found(4) == {"k7": 13}
    assert at.found(5) == {"k0": 100, "k6": 100, "k7": 13}
    monkeypatch.setattr(SlotVersions, "renumber", lambda self, numbers: None)
    planted = _dropped()
    planted.epoch = 4
    planted.totals.drop(NAMES[5:7])
    planted.read.forget(3)
    planted.totals.gave()
    with pytest.raises((AssertionError, IndexError)):
        assert planted.found(3) == {"k5": 10, "k6": 13, "k7": 13}


def test_totals_of_another_type_have_no_former_values() -> None:
    at = At()
    at.epoch = 0
    at.totals.merge(pa.record_batch({"k": ["a"], "v": pa.array([1], pa.int64())}))
    at.epoch = 1
    at.totals.merge(pa.record_batch({"k": pa.array(["b"], pa.large_string()), "v": pa.array([2], pa.int64())}))
    assert at.read.since == 1
    assert at.found(1) == {"a": 1, "b": 2}


@pytest.mark.parametrize("keys", [[7, 5], ["x", "y"]])
def test_an_index_finds_the_slots_of_keys(keys: list[object]) -> None:
    index = KeyIndex(1)
    index.slots_of([pa.array(keys)])
    assert index.found([keys[1], "z", 99, None, keys[0]]).tolist() == [1, -1, -1, -1, 0]
    assert index.found([float("nan"), float("inf")]).tolist() == [-1, -1]
