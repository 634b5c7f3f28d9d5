"""Operators in columns give after each epoch what DuckDB gives, with nulls, and make no rows; in both forms mixed the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Literal
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from rayad.incremental.joins.kinds import HOWS
from rayad.incremental.records import Row
from tests.incremental.programs import History
from tests.incremental.test_relational import asked, changes_of, tables
from tests.thorough import amount

Form = Literal["columns", "both"]
FORMS: tuple[Form, ...] = ("columns", "both")
SEEDS = range(amount(each_run=3, soak=100))
SCHEMA = pa.schema({"epoch": pa.int64(), "k": pa.int64(), "v": pa.int64(), "diff": pa.int64()})
Build = Callable[..., rd.Collection]


def collection(flow: rd.Dataflow, changes: History, form: Form) -> rd.Collection:
    """Records ``{"k", "v"}``; with "both" those of every second epoch come in rows."""
    rows = [[{"k": k, "v": v, "diff": weight} for (k, v), weight in some] for some in changes]
    table = [{"epoch": epoch, **row} for epoch, some in enumerate(rows) if form == "columns" or epoch % 2 for row in some]
    stream = flow.from_arrow(pa.Table.from_pylist(table, SCHEMA), epoch="epoch", batch_rows=3).select("k", "v", "diff")
    if form == "both":
        stream = stream.union(flow.from_epochs([[] if epoch % 2 else some for epoch, some in enumerate(rows)], batch_rows=3))
    return stream.as_collection(diff="diff")


def given(build: Build, *histories: History, seed: int = 0, form: Form = "columns") -> Iterator[Counter[Any]]:
    """The table after each epoch. In columns alone no row is made before the end."""
    flow = rd.Dataflow("relational")
    build(*(collection(flow, changes, form) for changes in histories)).collect("out")
    refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
    with refused if form == "columns" else nullcontext():
        result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
    table: Counter[Any] = Counter()
    for epoch in range(len(histories[0])):
        for time, (record, weight) in result:
            if time.epoch == epoch:
                table[record] += weight
        assert min(table.values(), default=0) >= 0, table
        yield +table


def row(k: Any, v: Any) -> Row:
    """A record."""
    return Row(k=k, v=v)


def _joined(how: str, left: list[Any], right: list[Any]) -> Counter[Any]:
    pairs = how not in ("semi", "anti")
    what = "a.k, a.v, b.k, b.v, a.rowid is null, b.rowid is null" if pairs else "a.k, a.v"
    want: Counter[Any] = Counter()
    for one in asked(f"select {what} from a {how if how != 'full' else 'full outer'} join b on a.k = b.k", a=left, b=right):
        if pairs:
            mine, theirs = (None if one[4] else row(*one[:2])), (None if one[5] else row(*one[2:4]))
            want[one[0] if mine is not None else one[2], (mine, theirs)] += 1
        else:
            want[one[0], row(*one)] += 1
    return want


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arranged", [None, "left", "right"])
@pytest.mark.parametrize("how", HOWS)
def test_joins(how: Any, arranged: str | None, form: Form) -> None:
    def build(a: rd.Collection, b: rd.Collection) -> rd.Collection:
        left = a.arrange_by("k") if arranged == "left" else a.key_by("k")
        return left.join(b.arrange_by("k") if arranged == "right" else b.key_by("k"), how)

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        for epoch, got in enumerate(given(build, one, other, seed=seed, form=form)):
            want = _joined(how, tables(one)[epoch], tables(other)[epoch])
            assert got == want, f"{how}, seed {seed}, epoch {epoch}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arranged", [False, True])
@pytest.mark.parametrize("how", ["left", "full"])
def test_what_is_not_there_is_null_in_expressions(how: Any, arranged: bool, form: Form) -> None:
    """Also in the first epochs, in which nothing of the other side has come: its type is not known yet."""

    def build(a: rd.Collection, b: rd.Collection) -> rd.Collection:
        met = a.key_by("k").join(b.arrange_by("k") if arranged else b.key_by("k"), how)
        return met.select({"k": rd.col("0"), "v": rd.col("1", "0", "v"), "w": rd.col("1", "1", "v") * 2})

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), [[], [], *changes_of(chance)][:8]
        for epoch, got in enumerate(given(build, one, other, seed=seed, form=form)):
            left, right = tables(one)[epoch], tables(other)[epoch]
            found = asked(f"select coalesce(a.k, b.k), a.v, b.v * 2 from a {how} join b on a.k = b.k", a=left, b=right)
            assert got == Counter(Row(k=k, v=v, w=w) for k, v, w in found), f"seed {seed}, epoch {epoch}"
