"""Random programs of operators, with loops inside loops, as collections and computed from scratch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import rayad as rd
from tests.incremental.laws import operators
from tests.incremental.laws.operators import IN_ROWS, NODES, PARTS, Edge, InPart, Operators
from tests.incremental.programs import History

Program = tuple[Any, ...]
"""An operator and its parts. Leaves are ``("edges", part)`` and ``("variable", number)``."""
Table = Counter[Any]


class Words(NamedTuple):
    """Operators by name that a program is drawn from: of one collection, of two, and of several."""

    one: tuple[str, ...]
    two: tuple[str, ...]
    mix: str


SOME = ("map", "many", "filter", "distinct", "count", "max", "min", "sums", "several")
PAIRS = ("concat", "except", "intersect", "compose", "semi", "anti", "left")
OF_ROWS = Words((*SOME, "digest"), (*PAIRS, "mix", "mix", "mix"), "mix")
OF_COLUMNS = Words(SOME, (*PAIRS, "blend", "blend", "blend"), "blend")


# -- as collections, and from scratch --------------------------------------------------------------------------------------
def built(program: Program, edges: rd.Collection, how: Operators = IN_ROWS) -> rd.Collection:
    """The program on collections."""
    return _built(program, edges, {}, how)


def _built(program: Program, edges: rd.Collection, variables: Mapping[int, rd.Collection], how: Operators) -> rd.Collection:
    """``variables``: of the loops around it."""
    what, *rest = program
    if what == "edges":
        return how["part"](edges, rest[0])
    if what == "variable":
        return variables[rest[0]]
    if what == "iterate":
        number, begin, body, rounds = rest
        begins = _built(begin, edges, variables, how)
        return begins.iterate(lambda inner: _built(body, edges, {**variables, number: inner}, how), max_rounds=rounds)
    if what == "follow":
        parts, rounds = rest
        each = {str(number): _built(begin, edges, variables, how) for number, begin, _ in parts}

        def bodies(inner: dict[str, rd.Collection]) -> dict[str, rd.Collection]:
            there = {**variables, **{int(number): collection for number, collection in inner.items()}}
            return {str(number): _built(body, edges, there, how) for number, _, body in parts}

        return rd.fixed_point(each, bodies, max_rounds=rounds)[str(parts[-1][0])]
    return how[what](*(_built(part, edges, variables, how) for part in rest))


def computed(program: Program, edges: Table, variables: Mapping[int, Table]) -> Table:
    """The same from scratch."""
    what, *rest = program
    if what == "edges":
        return Counter({edge: weight for edge, weight in edges.items() if InPart(rest[0])(edge)})
    if what == "variable":
        return variables[rest[0]]
    if what in ("iterate", "follow"):
        parts, rounds = ((rest[:3],), rest[3]) if what == "iterate" else rest
        inner = {number: computed(begin, edges, variables) for number, begin, _ in parts}
        for _ in range(rounds):
            inner = {number: computed(body, edges, {**variables, **inner}) for number, _, body in parts}
        return inner[parts[-1][0]]
    one, *others = (computed(part, edges, variables) for part in rest)
    if what in ("mix", "blend"):
        return _of_one("digest" if what == "mix" else "several", sum(others, one))
    return _of_two(what, one, others[0]) if others else _of_one(what, one)


def _of_one(what: str, one: Table) -> Table:
    out: Table = Counter()
    if what in ("map", "many"):
        for edge, weight in one.items():
            out[operators.merged(edge)] += weight
    elif what == "filter":
        out.update({edge: weight for edge, weight in one.items() if operators.is_ascending(edge)})
    elif what == "distinct":
        out.update(set(one))
    elif what == "min":
        out.update({(min(a for a, c in one if c == b), b) for _, b in one})
    else:
        key_of = operators.start if what in ("count", "max") else operators.group
        for key in {key_of(edge) for edge in one}:
            records = [edge for edge, weight in one.items() for _ in range(weight) if key_of(edge) == key]
            made: dict[str, Callable[[], list[Edge]]] = {
                "count": lambda: [(key, len(records) % NODES)],  # noqa: B023
                "max": lambda: [(key, max(b for _, b in records))],  # noqa: B023
                "digest": lambda: operators.digest(key, records),  # noqa: B023
                "several": lambda: [operators.several(key, records)],  # noqa: B023
                "sums": lambda: [operators.sums(key, records)],  # noqa: B023
            }
            out.update(made[what]())
    return out


def _of_two(what: str, one: Table, other: Table) -> Table:
    sources = {a for a, _ in other}
    if what in ("semi", "anti"):
        return Counter({edge: weight for edge, weight in one.items() if (edge[1] in sources) == (what == "semi")})
    met = {(a, d) for a, b in one for c, d in other if b == c}
    made: dict[str, Callable[[], set[Edge]]] = {
        "concat": lambda: set(one) | set(other),
        "except": lambda: set(one) - set(other),
        "intersect": lambda: set(one) & set(other),
        "compose": lambda: met,
        "left": lambda: met | {(b, a) for a, b in one if b not in sources},
    }
    return Counter(made[what]())


def history(chance: random.Random) -> History:
    """Edges at first; then in each epoch one to three insertions or removals, so that often one part of the input changes alone."""
    there: list[Edge] = []
    out: History = []
    for epoch in range(chance.randint(2, 7)):
        changes: list[tuple[Any, int]] = []
        for _ in range(chance.randint(1, 3) if epoch else chance.choice((4, 8))):
            if there and epoch and chance.random() < 0.5:
                changes.append((there.pop(chance.randrange(len(there))), -1))
            else:
                there.append((chance.randrange(NODES), chance.randrange(NODES)))
                changes.append((there[-1], 1))
        out.append(changes)
    return out


# -- drawn at random -------------------------------------------------------------------------------------------------------
class Drawing:
    """Draws a program. Most have loops in loops, and loops of several variables of which one drives the others: then a change comes to
    a moment long after, and apart from, those with which it counts together, and each of these has to be looked at again."""

    def __init__(self, chance: random.Random, words: Words) -> None:
        self._chance, self._words = chance, words
        self._variables = 0

    def program(self) -> Program:
        """All of it."""
        if self._chance.random() < 0.15:
            return self._part(3, ())
        return self._loop(self._chance.choice((2, 2, 2, 2, 3)), ())

    def _loop(self, deep: int, around: tuple[int, ...]) -> Program:
        """A loop, with so many in each other, its own included."""
        chance = self._chance
        driver, driven = self._variables, self._variables + 1
        self._variables += 2
        rounds = chance.randint(2, 5)
        begins = [self._part(1, around) if chance.random() < 0.3 else self._leaf(around if chance.random() < 0.5 else ()) for _ in range(2)]
        if chance.random() < 0.25:
            return "iterate", driver, begins[0], self._body(deep, (*around, driver), ("variable", driver)), rounds
        step = self._with(("variable", driver), ()) if chance.random() < 0.7 else self._body(1, (driver,), ("variable", driver))
        body = self._body(deep, (*around, driver, driven), ("variable", driver))
        return "follow", ((driver, begins[0], step), (driven, begins[1], body)), rounds

    def _body(self, deep: int, inside: tuple[int, ...], variable: Program) -> Program:
        if deep == 1 and self._chance.random() < 0.6:
            return self._mix(inside)
        part = self._loop(deep - 1, inside) if deep > 1 else self._part(1, inside)
        if deep > 1 and self._chance.random() < 0.4:
            return part
        return self._with(
            part if deep > 1 or self._chance.random() < 0.3 else (self._chance.choice(self._words.two), part, variable), inside
        )

    def _mix(self, inside: tuple[int, ...]) -> Program:
        """Of variables that drive more often than of driven ones: these change in each round of all loops."""
        chance = self._chance
        leaves: list[Program] = [("variable", number) for number in inside if chance.random() < (0.2 if number % 2 else 0.8)]
        leaves += [("edges", part) for part in range(PARTS) if chance.random() < 0.4]
        return (self._words.mix, *leaves) if len(leaves) > 1 else (self._words.mix, ("variable", inside[-1]), ("edges", 0))

    def _with(self, part: Program, inside: tuple[int, ...]) -> Program:
        """The part, as one of those of an operator."""
        if self._chance.random() < 0.4:
            return self._chance.choice(self._words.one), part
        both = [part, self._leaf(inside)]
        self._chance.shuffle(both)
        return self._chance.choice(self._words.two), *both

    def _leaf(self, inside: tuple[int, ...]) -> Program:
        if inside and self._chance.random() < 0.6:
            return "variable", self._chance.choice(inside)
        return "edges", self._chance.choice((*range(PARTS), *range(PARTS), PARTS))

    def _part(self, depth: int, inside: tuple[int, ...]) -> Program:
        what = self._chance.random()
        if depth == 0 or what < 0.2:
            return self._leaf(inside)
        if what < 0.4:
            return self._chance.choice(self._words.one), self._part(depth - 1, inside)
        return self._chance.choice(self._words.two), self._part(depth - 1, inside), self._part(depth - 1, inside)


def drawn(chance: random.Random, words: Words = OF_ROWS) -> Program:
    """A random program: see :class:`Drawing`."""
    return Drawing(chance, words).program()


__all__ = ["OF_COLUMNS", "OF_ROWS", "Program", "Table", "Words", "built", "computed", "drawn", "history"]
