"""Random programs of forms that forget, one behind the other and beside other operators, as collections and computed from scratch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow.compute as pc

import rayad as rd
from rayad.dataflow.windows import AsOf
from tests.incremental.laws import programs as loops
from tests.incremental.laws.late.forms import AGGREGATES, FIELDS, AsOfJoin, Form, IntervalJoin, InWindows, Record, Table, in_fields
from tests.incremental.laws.late.times import WHOLE, Times
from tests.incremental.laws.operators import NODES, Edge
from tests.incremental.programs import History, tables

Program = tuple[Any, ...]
"""An operator and its parts: ``("late", form, *parts)``, ``("loops", times, program, part)``. A leaf is ``("input", part)``."""
KEYS = ("a", "b", None)
NUMBERS = 6
PARTS: tuple[tuple[pc.Expression | None, Callable[[Any], bool]], ...] = (
    (rd.col("n") < 3, lambda n: n < 3),
    (rd.col("n") >= 3, lambda n: n >= 3),
    (None, lambda n: True),
)
"""Of the input, by number: as an expression, and as a function."""
ONE = ("map", "filter", "distinct", "latest", "without")
TWO = ("concat", "except", "semi", "anti", "pairs")
ONE_NUMBER = rd.col("1").is_valid().cast("int64")
"""1, where there is a largest event time."""


def halved(record: Any) -> Any:
    """A function, in rows, that gives one record for several."""
    return {**record, "n": record["n"] // 2}


def edge_of(times: Times, record: Any) -> Edge:
    """A record as an edge of a program of loops."""
    return _edge(times, tuple(record[name] for name in FIELDS))


def _edge(times: Times, record: Record) -> Edge:
    key, at, n = record
    return (0 if at is None else times.tick(at)) % NODES, (n + KEYS.index(key)) % NODES


def record_of(times: Times, edge: Edge) -> Any:
    """An edge as a record, which is early."""
    return dict(zip(FIELDS, _record(times, edge), strict=True))


def _record(times: Times, edge: Edge) -> Record:
    return KEYS[edge[0] % 2], times.moment(3 * edge[0] + edge[1]), edge[1]


# -- as collections --------------------------------------------------------------------------------------------------------
def built(program: Program, records: rd.Collection) -> rd.Collection:
    """The program on collections of records with fields."""
    what, *rest = program
    if what == "input":
        expression = PARTS[rest[0]][0]
        return records if expression is None else records.filter(expression)
    if what == "late":
        form, *parts = rest
        return form.build([built(part, records) for part in parts])
    if what == "loops":
        times, inner, part = rest
        return loops.built(inner, built(part, records).map(partial(edge_of, times))).map(partial(record_of, times))
    one, *others = (built(part, records) for part in rest)
    at, n = rd.col("at"), rd.col("n")
    made: dict[str, Callable[[], rd.Collection]] = {
        "map": lambda: one.map(halved),
        "filter": lambda: one.filter(n < 4),
        "distinct": lambda: one.distinct(),
        "latest": lambda: one.filter(at.is_valid()).key_by("key").max("at").select(in_fields(rd.col("0"), rd.col("1"), ONE_NUMBER)),
        "without": lambda: one.concat(one.filter(n >= 4).negate()),
        "concat": lambda: one.concat(*others),
        "except": lambda: one.except_(*others),
        "semi": lambda: _kept(one, others[0], "semi"),
        "anti": lambda: _kept(one, others[0], "anti"),
        "pairs": lambda: _pairs(one, others[0]),
    }
    return made[what]()


def _kept(one: rd.Collection, other: rd.Collection, how: Any) -> rd.Collection:
    joined = one.key_by("key").join(other.key_by("key"), how)
    return joined.select(in_fields(*(rd.col("1", name) for name in FIELDS)))


def _pairs(one: rd.Collection, other: rd.Collection) -> rd.Collection:
    """Of each two of a key the event time of the left one, and the difference of their numbers."""
    joined = one.key_by("key").join(other.key_by("key"))
    return joined.select(in_fields(rd.col("0"), rd.col("1", "0", "at"), rd.col("1", "0", "n") - rd.col("1", "1", "n")))


# -- from scratch ----------------------------------------------------------------------------------------------------------
class FromScratch:
    """Tables after each epoch, computed anew, and how many changes were late in all forms together.

    Args:
        changes: of the input.
    """

    def __init__(self, changes: History) -> None:
        self._input = tables(changes)
        self.refused = 0

    def tables(self, program: Program) -> list[Table]:
        """What the program gives after each epoch."""
        what, *rest = program
        if what == "input":
            holds = PARTS[rest[0]][1]
            return [Counter({record: weight for record, weight in table.items() if holds(record[2])}) for table in self._input]
        if what == "late":
            form, *parts = rest
            found = form.found(_changes([self.tables(part) for part in parts]))
            self.refused += found.refused
            tables: list[Table] = found.tables
            return tables
        if what == "loops":
            times, inner, part = rest
            edges = [_mapped(partial(_edge, times), table) for table in self.tables(part)]
            return [_mapped(partial(_record, times), loops.computed(inner, table, {})) for table in edges]
        return [computed(what, *of) for of in zip(*map(self.tables, rest), strict=True)]


def _mapped(function: Callable[[Any], Any], table: Counter[Any]) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for record, weight in table.items():
        out[function(record)] += weight
    return out


def _changes(sides: list[list[Table]]) -> History:
    """How tables change with each epoch, as changes of ``(side, *record)``."""
    out: History = []
    for epoch in range(len(sides[0])):
        some: Counter[Any] = Counter()
        for side, parts in enumerate(sides):
            for record, weight in parts[epoch].items():
                some[side, *record] += weight
            for record, weight in parts[epoch - 1].items() if epoch else ():
                some[side, *record] -= weight
        out.append([(record, weight) for record, weight in some.items() if weight])
    return out


def computed(what: str, one: Table, other: Table | None = None) -> Table:
    """An operator that does not forget, of all that is there."""
    if other is not None and what != "concat":
        if what == "pairs":
            pairs = [(left, right) for left in one.elements() for right in other.elements() if left[0] == right[0] is not None]
            return Counter((*left[:2], left[2] - right[2]) for left, right in pairs)
        keys = {key for key, _, _ in other if key is not None}
        if what == "except":
            return Counter(set(one) - set(other))
        return Counter({record: weight for record, weight in one.items() if (record[0] in keys) == (what == "semi")})
    if what == "latest":
        latest = {key: max(at for other, at, _ in one if other == key and at is not None) for key, at, _ in one if at is not None}
        return Counter((key, at, 1) for key, at in latest.items())
    made: dict[str, Callable[[], Table]] = {
        "map": lambda: _mapped(lambda record: (*record[:2], record[2] // 2), one),
        "filter": lambda: Counter({record: weight for record, weight in one.items() if record[2] < 4}),
        "distinct": lambda: Counter(set(one)),
        "concat": lambda: one + (other or Counter()),
    }
    return made["filter" if what == "without" else what]()


# -- drawn at random -------------------------------------------------------------------------------------------------------
def drawn(chance: random.Random, times: Times = WHOLE) -> Program:
    """A random program. What is outermost forgets, or is right behind what does; half of them have two such forms."""
    deep = chance.choice((0, 0, 1, 1, 1, 2))
    program = _late(chance, times, deep)
    if chance.random() < 0.3:
        return chance.choice(ONE), program
    return ("loops", times, loops.drawn(chance), program) if chance.random() < 0.05 else program


def _late(chance: random.Random, times: Times, deep: int) -> Program:
    form = form_of(chance, times)
    parts = [_part(chance, times, deep if side == 0 or chance.random() < 0.3 else 0) for side in range(form.sides)]
    chance.shuffle(parts)
    return "late", form, *parts


def _part(chance: random.Random, times: Times, deep: int) -> Program:
    """What a form is given, with so many more of them in each other."""
    leaf = "input", chance.randrange(len(PARTS))
    part = _late(chance, times, deep - 1) if deep else leaf
    what = chance.random()
    if what < 0.55:
        return part
    if what < 0.8:
        return chance.choice(ONE), part
    if what < 0.82:
        return "loops", times, loops.drawn(chance), part
    both = [part, ("input", chance.randrange(len(PARTS)))]
    chance.shuffle(both)
    return chance.choice(TWO), *both


def form_of(chance: random.Random, times: Times) -> Form:
    """A random form."""
    span = times.span
    lateness, by_function = span(chance.choice((0, 1, 3, 3, 5, 2.5))), chance.random() < 0.25
    what = chance.choice(("tumbling", "sliding", "session", "session", "asof", "asof", "asof", "interval", "interval", "interval"))
    if what == "asof":
        within = chance.choice((None, None, 1, 2, 4, 7))
        rule = AsOf(None if within is None else span(within), chance.random() < 0.6, chance.choice(("backward", "forward", "nearest")))
        return AsOfJoin(lateness, by_function, chance.choice(("left", "left", "inner")), chance.random() < 0.4, rule)
    if what == "interval":
        lower = chance.randint(-6, 4)
        how = chance.choice(("inner", "left", "right", "full", "semi", "anti"))
        return IntervalJoin(lateness, by_function, how, chance.random() < 0.4, span(lower), span(lower + chance.choice((0, 2, 5))))
    size = chance.randint(1, 6)
    windows = {
        "tumbling": lambda: rd.windows.tumbling(span(size), chance.choice((None, times.moment(1)))),
        "sliding": lambda: rd.windows.sliding(span(size), span(chance.randint(1, 4))),
        "session": lambda: rd.windows.session(span(size)),
    }[what]()
    return InWindows(lateness, by_function, windows, chance.choice(tuple(AGGREGATES)), chance.random() < 0.5)


def history(chance: random.Random, times: Times = WHOLE) -> History:
    """Records whose times go on, now and then far back; half of the numbers may be behind the others. Some have no key or no time, some
    are there twice; what goes was there, and may come and go in one epoch."""
    behind, there, out = chance.choice((0, 0, 3, 8)), list[Record](), History()
    speed, late = chance.choice((1, 2, 2, 5)), chance.choice((1, 3, 6))
    for epoch in range(chance.randint(4, 10)):
        changes: list[tuple[Any, int]] = []
        for _ in range(chance.randint(0, 7)):
            n = chance.randrange(NUMBERS)
            at = epoch * speed + (chance.randint(-late, 2) if chance.random() < 0.85 else chance.randint(-20, 0)) - (behind if n < 3 else 0)
            record = chance.choice("aab") if chance.random() < 0.9 else None, times.moment(at) if chance.random() < 0.9 else None, n
            there.append(record)
            changes.append((record, 1))
        changes += [(there.pop(chance.randrange(len(there))), -1) for _ in range(min(len(there), chance.choice((0, 1, 1, 3))))]
        out.append(changes)
    return out


__all__ = ["FromScratch", "Program", "built", "drawn", "history"]
