"""Random programs with operators that forget, as collections and by hand.

``python -m tests.incremental.laws --late --runs 1000``. What such an operator gives depends on how the changes are cut into epochs: a
change is late by what had come when the epoch before ended. So each operator is computed epoch by epoch, from the changes of what it is
given, and of these from those that are on time (docs/decisions/109).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

import rayad as rd
from rayad.incremental.ranking import in_contents
from rayad.incremental.records import Row
from tests.incremental.programs import History

Program = tuple[Any, ...]
"""An operator and its parts; leaves are ``("records", side)``."""
Record = tuple[int, Any, Any, int]
Table = Counter[Any]
FIELDS = ("side", "key", "at", "n")
SCHEMA = pa.schema({"epoch": pa.int64(), "side": pa.int64(), "key": pa.string(), "at": pa.int64(), "n": pa.int64(), "diff": pa.int64()})
NUMBERS = 5


# -- records of what operators give ----------------------------------------------------------------------------------------
def one_of(side: int, key: Any, at: Any, n: int) -> dict[str, Any]:
    return dict(zip(FIELDS, (side, key, at, n % NUMBERS), strict=True))


def of_pair(result: Any) -> dict[str, Any]:
    """The later event time, and a number that both have a part in."""
    key, (left, right) = result
    times = [some["at"] for some in (left, right) if some is not None and some["at"] is not None]
    n = sum(times_n * (some["n"] + 1) for times_n, some in ((1, left), (3, right)) if some is not None)
    return one_of((left or right)["side"], key, max(times, default=None), n)


def of_window(result: Any) -> dict[str, Any]:
    (key, window), total = result
    return one_of(1, key, window.end - 1, total)


def record_of(result: Any) -> dict[str, Any]:
    return dict(result[1])


def later(record: Any) -> dict[str, Any]:
    at = record["at"]
    return one_of(record["side"], record["key"], None if at is None else at + record["n"] % 2, record["n"] + 1)


# -- as collections --------------------------------------------------------------------------------------------------------
def built(program: Program, records: rd.Collection) -> rd.Collection:
    """The program, over records with fields."""
    what, *rest = program
    if what == "records":
        return records if rest[0] is None else records.filter(rd.col("side") == rest[0])
    *how, parts = rest
    one, *others = (built(part, records) for part in parts)
    if what == "later":
        return one.map(later)
    if what == "filter":
        return one.filter(rd.col("n") > 0)
    if what == "distinct":
        return one.distinct()
    if what == "concat":
        return one.concat(*others)
    if what == "except":
        return one.except_(*others)
    if what in ("tumbling", "sliding", "session"):
        size, lateness = how
        window = {"tumbling": rd.windows.tumbling, "session": rd.windows.session}.get(
            what, lambda size: rd.windows.sliding(size, size // 2)
        )
        timed = one.filter(rd.col("at").is_valid())
        return timed.key_by("key").window(window(size), "at", lateness=lateness).sum("n").map(of_window)
    left, right = one.key_by("key"), others[0].key_by("key")
    if what == "interval":
        lower, upper, kind, lateness = how
        met = left.join_interval(right, rd.windows.between(lower, upper), "at", how=kind, lateness=lateness)
    else:
        direction, tolerance, exact, kind, lateness = how
        rule = {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact}
        met = left.join_asof(right, "at", how=kind, lateness=lateness, **rule)
    return met.map(record_of if kind in ("semi", "anti") else of_pair)


# -- by hand ---------------------------------------------------------------------------------------------------------------
def tables(program: Program, given: Sequence[Table]) -> list[Table]:
    """What the program has after each epoch, of what there is after each."""
    what, *rest = program
    if what == "records":
        return [Counter({r: w for r, w in table.items() if rest[0] in (None, r[0])}) for table in given]
    *how, parts = rest
    of_parts = [tables(part, given) for part in parts]
    if what in ("tumbling", "sliding", "session"):
        timed = [[Counter({r: w for r, w in table.items() if r[2] is not None}) for table in of_parts[0]]]
        size, lateness = how
        kept = on_time(timed, lateness) if what == "session" else in_open_windows(timed[0], what, size, lateness)
        return [sums(table, what, size) for (table,) in kept]
    if what == "interval":
        return [intervals(*both, *how[:3]) for both in on_time(of_parts, how[-1])]
    if what == "asof":
        return [nearest(*both, *how[:4]) for both in on_time(of_parts, how[-1])]
    return [plainly(what, some) for some in zip(*of_parts, strict=True)]


def plainly(what: str, parts: Sequence[Table]) -> Table:
    one, *others = parts
    if what == "later":
        return _counted(later(_fields(r)) for r in one.elements())
    if what == "filter":
        return Counter({r: w for r, w in one.items() if r[3] > 0})
    if what == "distinct":
        return Counter(set(one))
    return one + others[0] if what == "concat" else Counter(set(one) - set(others[0]))


def on_time(parts: Sequence[Sequence[Table]], lateness: int) -> list[list[Table]]:
    """Of each part, after each epoch, what the changes on time come to."""
    largest: dict[int, int] = {}
    there: list[Table] = [Counter() for _ in parts]
    limit, out = None, []
    for epoch in range(len(parts[0])):
        for side, part in enumerate(parts):
            for record, weight in _changes(part, epoch):
                has_time = record[2] is not None and (len(parts) == 1 or record[1] is not None)
                if has_time and limit is not None and record[2] < limit:
                    continue
                there[side][record] += weight
                if has_time and weight > 0:
                    largest[side] = max(record[2], largest.get(side, record[2]))
        if len(largest) == len(parts):
            limit = min(largest.values()) - lateness
        out.append([Counter(dict(table)) for table in there])
    return out


def in_open_windows(part: Sequence[Table], what: str, size: int, lateness: int) -> list[list[Table]]:
    """After each epoch the records, each with a window of its, whose changes came while the window was kept."""
    largest, there, out = None, Counter[Any](), []
    for epoch in range(len(part)):
        limit = None if largest is None else largest - lateness
        for record, weight in _changes(part, epoch):
            for window in windows_of(record[2], what, size):
                if limit is None or window.end > limit:
                    there[record, window] += weight
            if weight > 0:
                largest = record[2] if largest is None else max(largest, record[2])
        out.append([Counter(dict(there))])
    return out


def windows_of(at: int, what: str, size: int) -> list[rd.Window]:
    slide = size if what == "tumbling" else size // 2
    first = at // slide * slide
    return [rd.Window(first - back, first - back + size) for back in range(0, size, slide) if first - back + size > at]


def sums(table: Table, what: str, size: int) -> Table:
    """Of windows and sessions."""
    of_window: dict[Any, int] = defaultdict(int)
    if what != "session":
        for (record, window), weight in table.items():
            if weight:
                of_window[record[1], window] += weight * record[3]
        return _counted(of_window_of(key, window, total) for (key, window), total in of_window.items())
    out, by_key = [], defaultdict[Any, list[Record]](list)
    for record in (+table).elements():
        by_key[record[1]].append(record)
    for key, records in by_key.items():
        some: list[Record] = []
        for record in [*sorted(records, key=lambda record: record[2]), None]:
            if some and (record is None or record[2] - some[-1][2] > size):
                out.append(of_window_of(key, rd.Window(some[0][2], some[-1][2] + size), sum(each[3] for each in some)))
                some = []
            some += [] if record is None else [record]
    return _counted(out)


def of_window_of(key: Any, window: rd.Window, total: int) -> dict[str, Any]:
    return of_window(((key, window), total))


def intervals(left: Table, right: Table, lower: int, upper: int, how: str) -> Table:
    lefts, rights = (list((+table).elements()) for table in (left, right))
    pairs = [(a, b) for a in lefts for b in rights if a[1] == b[1] and None not in (a[1], a[2], b[2]) and lower <= b[2] - a[2] <= upper]
    met, met_right = {a for a, _ in pairs}, {b for _, b in pairs}
    if how in ("semi", "anti"):
        return Counter(a for a in lefts if (a in met) == (how == "semi"))
    out: list[tuple[Any, Any]] = list(pairs)
    out += [(a, None) for a in lefts if how in ("left", "full") and a not in met]
    out += [(None, b) for b in rights if how in ("right", "full") and b not in met_right]
    return _counted(_pair(a, b) for a, b in out)


def nearest(left: Table, right: Table, direction: str, tolerance: Any, exact: bool, how: str) -> Table:
    lefts = list((+left).elements())
    rights = sorted(
        (+right).elements(), key=lambda r: in_contents(Row(**_fields(r))), reverse=True
    )  # of equal times the one that comes last
    out = []
    for one in lefts:
        some = [r for r in rights if r[1] == one[1] and None not in (r[1], r[2], one[2])]
        some = [r for r in some if (exact or r[2] != one[2]) and (tolerance is None or abs(r[2] - one[2]) <= tolerance)]
        some = [r for r in some if direction == "nearest" or (r[2] <= one[2] if direction == "backward" else r[2] >= one[2])]
        best = min(some, key=lambda r: (abs(r[2] - one[2]), r[2]), default=None)
        if best is not None or how == "left":
            out.append(_pair(one, best))
    return _counted(out)


def _pair(left: Record | None, right: Record | None) -> dict[str, Any]:
    key = (left or right or (0, None))[1]
    return of_pair((key, tuple(None if some is None else _fields(some) for some in (left, right))))


def _fields(record: Record) -> dict[str, Any]:
    return dict(zip(FIELDS, record, strict=True))


def _counted(records: Any) -> Table:
    return Counter(tuple(record[name] for name in FIELDS) for record in records)


def _changes(part: Sequence[Table], epoch: int) -> list[tuple[Record, int]]:
    before: Table = part[epoch - 1] if epoch else Counter()
    now = part[epoch]
    return [(record, now[record] - before[record]) for record in {*now, *before} if now[record] != before[record]]


# -- drawn at random -------------------------------------------------------------------------------------------------------
def drawn(chance: random.Random) -> Program:
    """A program, of which the last operators but one forget."""
    last = _forgetting(chance, 2)
    return (chance.choice(("later", "filter", "distinct")), (last,)) if chance.random() < 0.3 else last


def _forgetting(chance: random.Random, depth: int) -> Program:
    lateness = chance.choice((2, 5, 9))
    parts: Callable[[int], tuple[Program, ...]] = lambda count: tuple(_part(chance, depth - 1, number) for number in range(count))  # noqa: E731
    what = chance.random()
    if what < 0.35:
        return chance.choice(("tumbling", "sliding", "session")), chance.choice((2, 4, 6)), lateness, parts(1)
    if what < 0.65:
        lower = chance.randint(-6, 3)
        how = chance.choice(("inner", "left", "right", "full", "semi", "anti"))
        return "interval", lower, lower + chance.randint(0, 8), how, lateness, parts(2)
    direction, tolerance = chance.choice(("backward", "forward", "nearest")), chance.choice((None, 2, 7))
    return "asof", direction, tolerance, chance.random() < 0.5, chance.choice(("inner", "left")), lateness, parts(2)


def _part(chance: random.Random, depth: int, side: int) -> Program:
    what = chance.random()
    if what < 0.35 or depth < 0:
        return "records", side if chance.random() < 0.8 else None
    if what < 0.6 and depth > 0:
        return _forgetting(chance, depth)
    if what < 0.8:
        return chance.choice(("later", "filter", "distinct")), (_part(chance, depth - 1, side),)
    return chance.choice(("concat", "except")), (_part(chance, depth - 1, side), _part(chance, depth - 1, 1 - side))


class Late:
    """A program, as :func:`run_disturbed` runs it.

    Args:
        in_columns: how many epochs come as columns; the others as rows.
    """

    def __init__(self, program: Program, in_columns: int) -> None:
        self.program = program
        self.in_columns = in_columns

    def flow(self, changes: History) -> rd.Dataflow:
        """The dataflow of a history."""
        flow = rd.Dataflow("late")
        epochs = [[{**_fields(record), "diff": weight} for record, weight in some] for some in changes]
        table = [{"epoch": epoch, **row} for epoch, some in enumerate(epochs[: self.in_columns]) for row in some]
        stream = flow.from_arrow(pa.Table.from_pylist(table, SCHEMA), epoch="epoch", batch_rows=3).select(*FIELDS, "diff")
        if self.in_columns < len(epochs):
            stream = stream.union(flow.from_epochs([[] for _ in range(self.in_columns)] + epochs[self.in_columns :]))
        built(self.program, stream.as_collection(diff="diff")).collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """Raise AssertionError unless the table is right after each epoch."""
        by_epoch: dict[int, Table] = defaultdict(Counter)
        for time, (record, weight) in collected:
            by_epoch[time.epoch][tuple(record[name] for name in FIELDS)] += weight
        there, given = Counter[Any](), []
        for some in changes:
            for record, weight in some:
                there[record] += weight
            given.append(+there)
        table = Counter[Any]()
        for epoch, want in enumerate(tables(self.program, given)):
            table.update(by_epoch.pop(epoch, Counter()))
            got = {record: weight for record, weight in table.items() if weight}
            want_now = {record: weight for record, weight in want.items() if weight}
            assert got == want_now, f"{self.program}, epoch {epoch}: it gives {got}, and must give {want_now}"
        assert not by_epoch, f"changes in epochs {sorted(by_epoch)}, which have no input"


__all__ = ["Late", "drawn", "tables"]
