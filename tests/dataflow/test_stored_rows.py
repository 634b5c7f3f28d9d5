"""State in a dict, stored by position in snapshots: restoring gives the same items in the same order, for any keys and values."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.dataflow.operators.state import stored_columns, stored_rows, touched_keys
from rayad.dataflow.operators.state.by_key import dicts
from rayad.dataflow.operators.state.stored_columns import Unchanging, stored, taken_back
from rayad.dataflow.operators.state.stored_rows import ByPosition, StoredRows
from rayad.dataflow.operators.stateful_map import StatefulMap
from rayad.progress import Timestamp
from tests.dataflow.driven import Driven
from tests.thorough import examples


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(stored_rows, "NEW_KEYS_MAX", 6)
    monkeypatch.setattr(stored_rows, "PIECE_KEYS_MIN", 3)
    monkeypatch.setattr(stored_rows, "SAMPLE", 2)
    monkeypatch.setattr(stored_rows, "INLINE_ITEMS_MAX", 40)


def through_a_file(value: Any) -> Any:
    return loaded(b"".join(bytes(piece) for piece in dumped(value)))


class Key:
    """Hashable, but not picklable by itself."""

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("no")


KEYS = st.one_of(st.integers(-1, 50), st.sampled_from(["a", "ü", b"x", None, 1 << 70, 0.5, (1, "a")]))
VALUES = st.one_of(st.integers(0, 9), st.sampled_from([1 << 63, -(1 << 80), 0.1, float("inf"), True, None]))
ANY = st.one_of(*[VALUES] * 9, st.sampled_from(["text", (1, 2), [3]]))


def rounds(values: st.SearchStrategy[Any]) -> Any:
    changes = st.dictionaries(KEYS, values, max_size=12)
    kinds = st.sampled_from(["written", "written", "written", "whole", "discarded", "restored", "restored", "forgotten"])
    return st.lists(st.tuples(changes, st.integers(0, 3), kinds), max_size=12)


@pytest.mark.parametrize("values", [VALUES, ANY], ids=["numbers", "any"])
@examples(each_run=40, soak=300)
@given(data=st.data())
def test_state_comes_back_in_its_order(values: Any, data: st.DataObject) -> None:
    rows, state, chain = StoredRows(), dict[Any, Any](), list[Any]()
    for changes, waiting, kind in data.draw(rounds(values)):
        state.update(changes)
        rows.note(changes, len(state))
        if kind == "forgotten":  # keys move to other replicas
            for key in list(state)[::3]:
                del state[key]
            rows.forget()
        some = rows.take(state, waiting)
        if kind == "discarded":
            chain = []
        elif some is None or kind == "whole" or not chain:
            chain = [through_a_file(rows.checkpoint(state))]
        else:
            chain.append(through_a_file(some()))
        if chain:
            again = StoredRows()
            restored = again.restore(chain[0])
            for part in chain[1:]:
                again.restore_changes(restored, part)
            assert list(map(repr, restored.items())) == list(map(repr, state.items()))
            if kind == "restored":
                rows, state, chain = again, restored, []


def states(count: int, value: Any) -> tuple[StoredRows, dict[Any, Any]]:
    rows, state = StoredRows(), dict.fromkeys(range(count), value)
    for _ in range(count):  # until all keys are pickled
        rows.take(state)
    return rows, state


@pytest.mark.parametrize(("value", "inline"), [(1, True), (1 << 70, True), (0.5, True), (None, True), ("a", False), ((1, 2), False)])
def test_numbers_are_taken_in_the_replica_and_other_values_in_a_copy(value: Any, inline: bool) -> None:
    rows, state = states(30, value)
    assert rows.inline == inline
    assert isinstance(rows.checkpoint(state), ByPosition) == inline
    rows.take(state, waiting=6)
    assert not rows.inline, "30 and twice 6 are too many"


@pytest.mark.parametrize(
    ("values", "inline"), [([], True), ([None], True), ([1] * 9, True), (["a"] * 9, False), ([1] * 11, False)], ids=repr
)
def test_a_process_is_forked_only_for_a_stateful_map_with_much_state(
    monkeypatch: pytest.MonkeyPatch, values: list[Any], inline: bool
) -> None:
    monkeypatch.setattr(dicts, "FEW_ROWS", 10)
    run = Driven(lambda: StatefulMap(lambda state, value: (value, None), 0))
    run.step(("recv", 0, list(enumerate(values)), Timestamp(0)))
    assert run.vertex.checkpoint_inline == inline


def test_state_that_changed_after_it_was_inspected_is_given_unprepared() -> None:
    rows, state = states(10, 1)
    state[99] = 1
    assert rows.checkpoint(state) is state
    other = dict(state)
    assert rows.take(other) is None, "nothing was inspected of another dict"


def test_keys_that_cannot_be_pickled_alone_are_left_to_plain_pickling() -> None:
    rows, state = StoredRows(), {1: 1, 2: 1, Key(): 1, 3: 1, 4: 1}
    for _ in range(3):
        rows.take(state)
        assert not rows.inline
        assert rows.checkpoint(state) is state


def test_each_key_is_pickled_once_and_small_pieces_are_put_together() -> None:
    rows, state = StoredRows(), dict[int, int]()
    firsts = []
    for number in range(20):
        state[number] = number
        rows.note([number], len(state))
        rows.take(state)
        firsts.append([piece.first for piece in rows._pieces])
    assert firsts[-1] == [0, 3, 6, 9, 12, 15, 18]


def test_large_batches_are_kept_and_small_ones_and_slices_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_columns, "KEPT_BYTES_MIN", 800)
    large, small = pa.record_batch({"a": range(100)}), pa.record_batch({"a": range(9)})
    batches = [large, large, small, large.slice(50), small, large]
    parts = stored(batches)
    assert [isinstance(part.value, list) for part in parts] == [True, False, True]
    assert parts[0].value[0] is large
    assert taken_back(through_a_file(parts)) == taken_back(parts) == batches
    address = large.column(0).buffers()[1].address
    assert any(pa.py_buffer(piece).address == address for piece in dumped(parts)), "the writer needs no copy either"
    assert taken_back(pickle.loads(pickle.dumps(parts, protocol=2))) == batches


def test_restored_state_can_be_garbage_collected() -> None:
    """The interpreter crashed when a PickleBuffer of a memoryview was part of a cycle of references."""
    rows, state = states(10, 1)
    again = StoredRows()
    again.restore(through_a_file(rows.checkpoint(state)))
    cycle: list[Any] = [again, through_a_file(rows.checkpoint(state)), dumped(Unchanging(again._pieces))]
    cycle.append(cycle)
    del again, cycle
    assert gc.collect() > 0


def test_unchanging_state_is_read_only_after_it_was_restored() -> None:
    again = through_a_file(Unchanging(pa.record_batch({"a": range(3)}))).value
    assert not again.column(0).buffers()[1].is_mutable
