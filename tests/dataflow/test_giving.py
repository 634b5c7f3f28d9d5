"""Key-groups move between replicas of every keyed operator, and nobody can tell from the results."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.dataflow.operators import key_groups, touched_keys
from rayad.dataflow.operators.aggregates import Sum
from rayad.dataflow.operators.column_best import BestOfBatch, BestRecords, EpochBest
from rayad.dataflow.operators.column_epochs import EpochWindows
from rayad.dataflow.operators.event_windows import EventWindows
from rayad.dataflow.operators.stateful import Distinct, Join, StatefulMap
from rayad.dataflow.operators.totals import EpochTotals, Fold, Totals
from rayad.dataflow.operators.window_join import WindowJoin
from tests.dataflow import test_state_of_keyed_operators as keyed_operators
from tests.dataflow import test_state_of_totals as totals
from tests.dataflow import test_state_of_windows as windows
from tests.dataflow.driven import Step, steps_with
from tests.dataflow.moving import check_moves

KINDS = pytest.mark.parametrize(("columns", "rows"), [(True, False), (False, True), (True, True)], ids=["columns", "rows", "both"])
CHANCE = st.randoms(use_true_random=False)


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(key_groups, "SLICE_KEYS", 4)


@pytest.mark.parametrize("keys", totals.KEYS)
@pytest.mark.parametrize("name", totals.AGGREGATORS)
@KINDS
@settings(max_examples=40)
@given(data=st.data(), chance=CHANCE)
def test_totals_move(name: str, keys: str, columns: bool, rows: bool, data: st.DataObject, chance: random.Random) -> None:
    check_moves(lambda: Totals(totals.AGGREGATORS[name]()), data.draw(totals.steps(name, keys, columns, rows)), chance)


@pytest.mark.parametrize("vertex", [EpochTotals, EpochWindows])
@settings(max_examples=40)
@given(data=st.data(), chance=CHANCE)
def test_totals_of_epochs_move(vertex: Any, data: st.DataObject, chance: random.Random) -> None:
    check_moves(lambda: vertex(Sum()), data.draw(totals.steps("sum", "names", True, True)), chance)


@settings(max_examples=60)
@given(drawn=steps_with(totals.FOLDED, first=[(0, [(key, 0) for key in "abcdefg"])]), chance=CHANCE)
def test_folds_move(drawn: Any, chance: random.Random) -> None:
    check_moves(lambda: Fold(list, lambda kept, value: [*kept, value]), drawn, chance)


@settings(max_examples=80)
@given(steps=steps_with(keyed_operators.PAIRS, first=[(0, [(key, 0) for key in keyed_operators.KEYS])]), chance=CHANCE)
def test_distinct_moves(steps: list[Step], chance: random.Random) -> None:
    check_moves(Distinct, steps, chance)


@settings(max_examples=80)
@given(steps=steps_with(keyed_operators.PAIRS, first=[(0, [(key, 1) for key in keyed_operators.KEYS])]), chance=CHANCE)
def test_stateful_map_moves_and_forgets_what_was_forgotten(steps: list[Step], chance: random.Random) -> None:
    check_moves(lambda: StatefulMap(lambda kept, value: ([*kept, value] if value else None, len(kept)), list), steps, chance)


@pytest.mark.parametrize("how", keyed_operators.JOINS)
@KINDS
@settings(max_examples=60)
@given(data=st.data(), chance=CHANCE)
def test_joins_move(how: str, columns: bool, rows: bool, data: st.DataObject, chance: random.Random) -> None:
    check_moves(Join, data.draw(keyed_operators.join_steps(how, columns, rows)), chance)


@pytest.mark.parametrize("aggregator", windows.AGGREGATORS)
@pytest.mark.parametrize("how", windows.WINDOWS)
@KINDS
@settings(max_examples=30)
@given(data=st.data(), chance=CHANCE)
def test_windows_move(how: str, aggregator: str, columns: bool, rows: bool, data: st.DataObject, chance: random.Random) -> None:
    made = windows.AGGREGATORS[aggregator]
    steps = data.draw(windows.window_steps(windows.element_of(how, made()), columns, rows))
    check_moves(lambda: EventWindows(made(), windows.WINDOWS[how], 4), steps, chance, broadcast=frozenset({1}))


@pytest.mark.parametrize("how", ["tumbling", "sliding"])
@KINDS
@settings(max_examples=60)
@given(data=st.data(), chance=CHANCE)
def test_window_joins_move(how: str, columns: bool, rows: bool, data: st.DataObject, chance: random.Random) -> None:
    steps = data.draw(windows.join_steps(columns, rows))
    check_moves(lambda: WindowJoin(windows.WINDOWS[how], (2, 6)), steps, chance, broadcast=frozenset({2, 3}))


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@settings(max_examples=40)
@given(data=st.data(), chance=CHANCE)
def test_best_records_of_epochs_move(columnar: bool, data: st.DataObject, chance: random.Random) -> None:
    best = BestRecords(windows.VALUE, largest=False)
    batches = windows.RECORDS.map(lambda some: (0, windows.sent(BestOfBatch(windows.KEY, best), some, columnar)))
    check_moves(lambda: EpochBest(best), data.draw(steps_with(batches)), chance)
