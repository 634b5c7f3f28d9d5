"""Programs with loops: nested, bounded, with joins and running totals inside, entirely stateless, with sinks in the body."""

from __future__ import annotations

from functools import partial
from typing import Any

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.totals import first, second

NUMBERS = [[6, 7, 1], [], [9, 27], [3, 3, 12]]


def collatz(n: int) -> int:
    return n // 2 if n % 2 == 0 else 3 * n + 1


def _step(record: tuple[int, int, int]) -> tuple[int, int, int]:
    start, n, steps = record
    return start, collatz(n), steps + 1


def _open(record: tuple[int, int, int]) -> bool:
    return record[1] != 1


def stateless(flow: rd.Dataflow, *, exchange: bool) -> None:
    """How many steps to 1: nothing in the body keeps state, so that a union becomes the head of the cycle."""
    begun = flow.from_epochs(NUMBERS, parts=2, batch_rows=1).map(lambda n: (n, n, 0))

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = (inner.rebalance() if exchange else inner).filter(_open).map(_step)
        return stepped, stepped.filter(lambda record: not _open(record))

    begun.iterate(body, name="collatz").map(lambda r: (r[0], r[2])).collect("steps")


def stateless_expected() -> Expected:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        stepped = m.mapped(m.filtered(inner, _open), _step)
        return stepped, m.filtered(stepped, lambda record: not _open(record))

    begun = m.mapped(m.epochs(NUMBERS), lambda n: (n, n, 0))
    return {"steps": m.mapped(m.iterated(begun, body), lambda r: (r[0], r[2]))}


def bounded(flow: rd.Dataflow) -> None:
    """What would begin a round beyond the bound is dropped."""
    numbers = flow.from_epochs(NUMBERS)
    numbers.iterate(lambda inner: (inner.map(lambda n: n + 1), inner), max_rounds=3).collect("three")
    numbers.iterate(lambda inner: (inner.map(lambda n: n + 1), inner), max_rounds=1).collect("one")
    numbers.iterate(lambda inner: (inner.key_by(lambda n: n).count().map(first), inner.map(lambda n: -n)), max_rounds=4).collect("keyed")


