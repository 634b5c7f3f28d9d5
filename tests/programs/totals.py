"""Programs over epochs without loops: stateless operators, running totals as rows and as columns, distribution, joins."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program

LINES = [["to be or not to be", "that is"], [], ["the question to be"], ["be"]]

ROWS: list[list[dict[str, Any]]] = [
    [{"k": "a", "g": 1, "v": 3, "x": 0.5}, {"k": "b", "g": 1, "v": -2, "x": None}, {"k": "a", "g": 2, "v": None, "x": 1.5}],
    [{"k": None, "g": 1, "v": 7, "x": -0.25}, {"k": "a", "g": 1, "v": 4, "x": 8.0}],
    [],
    [{"k": "b", "g": None, "v": None, "x": None}, {"k": None, "g": 1, "v": 1, "x": 2.0}, {"k": "c", "g": 2, "v": None, "x": None}],
    [{"k": f"k{i % 7}", "g": i % 3, "v": i, "x": i / 4} for i in range(60)],
]
SCHEMA = pa.schema([("k", pa.string()), ("g", pa.int64()), ("v", pa.int64()), ("x", pa.float64())])


def first(record: Any) -> Any:
    return record[0]


def second(record: Any) -> Any:
    return record[1]


def word_count(flow: rd.Dataflow) -> None:
    flow.from_epochs(LINES, parts=2, batch_rows=1).flat_map(str.split).key_by(str).count(name="counts").collect("counts")


def word_count_expected() -> Expected:
    return {"counts": m.collected(m.flat_mapped(m.epochs(LINES), str.split), str, str, len)}


def stateless(flow: rd.Dataflow) -> None:
    numbers = flow.from_epochs([range(10), range(5), [-1]], parts=3, batch_rows=2)
    seen: list[int] = []
    numbers.filter(lambda n: n % 2 == 0).map(lambda n: n * 10).inspect(seen.append).flat_map(lambda n: [n] * 2).map_batches(
        lambda batch: [n + 1 for n in batch]
    ).collect("out")


def stateless_expected() -> Expected:
    return {"out": [(t, n * 10 + 1) for t, n in m.epochs([range(10), range(5), [-1]]) if n % 2 == 0 for _ in range(2)]}


# -- running totals, the same from rows and from columns -----------------------------------------------------------------

KEYS: dict[str, Any] = {"string": "k", "integer": "g", "composite": ["k", "g"]}


def table_batches() -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in ROWS]


def row_key(key: Any) -> Any:
    return (lambda row: row[key]) if isinstance(key, str) else (lambda row: tuple(row[k] for k in key))


def totals(flow: rd.Dataflow, *, key: Any, columns: bool) -> None:
    source = flow.from_epochs(table_batches() if columns else ROWS, parts=2, batch_rows=16)
    keyed = source.key_by(key)
    keyed.count().collect("count")
    for how in ("sum", "min", "max", "mean"):
        getattr(keyed, how)("v").collect(f"{how}-v")
        getattr(keyed, how)("x").collect(f"{how}-x")
    keyed.aggregate(
        {"n": "count", "total": ("sum", "v"), "least": ("min", "x"), "most": ("max", "v"), "mean": ("mean", "x")},
    ).collect("several")
    keyed.top_k(2, lambda row: row["v"] if row["v"] is not None else -100).collect("top")
    keyed.distinct("g").collect("distinct")


def _present(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


def _sum(values: list[Any]) -> Any:
    return sum(_present(values)) if _present(values) else None


def _min(values: list[Any]) -> Any:
    return min(_present(values), default=None)


def _max(values: list[Any]) -> Any:
    return max(_present(values), default=None)


def _mean(values: list[Any]) -> Any:
    return sum(_present(values)) / len(_present(values)) if _present(values) else None


def _several(rows: list[Any]) -> dict[str, Any]:
    vs, xs = [r["v"] for r in rows], [r["x"] for r in rows]
    return {"n": len(rows), "total": _sum(vs), "least": _min(xs), "most": _max(vs), "mean": _mean(xs)}


def totals_expected(*, key: Any) -> Expected:
    stream, at = m.epochs(ROWS), row_key(key)
    out = {"count": m.collected(stream, at, at, len)}
    for how, function in (("sum", _sum), ("min", _min), ("max", _max), ("mean", _mean)):
        for column in ("v", "x"):
            out[f"{how}-{column}"] = m.collected(stream, at, lambda row, c=column: row[c], function)  # type: ignore[misc]
    out["several"] = m.collected(stream, at, lambda row: row, _several)
    out["top"] = m.collected(
        stream, at, lambda row: row["v"] if row["v"] is not None else -100, lambda values: sorted(values, reverse=True)[:2]
    )
    out["distinct"] = m.distinct(stream, at, lambda row: row["g"])
    return out


def mixed_totals(flow: rd.Dataflow) -> None:
    """Columns, then rows, then columns: the state changes its form on the way."""
    batches = table_batches()
    source = flow.from_epochs([b if e % 2 == 0 else b.to_pylist() for e, b in enumerate(batches)])
    source.key_by("k").sum("v").collect("sum")
    source.key_by("k").mean("x").collect("mean")


def mixed_totals_expected() -> Expected:
    stream, at = m.epochs(ROWS), row_key("k")
    return {
        "sum": m.collected(stream, at, lambda row: row["v"], _sum),
        "mean": m.collected(stream, at, lambda row: row["x"], _mean),
    }


PAIRS = [[(n % 4, n) for n in range(e, 3 * e + 5)] for e in range(4)]


class Longest(rd.Aggregator):
    """An aggregation of a user, with a list as accumulator that it changes in place."""

    def create(self, value: Any) -> list[Any]:
        return [value]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        left.sort()
        return left


def functions(flow: rd.Dataflow) -> None:
    keyed = flow.from_epochs(PAIRS, parts=2, batch_rows=2).key_by(first)
    keyed.reduce(lambda a, b: a if a[1] > b[1] else b).collect("reduce")
    keyed.fold(list, lambda state, n: (state.append(n), sorted(state))[1], second).collect("fold")
    keyed.fold([0], _append_in_place, second).collect("fold in place")
    keyed.aggregate(Longest(), second).collect("aggregate")
    keyed.top_k(2, by=second).collect("top")
    keyed.stateful_map(lambda total, pair: (total + pair[1], None), 0).collect("silent")
    keyed.stateful_map(lambda count, pair: (count + 1, "third") if count < 2 else (None, "third!"), 0).collect("stateful_map")


def _append_in_place(state: list[int], n: int) -> list[int]:
    state.append(n)
    state.sort()
    return state


def functions_expected() -> Expected:
    stream = m.epochs(PAIRS)
    counted: m.Timed = []
    for key in range(4):
        mine = [item for item in stream if item[1][0] == key]
        counted.extend((t, (key, "third!" if i % 3 == 2 else "third")) for i, (t, _) in enumerate(mine))
    return {
        "reduce": m.collected(stream, first, lambda pair: pair, lambda pairs: max(pairs, key=second)),
        "fold": m.collected(stream, first, second, sorted),
        "fold in place": m.collected(stream, first, second, lambda values: sorted([0, *values])),
        "aggregate": m.collected(stream, first, second, sorted),
        "top": m.collected(stream, first, lambda pair: pair, lambda pairs: sorted(pairs, reverse=True, key=second)[:2]),
        "silent": [],
        "stateful_map": counted,
    }


# -- keys -----------------------------------------------------------------------------------------------------------------

EQUAL_KEYS: list[list[Any]] = [
    [1, True, 1.0, Decimal(1)],
    [0, False, -0.0, 0.0],
    [2, "1", None, b"1"],
    [dt.date(2024, 1, 2), ("a", 1), ("a", True)],
]


def equal_keys(flow: rd.Dataflow) -> None:
    """Keys that are equal in Python are one key, also when one epoch brings rows and the next columns."""
    flow.from_epochs(EQUAL_KEYS, parts=2, batch_rows=1).key_by(lambda k: k).count().map(lambda pair: (_spelt(pair[0]), pair[1])).collect(
        "rows"
    )
    columns = [[{"k": 1}], pa.record_batch({"k": pa.array([1.0, -0.0, 0.0])}), [{"k": True}, {"k": Decimal(0)}]]
    flow.from_epochs(columns).key_by("k").count().map(lambda pair: (_spelt(pair[0]), pair[1])).collect("columns")


def _spelt(key: Any) -> str:
    return str(int(key)) if key in (0, 1, 2) else repr(key) if not isinstance(key, tuple) else "tuple"


def equal_keys_expected() -> Expected:
    rows = m.collected(m.epochs(EQUAL_KEYS), lambda k: k, lambda k: k, len)
    times = [rd.Timestamp(e) for e in range(3)]
    columns = [(times[0], ("1", 1)), (times[1], ("1", 2)), (times[1], ("0", 2)), (times[2], ("1", 3)), (times[2], ("0", 3))]
    return {"rows": [(t, (_spelt(k), n)) for t, (k, n) in rows], "columns": columns}


# -- distribution ------------------------------------------------------------------------------------------------------------

NUMBERS = [list(range(20)), list(range(5)), [], [7]]


class Stamp(rd.Vertex):
    """Says which replica saw a record."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, [(self.replica, self.parallelism, record) for record in batch], time)


