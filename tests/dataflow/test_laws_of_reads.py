"""The law of reads, tried on every operator that can be read while it runs: whatever moves meanwhile, an epoch is read as it was when it
was over."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rayad.dataflow.operators.state import group_index, touched_keys
from rayad.dataflow.operators.state.by_schema import PartsBySchema
from rayad.dataflow.operators.state.reads.both_forms import BothAtEpochs
from rayad.dataflow.operators.state.reads.lists import ListsAtEpochs
from rayad.dataflow.operators.state.reads.seen import PairsAtEpochs, RowsAtEpochs
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.totals.columns import ColumnTotals
from rayad.dataflow.operators.totals.totals import TotalsInColumns
from rayad.dataflow.operators.windows.at_epochs import ColumnsAtEpochs, WindowsAtEpochs
from tests.dataflow.driven import Driven
from tests.dataflow.keyed_vertices import ALL
from tests.dataflow.reading import check_reads, readable
from tests.thorough import amount, by_turns

READ = {keyed.name: keyed for keyed in ALL if readable(Driven(keyed.make).vertex)}
QUICK = {"phases": (Phase.explicit, Phase.reuse, Phase.generate)}
"""A failure is told as it is: making it smaller takes minutes."""


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(group_index, "SLICE_KEYS", 4)


@by_turns(3)
@pytest.mark.parametrize("name", READ)
@settings(max_examples=amount(each_run=1, soak=100), **QUICK)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_an_epoch_is_read_as_it_was_when_it_was_over(name: str, data: st.DataObject, chance: random.Random) -> None:
    keyed = READ[name]
    check_reads(keyed.make, data.draw(keyed.steps()), chance, broadcast=keyed.broadcast)


def test_which_operators_can_be_read() -> None:
    cannot = {type(keyed.make()).__name__ for keyed in ALL} - {type(keyed.make()).__name__ for keyed in READ.values()}
    of_epochs = {"EpochTotals", "EpochWindows", "EpochBest", "LateRecords", "StampRecords"}  # which keep nothing from one to the next
    assert cannot == of_epochs | {
        "AsOfJoin", "BroadcastJoin", "IntervalJoin", "JoinOfRecordsThatEnd", "TableEvery", "WindowJoin",
    }  # fmt: skip


def _nothing(*_: Any) -> None:
    """Do nothing."""


PLANTED = {
    "changes of slots are not noted": ("Totals, sum of names, columns", SlotVersions, "note", _nothing),
    "former values of slots stay where they were": ("Totals, sum of names, columns", ColumnTotals, "give_former", lambda *_: []),
    "totals that come count as changed": ("Totals, sum of names, columns", TotalsInColumns, "take", PartsBySchema.take),
    "rows have what columns had": ("Totals, sum of names, both", BothAtEpochs, "columns_became_rows", _nothing),
    "distinct rows were always there": ("Distinct, values in columns", RowsAtEpochs, "take", _nothing),
    "distinct pairs that come are not noted": ("Distinct, values in rows", PairsAtEpochs, "add", _nothing),
    "windows of columns are not kept": ("EventWindows, tumbling, sum, columns", ColumnsAtEpochs, "before_change", _nothing),
    "sessions of columns share what is beside them": ("EventWindows, session, sum, columns", Run, "alone", lambda run: run),
    "windows are not noted": ("EventWindows, tumbling, sum, rows", WindowsAtEpochs, "note_windows", _nothing),
    "sessions are not noted": ("EventWindows, session, sum, rows", WindowsAtEpochs, "note_sessions", _nothing),
    "dropped rows are not kept": ("KeysEnd, Join", ListsAtEpochs, "note", _nothing),
    "dropped rows stay where they were": ("KeysEnd, Join", ListsAtEpochs, "give", lambda self, *_: ({}, self.since)),
}


@by_turns(3)
@pytest.mark.parametrize("planted", PLANTED)
def test_the_law_finds_what_is_planted(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, where, what, instead = PLANTED[planted]
    keyed = READ[name]
    monkeypatch.setattr(where, what, instead)

    @settings(max_examples=300, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(data=st.data(), chance=st.randoms(use_true_random=False))
    def run(data: st.DataObject, chance: random.Random) -> None:
        check_reads(keyed.make, data.draw(keyed.steps()), chance, broadcast=keyed.broadcast)

    with pytest.raises((AssertionError, KeyError)):
        run()
