"""A receiver cuts batches by the key-groups by which its senders route, for rows and for columns, with keys of any type."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.replica.key_split import KeySplit
from rayad.dataflow.group_owners import owners_for
from rayad.dataflow.operators.keys.keyed import PAIRS
from rayad.dataflow.records.batches import mark_keyed, mark_tuples, to_rows
from rayad.dataflow.records.key_hashing import Router, key_group
from rayad.dataflow.records.remembered import Remembered
from rayad.dataflow.records.selectors import KeySelector
from tests.programs.totals import first

KEY_GROUPS = 16
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
)
KEYS = st.one_of(SIMPLE, st.tuples(SIMPLE, SIMPLE), st.frozensets(st.integers(), max_size=3))
PARALLELISM = st.integers(1, 12)


def owners_of(replicas: int) -> tuple[int, ...]:
    """Not in ranges: as after a change of layout."""
    return owners_for(owners_for((0,) * KEY_GROUPS, max(1, replicas - 1)), replicas)


def cut(selector: KeySelector, batch: Any, replicas: int) -> list[Any]:
    return KeySplit(selector, KEY_GROUPS).split(batch, np.array(owners_of(replicas)), replicas)


@given(st.lists(KEYS, min_size=1, max_size=30), PARALLELISM)
def test_rows(keys: list[Any], replicas: int) -> None:
    rows = [(key, place) for place, key in enumerate(keys)]
    router = Router(replicas, KEY_GROUPS, owners_of(replicas))
    parts = cut(KeySelector(first), rows, replicas)
    assert [part or [] for part in parts] == router.split_rows(rows, first)
    assert all(part is None or part for part in parts)


def test_rows_of_one_place_are_not_copied() -> None:
    rows = [("a", 1), ("a", 2)]
    parts = cut(KeySelector(first), rows, 4)
    assert [part for part in parts if part is not None] == [rows]
    assert any(part is rows for part in parts)


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=3)),
}


def column(kind: str, values: list[Any]) -> pa.Array:
    type_ = COLUMNS[kind][0]
    return pa.array(values, type_.value_type).dictionary_encode() if pa.types.is_dictionary(type_) else pa.array(values, type_)


@given(st.data(), PARALLELISM, st.booleans())
def test_columns(data: st.DataObject, replicas: int, is_keyed: bool) -> None:
    """Named key columns, and keyed batches of which the key leads; nulls among them."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=2))
    rows = data.draw(st.lists(st.tuples(*(st.none() | COLUMNS[kind][1] for kind in kinds)), min_size=1, max_size=30))
    names = [f"k{i}" for i in range(len(kinds))]
    arrays = [column(kind, [row[i] for row in rows]) for i, kind in enumerate(kinds)]
    batch = pa.record_batch([*arrays, pa.array(range(len(rows)))], [*names, "place"])
    if is_keyed:
        batch = mark_keyed(batch, len(kinds))
    selector = KeySelector(first, pairs=True) if is_keyed else KeySelector(columns=tuple(names))
    routed = Router(replicas, KEY_GROUPS, owners_of(replicas)).split_columns(batch, names)
    parts = cut(selector, batch, replicas)
    assert [None if part is None else part.column("place").to_pylist() for part in parts] == [
        part.column("place").to_pylist() if part.num_rows else None for part in routed
    ]
    assert all(part is None or part.schema.equals(batch.schema, check_metadata=True) for part in parts)


def test_columns_keyed_by_a_function_are_cut_as_rows() -> None:
    batch = pa.record_batch({"n": list(range(20))})
    parts = cut(KeySelector(lambda row: row["n"] % 5), batch, 3)
    owners = owners_of(3)
    for replica, part in enumerate(parts):
        mine = [{"n": n} for n in range(20) if owners[key_group(n % 5, KEY_GROUPS)] == replica]
        assert (part or []) == mine


def test_rows_and_columns_agree() -> None:
    """A stream may bring both."""
    keys = ["a", "b", None, "longer than the others", ""] * 4
    by_rows = cut(KeySelector(columns=("k",)), [{"k": key} for key in keys], 5)
    by_columns = cut(KeySelector(columns=("k",)), pa.record_batch({"k": keys}), 5)
    assert [[row["k"] for row in part] if part else None for part in by_rows] == [
        part.column("k").to_pylist() if part is not None else None for part in by_columns
    ]


def test_a_full_cache_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembered, "ENTRIES_MAX", 3)
    split = KeySplit(KeySelector(first), KEY_GROUPS)
    places = np.arange(KEY_GROUPS)
    values = [1, "x", b"y", Decimal("0.5"), Fraction(1, 3), uuid.UUID(int=7), (1, None), dt.date(2026, 1, 2)]
    for turn in range(3):
        for key in values:
            parts = split.split([(key, turn)], places, KEY_GROUPS)
            assert [place for place, part in enumerate(parts) if part] == [key_group(key, KEY_GROUPS)]
    assert len(split._cache) <= 4


def test_the_groups_are_those_of_the_public_function() -> None:
    parts = KeySplit(KeySelector(first), KEY_GROUPS).split([("q", 1)], np.arange(KEY_GROUPS), KEY_GROUPS)
    assert parts[rd.key_group("q", KEY_GROUPS)] == [("q", 1)]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=30), PARALLELISM)
def test_tuples_in_columns(keys: list[tuple[int, int]], replicas: int) -> None:
    """A collection's records are its keys where it is looked at as a whole; in columns they are structs that stand for tuples."""
    fields = [pa.array([key[at] for key in keys]) for at in (0, 1)]
    struct = pa.StructArray.from_arrays(fields, names=["0", "1"])
    batch = mark_tuples(pa.RecordBatch.from_arrays([struct, pa.array(range(len(keys)))], names=["key", "place"]))
    parts = cut(PAIRS, batch, replicas)
    owners = owners_of(replicas)
    for replica, part in enumerate(parts):
        assert {owners[key_group(key, KEY_GROUPS)] for key, _ in to_rows(part or [])} <= {replica}
    assert sorted(row for part in parts if part for row in to_rows(part)) == sorted(zip(keys, range(len(keys)), strict=True))
