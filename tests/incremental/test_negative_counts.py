"""A removal that nobody has checked is an error where a result would be wrong, and not a wrong table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd

Build = Callable[[rd.Collection], rd.Collection]
BY_KEY: dict[str, tuple[Build, str]] = {
    "count": (lambda c: c.key_by("k").count(), "what has the key 'a' is there -1 times"),
    "sum": (lambda c: c.key_by("k").sum("v"), "what has the key 'a' is there -1 times"),
    "mean": (lambda c: c.key_by("k").mean("v"), "what has the key 'a' is there -1 times"),
    "distinct": (lambda c: c.distinct(), r"{'k': 'a', 'v': 2} is there -1 times"),
    "min": (lambda c: c.key_by("k").min(lambda r: r["v"]), r"{'k': 'a', 'v': 2} of key 'a' is there -1 times"),
    "reduce": (lambda c: c.key_by("k").reduce(lambda key, values: values), r"{'k': 'a', 'v': 2} of key 'a' is there -1 times"),
    "top_k": (lambda c: c.key_by("k").top_k(1, lambda r: r["v"]), r"{'k': 'a', 'v': 2} of key 'a' is there -1 times"),
    "rank": (lambda c: c.key_by("k").rank("v"), r"{'k': 'a', 'v': 2} of key 'a' is there -1 times"),
    "semi": (lambda c: c.key_by("k").join(c.key_by("k"), "semi"), "what has the key 'a' is there -1 times"),
}


@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("operator", BY_KEY)
def test_an_operator_that_sees_less_than_nothing_says_so(operator: str, form: str) -> None:
    build, told = BY_KEY[operator]
    flow = rd.Dataflow("negative")
    rows = [
        {"epoch": 0, "k": "a", "v": 1, "n": 1},
        {"epoch": 0, "k": "b", "v": 1, "n": 1},
        {"epoch": 1, "k": "a", "v": 1, "n": -1},
        {"epoch": 1, "k": "a", "v": 2, "n": -1},
    ]
    if form == "rows":
        epochs = [[{name: row[name] for name in ("k", "v", "n")} for row in rows if row["epoch"] == epoch] for epoch in (0, 1)]
        stream: rd.Stream = flow.from_epochs(epochs)
    else:
        stream = flow.from_arrow(pa.Table.from_pylist(rows), epoch="epoch").select("k", "v", "n")
    build(stream.as_collection(diff="n", checked=False)).collect("out")
    with pytest.raises(
        rd.DataflowError, match=told.replace("{", r"\{") + r" in epoch 1: more of it was removed than inserted.*checked=False"
    ):
        flow.run(runtime="local")


@pytest.mark.parametrize("how", ["intersect", "except_"])
def test_sets_refuse_it_too(how: str) -> None:
    flow = rd.Dataflow("negative")
    one, other = rd.Collection(flow.from_epochs([[("a", 1)]])), rd.Collection(flow.from_epochs([[("a", -1)]]), checked=False)
    getattr(one, how)(other).collect("out")
    with pytest.raises(rd.DataflowError, match=r"1 of key 'a' is there -1 times in epoch 0"):
        flow.run(runtime="local")


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_removals_of_a_stream_of_changes_are_checked_unless_it_says_otherwise(form: str) -> None:
    flow = rd.Dataflow("checked")
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": -1}]
    stream: rd.Stream = flow.from_epochs([rows]) if form == "rows" else flow.from_arrow(pa.Table.from_pylist(rows))
    changes = stream.as_collection(diff="n") if form == "columns" else rd.Collection(stream.map(lambda r: (r["k"], r["n"])))
    changes.collect("out")
    with pytest.raises(rd.DataflowError, match=r"'b'.* was removed 1 times in epoch 0, and was there 0 times"):
        flow.run(runtime="local")


def test_in_a_loop_the_round_is_named() -> None:
    flow = rd.Dataflow("negative")
    start = rd.Collection(flow.from_epochs([[(1, 1)]]))

    def body(inner: rd.Collection) -> rd.Collection:
        return inner.concat(inner.map(lambda n: n + 1).negate()).distinct()

    start.iterate(body, max_rounds=3).collect("out")
    with pytest.raises(rd.DataflowError, match=r"2 is there -1 times in epoch 0, round \(0,\)"):
        flow.run(runtime="local")


def test_a_difference_of_collections_goes_through_threshold() -> None:
    flow = rd.Dataflow("difference")
    one = rd.Collection(flow.from_epochs([[("a", 2), ("b", 1)], [("a", -1)]]))
    other = rd.Collection(flow.from_epochs([[("a", 1), ("c", 1)]]))
    one.concat(other.negate()).threshold(lambda record, count: max(count, 0)).collect("out")
    got: list[Any] = sorted((time.epoch, *change) for time, change in flow.run(runtime="local")["out"])
    assert got == [(0, "a", 1), (0, "b", 1), (1, "a", -1)]
