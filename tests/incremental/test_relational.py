"""Joins, aggregates and set operations give after each epoch what DuckDB gives for the tables of that moment, nulls among them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import duckdb
import pytest

import rayad as rd
from rayad.incremental.joins.kinds import HOWS
from rayad.incremental.records import as_record
from tests.incremental import programs
from tests.incremental.programs import History
from tests.thorough import amount

Row = tuple[Any, Any]
SEEDS = range(amount(each_run=3, soak=100))


def changes_of(chance: random.Random, epochs: int = 8) -> History:
    """Rows (k, v) that come and go."""
    there: list[Row] = []
    out: History = []
    for _ in range(epochs):
        some: list[tuple[Any, int]] = []
        for _ in range(chance.randrange(5)):
            row = chance.choice([None, 1, 2, 3]), chance.choice([None, 1, 2, 5])
            there.append(row)
            some.append((row, 1))
        some += [(there.pop(chance.randrange(len(there))), -1) for _ in range(min(len(there), chance.randrange(4)))]
        out.append(some)
    return out


def tables(history: History) -> list[list[Row]]:
    """The rows after each epoch."""
    return [list(table.elements()) for table in programs.tables(history)]


def given(build: Callable[..., rd.Collection], *histories: History, seed: int = 0) -> list[Counter[Any]]:
    """The table of a collection after each epoch."""
    flow = rd.Dataflow("relational")
    build(*(rd.Collection(flow.from_epochs(history)) for history in histories)).collect("out")
    result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
    table: Counter[Any] = Counter()
    out = []
    for epoch in range(len(histories[0])):
        for time, (record, weight) in result:
            if time.epoch == epoch:
                table[record] += weight
        assert min(table.values(), default=0) >= 0, table
        out.append(+table)
    return out


def asked(query: str, **at: list[Row]) -> list[tuple[Any, ...]]:
    """DuckDB's answer."""
    return _asked(query, tuple((name, tuple(rows)) for name, rows in at.items()))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Made once: the threads of a new one for each question took more than all dataflows."""
    return duckdb.connect(config={"threads": 1})


@lru_cache(maxsize=10_000)
def _asked(query: str, at: tuple[tuple[str, tuple[Row, ...]], ...]) -> list[tuple[Any, ...]]:
    base = _database()
    for name, rows in at:
        base.execute(f"create or replace table {name} (k int, v int)")
        if rows:
            base.execute(f"insert into {name} values {', '.join(['(?, ?)'] * len(rows))}", [value for row in rows for value in row])
    return base.execute(query).fetchall()


@pytest.mark.parametrize("how", HOWS)
def test_joins(how: Any) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        got = given(lambda a, b: a.key_by(lambda r: r[0]).join(b.key_by(lambda r: r[0]), how), one, other, seed=seed)
        pairs = how not in ("semi", "anti")
        what = "a.k, a.v, b.k, b.v, a.rowid is null, b.rowid is null" if pairs else "a.k, a.v"
        for epoch, (left, right) in enumerate(zip(tables(one), tables(other), strict=True)):
            rows = asked(f"select {what} from a {how if how != 'full' else 'full outer'} join b on a.k = b.k", a=left, b=right)
            want: Counter[Any] = Counter()
            for row in rows:
                if not pairs:
                    want[row[0], row] += 1
                    continue
                mine, theirs = (None if row[4] else row[:2]), (None if row[5] else row[2:4])
                want[(mine or theirs)[0], (mine, theirs)] += 1  # type: ignore[index]
            assert got[epoch] == want, f"{how}, seed {seed}, epoch {epoch}"


AGGREGATES: dict[str, tuple[Callable[[rd.KeyedCollection], rd.Collection], str]] = {
    "count": (lambda keyed: keyed.count(), "count(*)"),
    "sum": (lambda keyed: keyed.sum(lambda row: row[1]), "sum(v)::int"),
    "mean": (lambda keyed: keyed.mean(lambda row: row[1]), "avg(v)"),
    "min": (lambda keyed: keyed.min(lambda row: row[1]), "min(v)"),
    "max": (lambda keyed: keyed.max(lambda row: row[1]), "max(v)"),
    "several sums": (
        lambda keyed: keyed.aggregate({"n": "count", "s": ("sum", lambda row: row[1]), "m": ("mean", lambda row: row[1])}),
        "struct_pack(n := count(*), s := sum(v)::int, m := avg(v))",
    ),
    "several": (
        lambda keyed: keyed.aggregate(
            {"n": "count", "s": ("sum", lambda row: row[1]), "least": ("min", lambda row: row[1]), "most": ("max", lambda row: row[1])}
        ),
        "struct_pack(n := count(*), s := sum(v)::int, least := min(v), most := max(v))",
    ),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates(name: str) -> None:
    build, sql = AGGREGATES[name]
    for seed in SEEDS:
        history = changes_of(random.Random(seed))
        got = given(lambda a: build(a.key_by(lambda r: r[0])), history, seed=seed)
        for epoch, rows in enumerate(tables(history)):
            want = Counter((k, as_record(v)) for k, v in asked(f"select k, {sql} from a group by k", a=rows))
            assert got[epoch] == want, f"{name}, seed {seed}, epoch {epoch}"


def test_top_k() -> None:
    for seed in SEEDS:
        history = [[((k or 0, v or 0), w) for (k, v), w in some] for some in changes_of(random.Random(seed))]
        got = given(lambda a: a.key_by(lambda r: r[0]).top_k(2, lambda r: r[1]), history, seed=seed)
        for epoch, rows in enumerate(tables(history)):
            ranked = "select k, v, row_number() over (partition by k order by v desc) as place from a"
            want = Counter((k, (k, v)) for k, v, _ in asked(f"select * from ({ranked}) where place <= 2", a=rows))
            assert got[epoch] == want, f"seed {seed}, epoch {epoch}"


SETS: dict[str, tuple[Callable[[rd.Collection, rd.Collection], rd.Collection], str]] = {
    "intersect": (lambda a, b: a.intersect(b), "select * from a intersect select * from b"),
    "except": (lambda a, b: a.except_(b), "select * from a except select * from b"),
    "union": (lambda a, b: a.concat(b).distinct(), "select * from a union select * from b"),
    "union all": (lambda a, b: a.concat(b), "select * from a union all select * from b"),
}


@pytest.mark.parametrize("name", SETS)
def test_sets(name: str) -> None:
    build, sql = SETS[name]
    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        got = given(build, one, other, seed=seed)
        for epoch, (left, right) in enumerate(zip(tables(one), tables(other), strict=True)):
            assert got[epoch] == Counter(asked(sql, a=left, b=right)), f"{name}, seed {seed}, epoch {epoch}"


def test_threshold_and_reduce() -> None:
    history: History = [[("a", 1), ("a", 1), ("b", 1)], [("a", 1)], [("a", -1), ("a", -1)]]
    got = given(lambda a: a.threshold(lambda record, count: count // 2), history)
    assert got == [Counter(a=1), Counter(a=1), Counter()]
    got = given(lambda a: a.key_by(len).reduce(lambda key, values: ["".join(sorted(values))]), history)
    assert got == [Counter({(1, "aab"): 1}), Counter({(1, "aaab"): 1}), Counter({(1, "ab"): 1})]