def distribution(flow: rd.Dataflow) -> None:
    numbers = flow.from_epochs(NUMBERS, parts=2, batch_rows=1)
    numbers.rebalance().map(lambda n: n).collect("rebalanced")
    numbers.single().vertex(Stamp, name="one").collect("single")
    numbers.broadcast().vertex(Stamp, name="all").collect("broadcast")
    numbers.rebalance().vertex(Stamp, name="some").map(lambda r: r[2]).collect("spread")
    numbers.rebalance().broadcast().single().collect("last wins")
    numbers.rebalance().key_by(lambda n: n % 3).count().collect("keyed")


def check_distribution(result: Any) -> None:
    m.require_same([(t, r[2]) for t, r in result["single"]], m.epochs(NUMBERS), "single")
    assert {r[0] for _, r in result["single"]} == {0}
    parallelism = result["broadcast"][0][1][1]
    for replica in range(parallelism):
        mine = [(t, r[2]) for t, r in result["broadcast"] if r[0] == replica]
        m.require_same(mine, m.epochs(NUMBERS), f"broadcast to replica {replica} of {parallelism}")


def distribution_expected() -> Expected:
    stream = m.epochs(NUMBERS)
    return {
        "rebalanced": stream,
        "spread": stream,
        "last wins": stream,
        "keyed": m.collected(stream, lambda n: n % 3, lambda n: n, len),
    }


