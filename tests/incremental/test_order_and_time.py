"""Numbers, ranks, neighbours, joins in time and windows give after each epoch what is computed anew: by DuckDB, or by hand."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import Kept, Shape, history
from tests.incremental.test_relational import Row, asked, changes_of, given, tables
from tests.thorough import amount

SEEDS = range(amount(each_run=3, soak=100))
Keyed = rd.KeyedCollection


def value(row: Row) -> Any:
    return row[1]


ORDERED: dict[str, tuple[Callable[[Keyed], rd.Collection], str]] = {
    "row_number": (lambda keyed: keyed.row_number(value), "row_number() over (partition by k order by v nulls last)"),
    "row_number down": (
        lambda keyed: keyed.row_number(value, descending=True),
        "row_number() over (partition by k order by v desc nulls last)",
    ),
    "rank": (lambda keyed: keyed.rank(value), "rank() over (partition by k order by v nulls last)"),
    "dense_rank": (
        lambda keyed: keyed.rank(value, dense=True, descending=True),
        "dense_rank() over (partition by k order by v desc nulls last)",
    ),
    "lag": (lambda keyed: keyed.lag(value), "lag(v) over (partition by k order by v nulls last)"),
    "lag 2": (lambda keyed: keyed.lag(value, 2, default=(0, -1)), "lag(v, 2, -1) over (partition by k order by v nulls last)"),
    "lead": (lambda keyed: keyed.lead(value, descending=True), "lead(v) over (partition by k order by v desc nulls last)"),
}


@pytest.mark.parametrize("name", ORDERED)
def test_order_within_a_key_as_sql(name: str) -> None:
    build, sql = ORDERED[name]
    for seed in SEEDS:
        changes = changes_of(random.Random(seed))
        got = given(lambda a: build(a.key_by(lambda r: r[0])), changes, seed=seed)
        for epoch, rows in enumerate(tables(changes)):
            want = Counter((k, ((k, v), n)) for k, v, n in asked(f"select k, v, {sql} from a", a=rows))
            found: Counter[Any] = Counter()
            for (key, (record, result)), weight in got[epoch].items():
                found[key, (record, result[1] if isinstance(result, tuple) else result)] += weight
            assert found == want, f"{name}, seed {seed}, epoch {epoch}"


def test_several_fields_and_all_types_are_put_in_order_with_nulls_last() -> None:
    types: list[list[Any]] = [
        [None, 1, 2.5, Decimal("1.5"), False],
        [None, "a", "Z", ""],
        [None, dt.date(2026, 1, 2), dt.date(1969, 1, 1)],
        [None, dt.datetime(2026, 1, 2, 3), dt.datetime(2026, 1, 2, 2)],
    ]
    for places in types:
        flow = rd.Dataflow("typed")
        rows = flow.from_items([{"a": place, "b": b} for place in places for b in (None, 1, 0)]).as_collection()
        rows.key_by(lambda row: 0).row_number(["a", "b"]).collect("out")
        numbered = sorted((n, row["a"], row["b"]) for _, ((_, (row, n)), _) in flow.run(runtime="local", parallelism=2)["out"])
        want = [(place, b) for place in [*sorted(filter(lambda p: p is not None, places)), None] for b in (0, 1, None)]
        assert [(a, b) for _, a, b in numbered] == want
    flow = rd.Dataflow("mixed")
    flow.from_items([1, "a"]).as_collection().key_by(lambda r: 0).rank(lambda r: r).collect("out")
    with pytest.raises(rd.DataflowError, match=r"rank: order_by gave \[.*\], which cannot be compared .*None comes last"):
        flow.run(runtime="local")


AS_OF = ["backward", "forward", "nearest"]


@pytest.mark.parametrize("direction", AS_OF)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tolerance", [None, 1])
def test_as_of_joins_of_records_that_come_and_go(direction: Any, exact: bool, tolerance: Any) -> None:
    def whole(left: list[Row], right: list[Row]) -> Counter[Any]:
        out: Counter[Any] = Counter()
        for one in left:
            some = [r for r in right if r[0] == one[0] and r[0] is not None and None not in (r[1], one[1])]
            some = [r for r in some if (exact or r[1] != one[1]) and (tolerance is None or abs(r[1] - one[1]) <= tolerance)]
            some = [r for r in some if direction == "nearest" or (r[1] <= one[1] if direction == "backward" else r[1] >= one[1])]
            best = min(some, key=lambda r: (abs(r[1] - one[1]), r[1]), default=None)
            out[one[0], (one, best)] += 1
        return out

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        how: Any = "left" if seed % 2 else "inner"
        options = {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact, "how": how}
        got = given(lambda a, b, o=options: a.key_by(lambda r: r[0]).join_asof(b.key_by(lambda r: r[0]), value, **o), one, other, seed=seed)
        for epoch, (left, right) in enumerate(zip(tables(one), tables(other), strict=True)):
            want = whole(left, right)
            if how == "inner":
                want = Counter({pair: n for pair, n in want.items() if pair[1][1] is not None})
            assert got[epoch] == want, f"seed {seed}, epoch {epoch}"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_interval_joins_as_sql(how: Any) -> None:
    within = rd.windows.between(-1, 2)
    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        got = given(
            lambda a, b: a.key_by(lambda r: r[0]).join_interval(b.key_by(lambda r: r[0]), within, value, how=how), one, other, seed=seed
        )
        pairs = how not in ("semi", "anti")
        what = "a.k, a.v, b.k, b.v, a.rowid is null, b.rowid is null" if pairs else "a.k, a.v"
        on = "a.k = b.k and b.v - a.v between -1 and 2"
        for epoch, (left, right) in enumerate(zip(tables(one), tables(other), strict=True)):
            want: Counter[Any] = Counter()
            for row in asked(f"select {what} from a {how if how != 'full' else 'full outer'} join b on {on}", a=left, b=right):
                if not pairs:
                    want[row[0], row] += 1
                    continue
                mine, theirs = (None if row[4] else row[:2]), (None if row[5] else row[2:4])
                want[(mine or theirs)[0], (mine, theirs)] += 1  # type: ignore[index]
            assert got[epoch] == want, f"{how}, seed {seed}, epoch {epoch}"


def sessions(times: list[Any], gap: Any) -> dict[Any, tuple[Any, Any]]:
    """The session of each time."""
    out: dict[Any, tuple[Any, Any]] = {}
    some: list[Any] = []
    for at in [*sorted(set(times)), None]:
        if some and (at is None or at - some[-1] > gap):
            out |= dict.fromkeys(some, (some[0], some[-1] + gap))
            some = []
        some.append(at)
    return out


def start_2026(n: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1) + dt.timedelta(minutes=n)


@pytest.mark.parametrize("as_time", [int, Decimal, start_2026], ids=["int", "decimal", "datetime"])
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_a_record_that_is_corrected_or_goes_corrects_its_windows(kind: str, as_time: Callable[[int], Any]) -> None:
    def length(n: int) -> Any:
        return dt.timedelta(minutes=n) if as_time is start_2026 else n

    made: Any = {"tumbling": lambda: rd.windows.tumbling(length(3)), "sliding": lambda: rd.windows.sliding(length(4), length(2))}
    windows = made.get(kind, lambda: rd.windows.session(length(2)))()

    def at(row: Row) -> Any:
        return None if row[1] is None else as_time(row[1])

    for seed in SEEDS:
        changes = changes_of(random.Random(seed), epochs=10)
        got = given(lambda a: a.key_by(lambda r: r[0]).window(windows, at).count(), changes, seed=seed)
        for epoch, rows in enumerate(tables(changes)):
            by_key: dict[Any, list[Any]] = defaultdict(list)
            for row in rows:
                if row[1] is not None:
                    by_key[row[0]].append(at(row))
            counts: Counter[Any] = Counter()
            for key, times in by_key.items():
                in_session = sessions(times, length(2))
                for time in times:
                    for window in [in_session[time]] if kind == "session" else windows.assign(time):
                        counts[key, tuple(window)] += 1
            found = {(key, tuple(window)): n for (key, window), n in (pair for pair in (pair for pair in got[epoch]))}
            assert found == dict(counts), f"seed {seed}, epoch {epoch}"
            assert set(got[epoch].values()) <= {1}


def _numbers(edges: rd.Collection) -> rd.Collection:
    return edges.key_by(lambda edge: edge[0]).row_number(lambda edge: edge[1])


def _numbered(there: Counter[Any]) -> dict[Any, int]:
    out: Counter[Any] = Counter()
    by_source: dict[int, list[Any]] = defaultdict(list)
    for edge in sorted(there.elements()):
        by_source[edge[0]].append(edge)
        out[edge[0], (edge, len(by_source[edge[0]]))] += 1
    return dict(out)


def _in_sessions(edges: rd.Collection) -> rd.Collection:
    return edges.key_by(lambda edge: edge[0]).window(rd.windows.session(2), lambda edge: edge[1]).count()


def _sessions_of(there: Counter[Any]) -> dict[Any, int]:
    out: Counter[Any] = Counter()
    for source in {edge[0] for edge in there}:
        mine = {edge[1]: n for edge, n in there.items() if edge[0] == source}
        found = sessions(list(mine), 2)
        for at, n in mine.items():
            out[source, found[at]] += n
    return dict.fromkeys((((source, window), n) for (source, window), n in out.items()), 1)


@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=200)))
@pytest.mark.parametrize(
    "program",
    [Kept("numbers", _numbers, _numbered, Shape(6, 9, 8)), Kept("sessions", _in_sessions, _sessions_of, Shape(8, 9, 8))],
    ids=lambda one: one.name,
)
def test_neither_failures_nor_changes_of_layout_change_tables(program: Kept, seed: int, tmp_path: Path) -> None:
    run_disturbed(program, history(program.shape, seed), seed, tmp_path)


def test_what_is_given_is_checked() -> None:
    flow = rd.Dataflow("refused")
    keyed = flow.from_items([(1, 2)]).as_collection().key_by(lambda r: r[0])
    with pytest.raises(rd.DataflowError, match=r"window\(\) was given 3: give rd.windows.tumbling"):
        keyed.window(3, value)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"join_interval\(\) was given within=3: give rd.windows.between"):
        keyed.join_interval(keyed, 3, value)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"join_asof\(\) was given .*: give a collection that has keys"):
        keyed.join_asof(3, value)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="direction"):
        keyed.join_asof(keyed, value, direction="sideways")  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="lag: n"):
        keyed.lag(value, -1)
