"""What windows, sessions and joins by event time must give with a lateness, computed from scratch.

First the changes that are not late are found (:func:`on_time`, :func:`of_windows`); then what they give is computed anew of all of them.
Event times are numbers, or moments with durations between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import rayad as rd
from rayad.dataflow.windows import AsOf, Sliding, Tumbling
from tests.incremental.programs import History

Record = tuple[int, Any, Any, int]
"""Side, key, event time, and a number that tells records apart."""


def net(some: list[tuple[Any, int]]) -> Counter[Any]:
    """The changes of an epoch by record: what comes and goes within one has never been there."""
    found: Counter[Any] = Counter()
    for record, weight in some:
        found[record] += weight
    return found


# -- what is late ----------------------------------------------------------------------------------------------------------
def on_time(changes: History, *, sides: int, lateness: Any) -> tuple[History, int, Any]:
    """The changes that are not late, how many are, and event time less the lateness at the end."""
    largest: dict[int, Any] = {}
    limit, refused, out = None, 0, History()
    for some in changes:
        kept = []
        for record, weight in net(some).items():
            side, key, at, _ = record
            has_time = at is not None and (sides == 1 or key is not None)
            if limit is not None and has_time and at < limit:
                refused += abs(weight)
            elif weight:
                kept.append((record, weight))
            if has_time and weight > 0:
                largest[side * (sides > 1)] = max(at, largest.get(side * (sides > 1), at))
        if len(largest) == sides:
            limit = min(largest.values()) - lateness
        out.append(kept)
    return out, refused, limit


@dataclass
class InWindows:
    """Tumbling or sliding windows that end.

    Args:
        tables: after each epoch the records by ``(key, window)``, those of windows that are forgotten, too.
        refused: how many changes came for windows that were forgotten; one that came for two counts twice.
        forgotten: the windows that are.
    """

    tables: list[dict[tuple[Any, rd.Window], Counter[Record]]] = field(default_factory=list)
    refused: int = 0
    forgotten: set[tuple[Any, rd.Window]] = field(default_factory=set)


def of_windows(changes: History, windows: Tumbling | Sliding, lateness: Any) -> InWindows:
    """What is in each window: a change is late when the window is over for which it comes."""
    largest, there, out = None, defaultdict[Any, Counter[Record]](Counter), InWindows()
    for some in changes:
        limit = None if largest is None else largest - lateness
        for record, weight in net(some).items():
            _, key, at, _ = record
            for window in () if at is None else windows.assign(at):
                if limit is not None and window.end <= limit:
                    out.refused += abs(weight)
                else:
                    there[key, window][record] += weight
            if at is not None and weight > 0:
                largest = at if largest is None else max(at, largest)
        found = {key: +of for key, of in there.items() if +of}
        if largest is not None:
            out.forgotten |= {key for key in found if key[1].end <= largest - lateness}
        out.tables.append(found)
    return out


# -- what is given of all that is on time ----------------------------------------------------------------------------------
Pair = tuple[Any, tuple[Record | None, Record | None]]
"""Of a join: key, left and right record."""


def parted(there: Counter[Any]) -> tuple[list[Record], list[Record]]:
    """Left and right records, each as often as it is there."""
    left, right = ([record for record in there.elements() if record[0] == side] for side in (0, 1))
    return left, right


def as_of_pairs(there: Counter[Any], rule: AsOf, how: Any) -> Iterator[Pair]:
    """An as-of join, computed for each left record."""
    direction, tolerance, exact = rule.direction, rule.tolerance, rule.exact
    left, right = parted(there)
    for one in left:
        some = [r for r in right if r[1] == one[1] and None not in (r[1], r[2], one[2])]
        some = [r for r in some if (exact or r[2] != one[2]) and (tolerance is None or abs(r[2] - one[2]) <= tolerance)]
        some = [r for r in some if direction == "nearest" or (r[2] <= one[2] if direction == "backward" else r[2] >= one[2])]
        best = min(some, key=lambda r: (abs(r[2] - one[2]), r[2], -r[3]), default=None)
        if best is not None or how == "left":
            yield one[1], (one, best)


def interval_pairs(there: Counter[Any], lower: Any, upper: Any, how: Any) -> Iterator[Pair]:
    """An interval join, computed for each pair; of kinds that give left records alone, these without a right one."""
    left, right = parted(there)
    pairs = [(a, b) for a in left for b in right if a[1] == b[1] and None not in (a[1], a[2], b[2]) and lower <= b[2] - a[2] <= upper]
    met, met_right = {a for a, _ in pairs}, {b for _, b in pairs}
    if how in ("semi", "anti"):
        yield from ((a[1], (a, None)) for a in left if (a in met) == (how == "semi"))
        return
    yield from ((a[1], (a, b)) for a, b in pairs)
    yield from ((a[1], (a, None)) for a in left if how in ("left", "full") and a not in met)
    yield from ((b[1], (None, b)) for b in right if how in ("right", "full") and b not in met_right)


def sessions(there: Counter[Any], gap: Any) -> Iterator[tuple[tuple[Any, rd.Window], list[Record]]]:
    """The sessions of each key, and their records."""
    by_key: dict[Any, list[Record]] = defaultdict(list)
    for record in there.elements():
        if record[2] is not None:
            by_key[record[1]].append(record)
    for key, records in by_key.items():
        some: list[Record] = []
        for record in [*sorted(records, key=lambda one: one[2]), None]:
            if some and (record is None or record[2] - some[-1][2] > gap):
                yield (key, rd.Window(some[0][2], some[-1][2] + gap)), some
                some = []
            some += [] if record is None else [record]


__all__ = ["InWindows", "Pair", "Record", "as_of_pairs", "interval_pairs", "net", "of_windows", "on_time", "parted", "sessions"]