TIMED = [[("a", 1), ("b", 2)], [("a", 9)], [("c", 30), ("b", 25)], [("a", 31), ("b", 33)], [("c", 60)], [("a", 61), ("c", 62)]]


def keys_that_end(flow: rd.Dataflow) -> None:
    timed = flow.from_epochs(TIMED, parts=2, batch_rows=1).assign_timestamps(lambda record: record[1])
    counts = timed.key_by(lambda record: record[0]).ttl(10).fold(0, lambda count, record: count + 1)
    counts.collect("out")
    counts.changes().collect("changes")
    counts.latest(every=2).collect("tables")


def keys_that_end_expected() -> Expected:
    counts = [[("a", 1), ("b", 1)], [("a", 2)], [("c", 1), ("b", 2)], [("a", 1), ("b", 3)], [("c", 2)], [("a", 1), ("c", 3)]]
    ended = [[], [], [("a", (2, None))], [], [("b", (3, None)), ("a", (1, None))], []]
    changes = [[(key, (count - 1 or None, count)) for key, count in some] for some in counts]
    tables = [[], [("a", 2), ("b", 1)], [], [("a", 1), ("b", 3), ("c", 1)], [], [("a", 1), ("c", 3)]]
    return {
        "out": m.epochs(counts),
        "changes": m.epochs([[*now, *gone] for now, gone in zip(changes, ended, strict=True)]),
        "tables": m.epochs(tables),
    }


def records_that_end(flow: rd.Dataflow) -> None:
    """A join whose sides live 10 and 5, and distinct: ``c`` is new again 30 later, ``b`` not 8 later."""
    batches = [pa.record_batch({"k": [key for key, _ in some], "t": [at for _, at in some]}) for some in TIMED]
    timed = flow.from_epochs(batches, parts=2, batch_rows=1).assign_timestamps("t").key_by("k")
    left, right = (timed.ttl(after, of="records") for after in (10, 5))
    left.join(right).collect("pairs")
    left.distinct(lambda record: 1).collect("distinct")


def records_that_end_expected() -> Expected:
    records = [(epoch, *record) for epoch, some in enumerate(TIMED) for record in some]
    met = [(a, b) for a in records for b in records if a[1] == b[1] and -5 <= b[2] - a[2] <= 10]
    pairs = [(rd.Timestamp(max(a[0], b[0])), (a[1], tuple({"k": k, "t": at} for _, k, at in (a, b)))) for a, b in met]
    fresh = [[("a", 1), ("b", 1)], [], [("c", 1), ("b", 1)], [("a", 1)], [("c", 1)], [("a", 1)]]
    return {"pairs": pairs, "distinct": m.epochs(fresh)}


