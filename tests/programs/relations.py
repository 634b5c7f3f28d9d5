"""Programs that put streams beside each other: joins, joins in windows, windows that records bring along, the best records of a window.

Each in rows and in columns; the model is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.windowed import assigner

SHOPS = pa.schema([("id", pa.int64()), ("town", pa.string()), ("t", pa.int64())])
SALES = pa.schema([("shop", pa.int64()), ("price", pa.int64()), ("t", pa.int64()), ("opens", pa.int64()), ("closes", pa.int64())])
# Epoch 2 brings sales for windows that have fired by then.
OPENED: list[list[tuple[Any, ...]]] = [[(1, "ulm", 1), (2, "bonn", 3)], [(3, "ulm", 11), (1, "kiel", 14)], [], [(2, "trier", 32)]]
SOLD: list[list[tuple[Any, ...]]] = [
    [(1, 10, 2, 0, 9), (1, 30, 8, 0, 9), (2, 30, 9, 5, 20), (1, 5, 12, 12, 13)],
    [(2, 7, 13, 5, 20), (3, 8, 14, 10, 15), (3, 9, 15, 10, 15), (1, 11, 21, 20, 40)],
    [(1, 50, 3, 0, 9), (2, 2, 19, 5, 20), (1, 12, 22, 20, 40), (2, 40, 24, 24, 30)],
    [(2, 30, 34, 24, 44), (2, 40, 35, 24, 44), (3, 1, 41, 41, 60)],
]
WINDOWS = {"tumbling": rd.windows.tumbling(10), "sliding": rd.windows.sliding(10, 5)}


def dicts(epochs: list[list[tuple[Any, ...]]], schema: pa.Schema) -> list[list[dict[str, Any]]]:
    return [[dict(zip(schema.names, row, strict=True)) for row in rows] for rows in epochs]


def streams(flow: rd.Dataflow, *, columns: bool, delay: int = 0) -> tuple[rd.Stream, rd.Stream]:
    out = []
    for epochs, schema in ((OPENED, SHOPS), (SOLD, SALES)):
        rows = dicts(epochs, schema)
        source = [pa.RecordBatch.from_pylist(r, schema=schema) for r in rows] if columns else rows
        out.append(flow.from_epochs(source, parts=2, batch_rows=1).assign_timestamps("t", max_delay=delay))
    return out[0], out[1]


def join(flow: rd.Dataflow, *, columns: bool) -> None:
    shops, sales = streams(flow, columns=columns)
    shops.key_by("id").join(sales.key_by("shop")).collect("join")
    plain = sales.join(shops, "shop", "id").as_columns()
    plain.map(lambda row: (row["shop"], row["price"], row["t"], row["town"], row["t_right"])).collect("plain")


def broadcast_join(flow: rd.Dataflow, *, columns: bool) -> None:
    shops, sales = streams(flow, columns=columns)
    sales.key_by("shop").join(shops.key_by("id"), broadcast=True).collect("small side")
    shops.key_by("id").join(sales.key_by("shop"), broadcast=True).collect("large side")


def broadcast_join_expected() -> Expected:
    shops, sales = m.epochs(dicts(OPENED, SHOPS)), m.epochs(dicts(SOLD, SALES))
    return {
        "small side": m.joined(sales, shops, lambda r: r["shop"], lambda r: r["id"]),
        "large side": m.joined(shops, sales, lambda r: r["id"], lambda r: r["shop"]),
    }


def join_expected() -> Expected:
    shops, sales = m.epochs(dicts(OPENED, SHOPS)), m.epochs(dicts(SOLD, SALES))
    joined = m.joined(sales, shops, lambda r: r["shop"], lambda r: r["id"])
    return {
        "join": m.joined(shops, sales, lambda r: r["id"], lambda r: r["shop"]),
        "plain": [(t, (key, a["price"], a["t"], b["town"], b["t"])) for t, (key, (a, b)) in joined],
    }


def marks(left: list[list[int]], right: list[list[int]], delay: int) -> list[int | None]:
    """The watermark of two streams after each epoch: the lesser of the two."""
    seen: list[int | None] = [None, None]
    out: list[int | None] = []
    for times in zip(left, right, strict=True):
        for side, some in enumerate(times):
            before = seen[side]
            seen[side] = max([*(t - delay for t in some), *([] if before is None else [before])], default=None)
        known = [mark for mark in seen if mark is not None]
        out.append(min(known) if len(known) == 2 else None)
    return out


def window_join(flow: rd.Dataflow, *, windows: Any, delay: int, columns: bool) -> None:
    shops, sales = streams(flow, columns=columns, delay=delay)
    joined = shops.key_by("id").window(windows).join(sales.key_by("shop"))
    joined.collect("pairs")
    joined.late.collect("late")


def window_join_expected(*, windows: Any, delay: int) -> Expected:
    assign = assigner(windows)
    sides = dicts(OPENED, SHOPS), dicts(SOLD, SALES)
    after = marks(*([[r["t"] for r in rows] for rows in side] for side in sides), delay)
    kept: list[list[tuple[rd.Window, Any]]] = [[], []]
    late: m.Timed = []
    out: m.Timed = []
    last = len(sides[0]) - 1
    for epoch in range(last + 1):
        before = after[epoch - 1] if epoch else None
        for side, key in ((0, "id"), (1, "shop")):
            for record in sides[side][epoch]:
                for window in assign(record["t"]):
                    if before is not None and window.end <= before:
                        pair = (record, None) if side == 0 else (None, record)
                        late.append((rd.Timestamp(epoch), (record[key], window, pair)))
                    else:
                        kept[side].append((window, record))
    for window, shop in kept[0]:
        fires = next((e for e, mark in enumerate(after) if mark is not None and window.end <= mark), last)
        met = [sale for other, sale in kept[1] if other == window and sale["shop"] == shop["id"]]
        out.extend((rd.Timestamp(fires), (shop["id"], window, (shop, sale))) for sale in met)
    return {"pairs": out, "late": late}


BOUNDS = {"around": (-5, 6), "before": (-12, -3)}


def interval_join(flow: rd.Dataflow, *, bounds: tuple[int, int], how: Any, columns: bool) -> None:
    shops, sales = streams(flow, columns=columns, delay=6)
    joined = shops.key_by("id").join(sales.key_by("shop"), within=rd.between(*bounds), how=how)
    joined.collect("results")
    joined.late.collect("late")


def interval_join_expected(*, bounds: tuple[int, int], how: str) -> Expected:
    results, late = joined_within(dicts(OPENED, SHOPS), dicts(SOLD, SALES), ("id", "shop"), bounds, (6, 6), how)
    return {"results": results, "late": late}


AS_OF = {"last": "backward", "next": "forward", "nearest": "nearest"}


def as_of_join(flow: rd.Dataflow, *, direction: Any, how: Any, columns: bool) -> None:
    shops, sales = streams(flow, columns=columns, delay=6)
    joined = sales.key_by("shop").join_asof(shops.key_by("id"), direction=direction, how=how, tolerance=12)
    joined.collect("results")
    joined.late.collect("late")


def as_of_join_expected(*, direction: Any, how: str) -> Expected:
    rule = AsOfRule(how, 12, direction=direction)
    results, late = joined_as_of(dicts(SOLD, SALES), dicts(OPENED, SHOPS), ("shop", "id"), (6, 6), rule)
    return {"results": results, "late": late}


def after_epochs(sides: list[list[list[Any]]], delays: tuple[Any, Any], idle: int | None = None) -> list[Any]:
    """The watermark of two sides after each epoch, from the event times in it: the lesser of their largest ones less the delay. A side that
    has brought nothing in the last ``idle`` epochs does not count; one that has brought nothing at all is waited for from the first epoch
    on that has brought something. Epochs without anything change nothing."""
    out: list[Any] = []
    now: Any = None
    largest: list[Any] = [None, None]
    heard: list[Any] = [None, None]
    for epoch in range(max(map(len, sides))):
        brought = [side[epoch] if epoch < len(side) else [] for side in sides]
        for at, times in enumerate(brought) if any(brought) else ():
            if times:
                largest[at] = max([max(times) - delays[at], *([] if largest[at] is None else [largest[at]])])
            if times or heard[at] is None:
                heard[at] = epoch
        if any(brought):
            known = [mark for mark, at in zip(largest, heard, strict=True) if idle is None or epoch - at <= idle]
            if None not in known and (now is None or min(known) > now):
                now = min(known)
        out.append(now)
    return out


class InTime:
    """Of two sides (``t`` is the event time) the records that are not behind the watermark before their epoch, and those that are late.
    Records with a null key are kept of the sides that say so. ``idle``: as of :func:`after_epochs`; ``last``: the epoch in which the input
    ends, None: the last in which there is something."""

    def __init__(
        self,
        left: list[list[Any]],
        right: list[list[Any]],
        keys: tuple[str, str],
        delays: tuple[Any, Any],
        keeps: tuple[bool, bool],
        idle: int | None = None,
        last: int | None = None,
    ) -> None:
        epochs = max(len(left), len(right))
        sides = [[*side, *([[]] * (epochs - len(side)))] for side in (left, right)]
        self.after = after_epochs([[[record["t"] for record in records] for records in side] for side in sides], delays, idle)
        some = max((epoch for epoch in range(epochs) if sides[0][epoch] or sides[1][epoch]), default=0)
        self.last = some if last is None else last
        self.late: m.Timed = []
        self.kept: list[list[tuple[int, Any]]] = [[], []]
        for epoch in range(epochs):
            for at, side in enumerate(sides):
                for record in side[epoch]:
                    key = record[keys[at]]
                    if key is None and not keeps[at]:
                        continue
                    if epoch and self.after[epoch - 1] is not None and record["t"] < self.after[epoch - 1]:
                        self.late.append((rd.Timestamp(epoch), (key, (record, None) if at == 0 else (None, record))))
                    else:
                        self.kept[at].append((epoch, record))

    def passed(self, came: int, end: Any) -> rd.Timestamp:
        """When the watermark has passed an event time, from an epoch on."""
        after = self.after
        return rd.Timestamp(next((e for e in range(came, len(after)) if after[e] is not None and end < after[e]), self.last))


def joined_within(
    left: list[list[Any]],
    right: list[list[Any]],
    keys: tuple[str, str],
    bounds: tuple[Any, Any],
    delays: tuple[Any, Any],
    how: str,
    **ends: int | None,
) -> tuple[m.Timed, m.Timed]:
    """``(results, late)`` of an interval join: SQL's join of all records that are in time. A null key equals nothing. ``ends``: as of
    :class:`InTime`."""
    keeps = (how in ("left", "full", "anti"), how in ("right", "full"))  # records with a null key
    found = InTime(left, right, keys, delays, keeps, **ends)

    def meet(a: Any, b: Any) -> bool:
        return a[keys[0]] is not None and a[keys[0]] == b[keys[1]] and bounds[0] <= b["t"] - a["t"] <= bounds[1]

    out: m.Timed = []
    for came, a in found.kept[0]:
        met = [(max(came, then), b) for then, b in found.kept[1] if meet(a, b)]
        if how not in ("semi", "anti"):
            out += [(rd.Timestamp(epoch), (a[keys[0]], (a, b))) for epoch, b in met]
        elif how == "semi" and met:
            out.append((rd.Timestamp(min(epoch for epoch, _ in met)), (a[keys[0]], a)))
        if not met and keeps[0]:
            out.append((found.passed(came, a["t"] + bounds[1]), (a[keys[0]], a if how == "anti" else (a, None))))
    for came, b in found.kept[1]:
        if keeps[1] and not any(meet(a, b) for _, a in found.kept[0]):
            out.append((found.passed(came, b["t"] - bounds[0]), (b[keys[1]], (None, b))))
    return out, found.late


@dataclass(frozen=True)
class AsOfRule:
    """What an as-of join is asked for."""

    how: Any = "left"
    tolerance: Any = None
    exact: bool = True
    direction: Any = "backward"

    def best(self, at: Any, others: list[tuple[int, Any]]) -> Any:
        """Of ``(epoch, record)`` the record to be met at an event time; of several with one event time that of the later epoch, and then
        the one whose ``repr`` is greater."""
        met = [
            (-abs(b["t"] - at), b["t"] <= at, then, repr(b), b)
            for then, b in others
            if (self.exact or b["t"] != at)
            and (self.tolerance is None or abs(b["t"] - at) <= self.tolerance)
            and (self.direction != "backward" or b["t"] <= at)
            and (self.direction != "forward" or b["t"] >= at)
        ]
        return max(met, key=lambda one: one[:4])[4] if met else None

    def settled(self, at: Any, others: list[tuple[int, Any]]) -> Any:
        """The event time that the watermark has to pass, as far as it is known."""
        if self.direction == "backward":
            return at
        best = self.best(at, others)
        reach = self.tolerance if best is None else abs(best["t"] - at)
        return math.inf if reach is None else at + reach


def joined_as_of(
    left: list[list[Any]], right: list[list[Any]], keys: tuple[str, str], delays: tuple[Any, Any], rule: AsOfRule, **ends: int | None
) -> tuple[m.Timed, m.Timed]:
    """``(results, late)`` of an as-of join: each left record with one right one of its key, of all that are in time. ``ends``: as of
    :class:`InTime`."""
    found = InTime(left, right, keys, delays, (rule.how == "left", False), **ends)
    out: m.Timed = []
    for came, a in found.kept[0]:
        others = [(then, b) for then, b in found.kept[1] if a[keys[0]] is not None and a[keys[0]] == b[keys[1]]]
        best = rule.best(a["t"], others)
        if best is None and rule.how != "left":
            continue
        for epoch in range(came, len(found.after)):
            known = [(then, b) for then, b in others if then <= epoch]
            if found.after[epoch] is not None and rule.settled(a["t"], known) < found.after[epoch]:
                break
        else:
            epoch = found.last
        out.append((rd.Timestamp(epoch), (a[keys[0]], (a, best))))
    return out, found.late


def given(flow: rd.Dataflow, *, columns: bool) -> None:
    _, sales = streams(flow, columns=columns)
    windowed = sales.key_by("shop").window(rd.windows.given("opens", "closes"))
    windowed.max("price").collect("max")
    counted = windowed.aggregate({"n": "count", "sum": ("sum", "price")})
    counted.collect("several")
    counted.late.collect("late")


def given_expected() -> Expected:
    after = marks(*([[r[2] for r in rows] for rows in SOLD],) * 2, 0)
    kept: dict[Any, list[int]] = {}
    late: m.Timed = []
    for epoch, rows in enumerate(SOLD):
        before = after[epoch - 1] if epoch else None
        for record, (shop, price, t, opens, closes) in zip(dicts(SOLD, SALES)[epoch], rows, strict=True):
            if opens <= t < closes:
                window = rd.Window(opens, closes)
                if before is not None and closes <= before:
                    late.append((rd.Timestamp(epoch), (shop, window, record)))
                else:
                    kept.setdefault((shop, window), []).append(price)
    last = len(SOLD) - 1

    def fired(window: rd.Window) -> rd.Timestamp:
        return rd.Timestamp(next((e for e, mark in enumerate(after) if mark is not None and window.end <= mark), last))

    def both(prices: list[int]) -> dict[str, int]:
        return {"n": len(prices), "sum": sum(prices)}

    return {
        "max": [(fired(w), (shop, w, max(prices))) for (shop, w), prices in kept.items()],
        "several": [(fired(w), (shop, w, both(prices))) for (shop, w), prices in kept.items()],
        "late": late,
    }


def best(flow: rd.Dataflow, *, columns: bool) -> None:
    _, sales = streams(flow, columns=columns, delay=4)
    sales.key_by("shop").window(WINDOWS["sliding"]).max_by("price").collect("highest")
    sales.window(WINDOWS["tumbling"]).min_by("price").collect("lowest of all")
    sales.key_by("shop").window(rd.windows.per_epoch()).max_by("price").collect("of epochs")


def best_of_windows(key: Callable[[Any], Any], windows: Any, pick: Callable[..., int]) -> m.Timed:
    assign = assigner(windows)
    sales = dicts(SOLD, SALES)
    after = marks(*([[r["t"] for r in rows] for rows in sales],) * 2, 4)
    kept: dict[Any, list[Any]] = {}
    for epoch, rows in enumerate(sales):
        before = after[epoch - 1] if epoch else None
        for record in rows:
            for window in assign(record["t"]):
                if before is None or window.end > before:
                    kept.setdefault((key(record), window), []).append(record)
    out: m.Timed = []
    for (at, window), records in kept.items():
        fires = next((e for e, mark in enumerate(after) if mark is not None and window.end <= mark), len(sales) - 1)
        most = pick(r["price"] for r in records)
        out.extend((rd.Timestamp(fires), (at, window, r)) for r in records if r["price"] == most)
    return out


def best_expected() -> Expected:
    def highest(records: list[Any]) -> list[Any]:
        return [record for record in records if record["price"] == max(r["price"] for r in records)]

    each = m.per_epoch(m.epochs(dicts(SOLD, SALES)), lambda r: r["shop"], highest)
    return {
        "highest": best_of_windows(lambda r: r["shop"], WINDOWS["sliding"], max),
        "lowest of all": [(t, r[1:]) for t, r in best_of_windows(lambda r: 0, WINDOWS["tumbling"], min)],
        "of epochs": [(t, (key, window, record)) for t, (key, window, records) in each for record in records],
    }


PROGRAMS = [
    program
    for form in ("rows", "columns")
    for program in (
        Program(f"join-{form}", partial(join, columns=form == "columns"), join_expected),
        Program(f"broadcast-join-{form}", partial(broadcast_join, columns=form == "columns"), broadcast_join_expected),
        Program(f"given-windows-{form}", partial(given, columns=form == "columns"), given_expected),
        Program(f"best-records-{form}", partial(best, columns=form == "columns"), best_expected),
        *(
            Program(
                f"window-join-{name}-{delay}-{form}",
                partial(window_join, windows=windows, delay=delay, columns=form == "columns"),
                partial(window_join_expected, windows=windows, delay=delay),
            )
            for name, windows in WINDOWS.items()
            for delay in (0, 6)
        ),
        *(
            Program(
                f"interval-join-{name}-{how}-{form}",
                partial(interval_join, bounds=BOUNDS[name], how=how, columns=form == "columns"),
                partial(interval_join_expected, bounds=BOUNDS[name], how=how),
            )
            for name, how in (("around", "inner"), ("around", "full"), ("before", "anti"))
        ),
        *(
            Program(
                f"as-of-join-{name}-{how}-{form}",
                partial(as_of_join, direction=AS_OF[name], how=how, columns=form == "columns"),
                partial(as_of_join_expected, direction=AS_OF[name], how=how),
            )
            for name, how in (("last", "left"), ("next", "left"), ("nearest", "inner"))
        ),
    )
]
