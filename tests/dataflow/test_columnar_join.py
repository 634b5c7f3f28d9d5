"""Joins give the same from rows and from columns, and what plain Python says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins import matching as column_match
from tests.programs import model as m
from tests.thorough import examples

KEYS: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
    "int": (st.integers(-2, 2), pa.int64(), pa.int32()),
    "int or null": (st.none() | st.integers(-1, 1), pa.int64(), pa.int64()),
    "string": (st.sampled_from(["a", "b", ""]), pa.string(), pa.large_string()),
    "dictionary": (st.sampled_from(["a", "b", None]), pa.dictionary(pa.int8(), pa.string()), pa.string()),
    "float and int": (st.sampled_from([0.0, -0.0, 1.0, 2.0]), pa.float64(), pa.int64()),
    "unsigned": (st.sampled_from([0, 2**64 - 1]), pa.uint64(), pa.uint64()),
    "bool and int, as rows": (st.booleans(), pa.bool_(), pa.int64()),
}


def batches_of(epochs: list[list[tuple[Any, int]]], name: str, key: pa.DataType) -> list[pa.RecordBatch]:
    def column(values: list[Any]) -> pa.Array:
        if pa.types.is_dictionary(key):
            return pa.array(values, pa.string()).dictionary_encode()
        return pa.array(values, key if key == pa.uint64() else None).cast(key) if values else pa.array([], key)

    return [pa.record_batch({"v": pa.array([v for _, v in rows], pa.int64()), name: column([k for k, _ in rows])}) for rows in epochs]


def joined(sides: list[list[Any]], options: dict[str, Any]) -> Any:
    flow = rd.Dataflow()
    left, right = (flow.from_epochs(side, batch_rows=2, parts=2) for side in sides)
    left.join(right, "k", "key").collect("out")
    return flow.run(runtime="local", **options)["out"]


@pytest.mark.parametrize("kind", KEYS)
@examples(each_run=9, soak=25)
@given(data=st.data(), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_rows_and_columns_give_the_same(kind: str, data: st.DataObject, parallelism: int, seed: int) -> None:
    keys, left_type, right_type = KEYS[kind]
    rows = st.lists(st.lists(st.tuples(keys, st.integers(0, 9)), max_size=6), min_size=1, max_size=3)
    left = batches_of(data.draw(rows), "k", left_type)
    right = batches_of(data.draw(rows), "key", right_type)
    options = {"parallelism": parallelism, "seed": seed}
    by_columns = joined([left, right], options)
    by_rows = joined([[b.to_pylist() for b in side] for side in (left, right)], options)
    mixed = joined([left, [b.to_pylist() for b in right]], options)
    timed = [m.epochs([b.to_pylist() for b in side]) for side in (left, right)]
    expected = m.joined(*timed, lambda r: r["k"], lambda r: r["key"])
    for found in (by_columns, by_rows, mixed):  # of equal keys any may stand for both: 1, 1.0, True
        m.require_same([(t, pair) for t, (_, pair) in found], [(t, pair) for t, (_, pair) in expected], kind)


def test_several_key_columns_and_records_of_a_keyed_stream() -> None:
    batch = pa.record_batch({"a": [1, 1, 2], "b": ["x", "y", "x"], "v": [10, 20, 30]})
    flow = rd.Dataflow()
    left = flow.from_items(batch)
    sums = left.key_by(["a", "b"]).sum("v")
    left.key_by(["a", "b"]).join(sums.key_by(["a", "b"])).collect("out")
    expected = [((r["a"], r["b"]), (r, ((r["a"], r["b"]), r["v"]))) for r in batch.to_pylist()]
    assert sorted(r for _, r in flow.run(runtime="local")["out"]) == sorted(expected)


def test_results_stay_columns_and_open_into_plain_ones() -> None:
    people = pa.record_batch({"id": [1, 2], "name": ["ann", "bob"], "v": [5, 6]})
    things = pa.record_batch({"v": [7, 8, 9], "owner": [2, 2, 3]})
    flow = rd.Dataflow()
    pairs = flow.from_epochs([things]).join(flow.from_epochs([people]), "owner", "id")
    pairs.collect("pairs", columnar=True)
    pairs.as_columns().collect("plain", columnar=True)
    pairs.as_columns("owner", "thing", "name", "age").collect("named", columnar=True)
    result = flow.run(runtime="local")
    assert result["pairs"].schema.names == ["owner", "pair"]
    assert sorted(result["plain"].to_pylist(), key=str) == [
        {"owner": 2, "v": 7, "name": "bob", "v_right": 6},
        {"owner": 2, "v": 8, "name": "bob", "v_right": 6},
    ]
    assert result["named"].schema.names == ["owner", "thing", "name", "age"]


def test_many_runs_are_merged_and_every_pair_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_match, "PAIRS_MAX", 7)
    rng = np.random.default_rng(3)
    epochs = 40
    sides = [[pa.record_batch({"k": rng.integers(0, 30, 25), "v": rng.integers(0, 1000, 25)}) for _ in range(epochs)] for _ in range(2)]
    flow = rd.Dataflow()
    left, right = (flow.from_epochs(side) for side in sides)
    left.join(right, "k").collect("out")
    found = flow.run(runtime="local", parallelism=2, seed=5)["out"]
    timed = [m.epochs([b.to_pylist() for b in side]) for side in sides]
    m.require_same(found, m.joined(*timed, lambda r: r["k"], lambda r: r["k"]), "join")


def test_a_join_of_columns_inside_a_loop() -> None:
    edges = pa.record_batch({"a": [0, 1, 2, 5], "b": [1, 2, 3, 6]})

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        reached = inner.join(known, "at", "a").as_columns("a", "from", "at")
        step = reached.map_batches(lambda batch: batch.select(["from", "at"]))
        return step, step

    flow = rd.Dataflow()
    loop = flow.loop()
    known = loop.enter(flow.from_epochs([edges]))
    starts = loop.enter(flow.from_epochs([pa.record_batch({"from": [0], "at": [0]})]))
    feedback = loop.feedback()
    again, out = body(starts.union(feedback))
    feedback.connect(again)
    out.leave(loop).collect("out")
    assert sorted((r["from"], r["at"]) for _, r in flow.run(runtime="local")["out"]) == [(0, 1), (0, 2), (0, 3)]


def test_matches_are_the_pairs_of_equal_numbers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        left, right = (np.sort(rng.integers(0, 8, rng.integers(0, 12))) for _ in range(2))
        found = [pair for a, b in column_match.matches(left, right) for pair in zip(a.tolist(), b.tolist(), strict=True)]
        assert sorted(found) == [(i, j) for i in range(len(left)) for j in range(len(right)) if left[i] == right[j]]