class Silence(rd.Process):
    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(context.time + 5)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        if not context.timers:
            context.emit((context.time, context.state))
            context.state = None


def processes(flow: rd.Dataflow) -> None:
    timed = flow.from_epochs(TIMED, parts=2, batch_rows=1).assign_timestamps(lambda record: record[1])
    timed.key_by(lambda record: record[0]).process(Silence).collect("out")


def processes_expected() -> Expected:
    fired = [(1, "a", 6, 1), (1, "b", 7, 1), (2, "a", 14, 1), (3, "b", 30, 1), (4, "c", 35, 1), (4, "a", 36, 1), (4, "b", 38, 1)]
    at_end = [(5, "c", 67, 2), (5, "a", 66, 1)]
    return {"out": [(rd.Timestamp(epoch), (key, (moment, count))) for epoch, key, moment, count in fired + at_end]}


def diamond(flow: rd.Dataflow) -> None:
    numbers = flow.from_epochs(NUMBERS, parts=2, batch_rows=3)
    left, right = numbers.map(lambda n: n * 2), numbers.filter(lambda n: n > 3)
    left.union(right).collect("diamond")
    left.union(right, left, flow.from_items([100])).key_by(lambda n: n).count().collect("counted")
    numbers.union(numbers).collect("twice")


def diamond_expected() -> Expected:
    stream = m.epochs(NUMBERS)
    left, right = m.mapped(stream, lambda n: n * 2), m.filtered(stream, lambda n: n > 3)
    both = left + right + left + m.epochs([[100]])
    return {"diamond": left + right, "counted": m.collected(both, lambda n: n, lambda n: n, len), "twice": stream + stream}


# -- joins ----------------------------------------------------------------------------------------------------------------------

LEFT = [[(1, "a"), (2, "b")], [(1, "c")], [], [(3, "d"), (2, "e")]]
RIGHT = [[(2, "x")], [(1, "y"), (1, "y")], [(3, "z")], [], [(2, "w")]]


def join(flow: rd.Dataflow) -> None:
    left, right = flow.from_epochs(LEFT, parts=2), flow.from_epochs(RIGHT, batch_rows=1)
    left.key_by(first).join(right.key_by(first), name="pairs").collect("join")
    left.join(left, on=first).collect("self")
    left.join(right.map(lambda pair: (pair[1], pair[0])), on=first, right_on=second).collect("other key")


def join_expected() -> Expected:
    left, right = m.epochs(LEFT), m.epochs(RIGHT)
    return {
        "join": m.joined(left, right, first, first),
        "self": m.joined(left, left, first, first),
        "other key": m.joined(left, m.mapped(right, lambda pair: (pair[1], pair[0])), first, second),
    }


def bare(flow: rd.Dataflow) -> None:
    """A sink on a source, a source that nobody reads, empty sources, epochs without records."""
    flow.from_items([1, 2]).collect("source")
    flow.from_items([3], name="unread")
    flow.from_epochs([], name="no epochs").collect("nothing")
    flow.from_epochs([[], [], [5], []], name="gaps").key_by(lambda n: n).count().collect("gaps counted")
    flow.from_items([], name="empty").key_by(lambda n: n).count().collect("empty counted")


def bare_expected() -> Expected:
    return {"source": m.epochs([[1, 2]]), "nothing": [], "gaps counted": [(rd.Timestamp(2), (5, 1))], "empty counted": []}


PROGRAMS = [
    Program("word-count", word_count, word_count_expected),
    Program("stateless", stateless, stateless_expected),
    *(
        Program(f"totals-{name}-{form}", partial(totals, key=key, columns=form == "columns"), partial(totals_expected, key=key))
        for name, key in KEYS.items()
        for form in ("rows", "columns")
    ),
    Program("totals-mixed", mixed_totals, mixed_totals_expected),
    Program("functions", functions, functions_expected),
    Program("equal-keys", equal_keys, equal_keys_expected),
    Program("distribution", distribution, distribution_expected, check_distribution),
    Program("diamond", diamond, diamond_expected),
    Program("keys-that-end", keys_that_end, keys_that_end_expected),
    Program("records-that-end", records_that_end, records_that_end_expected),
    Program("processes", processes, processes_expected),
    Program("join", join, join_expected),
    Program("bare", bare, bare_expected),
]