def bounded_expected() -> Expected:
    stream = m.epochs(NUMBERS)

    def keyed(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        counted = m.collected(inner, lambda n: n, lambda n: n, len)
        return m.mapped(counted, first), m.mapped(inner, lambda n: -n)

    return {
        "three": [(t, n + i) for t, n in stream for i in range(3)],
        "one": stream,
        "keyed": m.iterated(stream, keyed, max_rounds=4),
    }


EDGES = [
    [(1, 2), (2, 3), (5, 6)],
    [(3, 4), (8, 9)],
    [(6, 7), (9, 10), (10, 8)],
    [(4, 5), (11, 11)],
]


def _both_ways(edge: tuple[int, int]) -> list[tuple[int, int]]:
    return [edge, edge[::-1]]


def components(flow: rd.Dataflow) -> None:
    """The smallest node that each node reaches, kept up to date over epochs: minimum and distinct in a loop, with a join."""
    edges = flow.from_epochs(EDGES, parts=2, batch_rows=1).flat_map(_both_ways)
    loop = flow.loop("components")
    labels, links = loop.enter(edges.map(lambda e: (e[0], e[0]))), loop.enter(edges)
    back = loop.feedback()
    best = labels.union(back).key_by(first).min(second)
    fresh = best.key_by(first).distinct(second, name="fresh")
    sent = fresh.key_by(first).join(links.key_by(first)).map(lambda r: (r[1][1][1], r[1][0][1]))
    back.connect(sent)
    loop.leave(fresh).collect("labels")


def components_expected() -> Expected:
    edges = m.flat_mapped(m.epochs(EDGES), _both_ways)
    links = m.entered(edges)

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        best = m.collected(inner, first, second, min)
        fresh = m.distinct(best, first, second)
        sent = m.mapped(m.joined(fresh, links, first, first), lambda r: (r[1][1][1], r[1][0][1]))
        return sent, fresh

    return {"labels": m.iterated(m.mapped(edges, lambda e: (e[0], e[0])), body)}


def nested(flow: rd.Dataflow, *, depth: int, keyed: bool) -> None:
    """Loops in loops: each level counts down its own part of the record, the outer ones start the inner ones anew."""
    begun = flow.from_epochs([[(2,) * depth], [(1,) * depth, (0,) * depth]], parts=2)
    _level(begun, 0, depth, keyed).collect("out")


def _level(stream: rd.Stream, level: int, depth: int, keyed: bool) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        worked = _level(inner, level + 1, depth, keyed) if level + 1 < depth else inner
        if keyed and level + 1 == depth:
            worked = worked.key_by(lambda r: r).window(rd.windows.per_epoch()).count().map(first)
        return worked.filter(partial(_left, level)).map(partial(_less, level, depth)), worked

    return stream.iterate(body, name=f"level{level}")


def _left(level: int, record: tuple[int, ...]) -> bool:
    return record[level] > 0


def _less(level: int, depth: int, record: tuple[int, ...]) -> tuple[int, ...]:
    """One less on this level; the levels inside begin with 1 again."""
    return (*record[:level], record[level] - 1, *((1,) * (depth - level - 1)))


def nested_expected(*, depth: int, keyed: bool, epochs: list[list[tuple[int, ...]]] | None = None) -> Expected:
    def level(stream: m.Timed, at: int) -> m.Timed:
        def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
            worked = level(inner, at + 1) if at + 1 < depth else inner
            if keyed and at + 1 == depth:
                worked = m.mapped(m.per_epoch(worked, lambda r: r, len), first)
            return m.mapped(m.filtered(worked, partial(_left, at)), partial(_less, at, depth)), worked

        return m.iterated(stream, body)

    return {"out": level(m.epochs(epochs or [[(2,) * depth], [(1,) * depth, (0,) * depth]]), 0)}


def totals_in_order(flow: rd.Dataflow) -> None:
    """Running totals in a loop apply times in lexicographic order: what an epoch left behind is what the next begins with."""
    numbers = flow.from_epochs([[1, 2], [1], [5, 1], [2]], parts=2, batch_rows=1)

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counted = inner.key_by(lambda n: n % 3).sum(lambda n: n, name="sums")
        return counted.map(second).filter(lambda total: total < 40).map(lambda total: total + 1), counted

    numbers.iterate(body, name="order").collect("sums")
    held = numbers.iterate(
        lambda inner: (
            inner.filter(lambda n: n < 4).map(lambda n: n + 1),
            inner.key_by(lambda n: n % 2).stateful_map(lambda state, n: (max(state, n), max(state, n)), 0),
        ),
        name="held",
    )
    held.key_by(first).max(second).collect("maxima")


def totals_in_order_expected() -> Expected:
    stream = m.epochs([[1, 2], [1], [5, 1], [2]])

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        counted = m.collected(inner, lambda n: n % 3, lambda n: n, sum)
        return m.mapped(m.filtered(m.mapped(counted, second), lambda total: total < 40), lambda total: total + 1), counted

    rounds = m.iterated(stream, lambda inner: (m.mapped(m.filtered(inner, lambda n: n < 4), lambda n: n + 1), inner))
    return {"sums": m.iterated(stream, body), "maxima": m.collected(rounds, lambda n: n % 2, lambda n: n, max)}


def sinks_inside(flow: rd.Dataflow) -> None:
    """A sink in a body sees each round at its time; a probe there does not disturb."""

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        inner.collect("rounds").probe("in the loop")
        return inner.filter(lambda n: n < 9).map(lambda n: n + 4), inner

    flow.from_epochs(NUMBERS, batch_rows=1).iterate(body).collect("left")


def sinks_inside_expected() -> Expected:
    seen: list[m.Timed] = []

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        seen.append(inner)
        return m.mapped(m.filtered(inner, lambda n: n < 9), lambda n: n + 4), inner

    left = m.iterated(m.epochs(NUMBERS), body)
    return {"left": left, "rounds": seen[-1]}


def two_loops(flow: rd.Dataflow) -> None:
    """One loop feeds another; two streams enter one loop, and two leave it; two feedbacks with different bounds."""
    small, large = flow.from_epochs([[1, 2], [3]]), flow.from_epochs([[10], [20, 30]], parts=2)
    loop = flow.loop("pair")
    a, b = loop.enter(small), loop.enter(large)
    up, down = loop.feedback(3, name="up"), loop.feedback(name="down")
    grown, shrunk = a.union(up), b.union(down)
    up.connect(grown.map(lambda n: n + 100))
    down.connect(shrunk.filter(lambda n: n > 5).map(lambda n: n - 7))
    low, high = loop.leave(grown, name="low"), loop.leave(shrunk, name="high")
    low.collect("low")
    high.iterate(lambda inner: (inner.filter(lambda n: n % 2 == 0).map(lambda n: n // 2).filter(bool), inner)).collect("high")


def two_loops_expected() -> Expected:
    low = [(t, n + 100 * i) for t, n in m.epochs([[1, 2], [3]]) for i in range(3)]

    def down(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        return m.mapped(m.filtered(inner, lambda n: n > 5), lambda n: n - 7), inner

    def half(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        return m.filtered(m.mapped(m.filtered(inner, lambda n: n % 2 == 0), lambda n: n // 2), bool), inner

    return {"low": low, "high": m.iterated(m.iterated(m.epochs([[10], [20, 30]]), down), half)}


def unused(flow: rd.Dataflow) -> None:
    """A loop whose result nobody takes, and one that nothing ever comes round in."""
    numbers = flow.from_epochs(NUMBERS)
    numbers.iterate(lambda inner: (inner.filter(lambda n: n < 5).map(lambda n: n + 1), inner), name="nobody looks")
    numbers.iterate(lambda inner: (inner.filter(lambda n: False), inner), name="once").collect("once")


def unused_expected() -> Expected:
    return {"once": m.epochs(NUMBERS)}


def body_of_windows(flow: rd.Dataflow) -> None:
    """per_epoch windows in a loop take each round of each epoch alone."""

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counted: Any = inner.key_by(lambda n: n % 2).window(rd.windows.per_epoch()).count()
        return inner.filter(lambda n: n < 8).map(lambda n: n + 3), counted

    flow.from_epochs(NUMBERS, parts=2, batch_rows=1).iterate(body).collect("rounds")


def body_of_windows_expected() -> Expected:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        return m.mapped(m.filtered(inner, lambda n: n < 8), lambda n: n + 3), m.per_epoch(inner, lambda n: n % 2, len)

    return {"rounds": m.iterated(m.epochs(NUMBERS), body)}


PROGRAMS = [
    Program("loop-stateless", partial(stateless, exchange=False), stateless_expected),
    Program("loop-stateless-exchanged", partial(stateless, exchange=True), stateless_expected),
    Program("loop-bounded", bounded, bounded_expected),
    Program("loop-components", components, components_expected),
    *(
        Program(
            f"loop-nested-{depth}-{kind}", partial(nested, depth=depth, keyed=keyed), partial(nested_expected, depth=depth, keyed=keyed)
        )
        for depth in (2, 3)
        for kind, keyed in (("stateless", False), ("keyed", True))
    ),
    Program("loop-totals", totals_in_order, totals_in_order_expected),
    Program("loop-sinks-inside", sinks_inside, sinks_inside_expected),
    Program("loop-two", two_loops, two_loops_expected),
    Program("loop-unused", unused, unused_expected),
    Program("loop-windows", body_of_windows, body_of_windows_expected),
]
