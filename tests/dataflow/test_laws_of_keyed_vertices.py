"""The laws of keyed state, tried on every operator that has any: neither snapshots nor moves of key-groups change results."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import pkgutil
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad.dataflow.operators as operators
from rayad.dataflow.operators.state import group_index as key_groups
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.vertex_tables import names_that_stay, tables_in
from rayad.dataflow.vertex import Vertex
from tests.dataflow.driven import Driven, check
from tests.dataflow.keyed_vertices import ALL, Keyed
from tests.dataflow.moving import check_moves, check_tables
from tests.thorough import amount, by_turns

_SOME = int(os.environ.get("RAYAD_MOVES", amount(each_run=2, soak=15)))
"""Examples of each operator; 60 and more when operators change."""
VERTICES = pytest.mark.parametrize("keyed", ALL, ids=lambda keyed: keyed.name)
OWN = ("checkpoint", "restore", "take_changes", "restore_changes", "index_for_giving", "give", "take", "gave")


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(key_groups, "SLICE_KEYS", 4)


@by_turns(3)
@VERTICES
@settings(max_examples=amount(each_run=3, soak=2 * _SOME))
@given(data=st.data())
def test_an_operator_resumes_from_any_of_its_snapshots(keyed: Keyed, data: st.DataObject) -> None:
    check(keyed.make, data.draw(keyed.steps()), view=keyed.view)


@by_turns(3)
@VERTICES
@settings(max_examples=_SOME)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_moved_key_groups_do_not_change_results(keyed: Keyed, data: st.DataObject, chance: random.Random) -> None:
    check_moves(keyed.make, data.draw(keyed.steps()), chance, broadcast=keyed.broadcast)


@VERTICES
def test_state_holds_no_function_of_the_users(keyed: Keyed) -> None:
    pickle.dumps(keyed.make().checkpoint())  # which takes no lambda


@by_turns(3)
@pytest.mark.parametrize("keyed", [keyed for keyed in ALL if keyed.all_in_tables], ids=lambda keyed: keyed.name)
@settings(max_examples=max(2, _SOME // 4))
@given(data=st.data())
def test_state_restored_from_its_tables_is_the_same(keyed: Keyed, data: st.DataObject) -> None:
    check_tables(keyed.make, data.draw(keyed.steps()))


def test_only_operators_with_state_of_one_epoch_have_no_tables() -> None:
    kinds = {type(vertex).__name__ for vertex in map(_begun, ALL) if not names_that_stay(tables_in(vertex))}
    assert kinds == {"EpochTotals", "EpochWindows", "EpochBest", "LateRecords", "StampRecords"}


def _begun(keyed: Keyed) -> KeyedVertex:
    vertex = Driven(keyed.make).vertex
    assert isinstance(vertex, KeyedVertex)
    return vertex


def operators_with_keyed_state() -> set[type[Vertex]]:
    for module in pkgutil.walk_packages(operators.__path__, operators.__name__ + "."):
        importlib.import_module(module.name)
    found, waiting = set(), [KeyedVertex]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith(operators.__name__):
                found.add(kind)
    found = {kind for kind in found if not inspect.isabstract(kind)}
    return {kind for kind in found if kind.on_notify is not Vertex.on_notify or not kind.__subclasses__()}  # others are bases


def test_every_operator_with_keyed_state_is_driven_through_these_laws() -> None:
    driven = {type(keyed.make()) for keyed in ALL}
    missing = sorted(kind.__name__ for kind in operators_with_keyed_state() - driven)
    assert not missing, f"{missing}: add each to tests/dataflow/keyed_vertices.py"


def test_no_operator_writes_snapshots_or_moves_of_its_own() -> None:
    own = sorted(f"{kind.__name__}.{name}" for kind in operators_with_keyed_state() for name in OWN if name in vars(kind))
    assert not own, f"{own}: declare a KeyedState instead (CONTRIBUTING.md)"
