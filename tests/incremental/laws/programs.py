"""Random programs of operators, with loops inside loops, as collections and computed from scratch."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import rayad as rd
from tests.incremental.programs import History

Program = tuple[Any, ...]
"""An operator and its parts. Leaves are ``("edges", part)`` and ``("variable", number)``."""
Edge = tuple[int, int]
Table = Counter[Any]
NODES = 5
PARTS = 3
"""Of the input; part ``PARTS`` is all of it."""
ONE = ("map", "filter", "distinct", "count", "max", "min", "digest")
TWO = ("concat", "except", "intersect", "compose", "semi", "anti", "left", "mix", "mix", "mix")


class InPart:
    """Whether an edge is in a part of the input: what one part drives does not change with each epoch."""

    def __init__(self, part: int) -> None:
        self.part = part

    def __call__(self, edge: Edge) -> bool:
        return self.part in (PARTS, (edge[0] + 2 * edge[1]) % PARTS)


def merged(edge: Edge) -> Edge:
    """A function that gives one record for several."""
    return edge[1], (edge[0] + edge[1]) % NODES


def is_ascending(edge: Edge) -> bool:
    return edge[0] < edge[1]


def composed(met: Any) -> Edge:
    """Of two edges end to start."""
    return met[1][0][0], met[1][1][1]


def placed(pair: Any) -> Edge:
    """A count as a node."""
    return pair[0], pair[1] % NODES


def missed(met: Any) -> Edge:
    """Of a left join: to where the right edge leads; where there is none, to the start."""
    left, right = met[1]
    return (left[0], right[1]) if right is not None else (left[1], left[0])


def digest(key: int, records: Any) -> list[Edge]:
    """Of all records of a key an edge that changes with each that comes or goes, and follows from no part of them: a moment at which it
    should have been computed again, and was not, is seen."""
    return [(zlib.crc32(repr((key, sorted(records))).encode()) % NODES, key)]


def group(edge: Edge) -> int:
    """Few keys with many records."""
    return edge[0] % 2


def start(edge: Edge) -> int:
    return edge[0]


def end(edge: Edge) -> int:
    return edge[1]


# -- as collections, and from scratch --------------------------------------------------------------------------------------
def built(program: Program, edges: rd.Collection, variables: Mapping[int, rd.Collection]) -> rd.Collection:
    """The program on collections; ``variables``: of the loops around it."""
    what, *rest = program
    if what == "edges":
        return edges if rest[0] == PARTS else edges.filter(InPart(rest[0]))
    if what == "variable":
        return variables[rest[0]]
    if what == "iterate":
        number, begin, body, rounds = rest
        return built(begin, edges, variables).iterate(lambda inner: built(body, edges, {**variables, number: inner}), max_rounds=rounds)
    if what == "follow":
        parts, rounds = rest
        begins = {str(number): built(begin, edges, variables) for number, begin, _ in parts}

        def bodies(inner: dict[str, rd.Collection]) -> dict[str, rd.Collection]:
            return {str(number): built(body, edges, {**variables, **{int(n): c for n, c in inner.items()}}) for number, _, body in parts}

        return rd.fixed_point(begins, bodies, max_rounds=rounds)[str(parts[-1][0])]
    one, *others = (built(part, edges, variables) for part in rest)
    made: dict[str, Callable[[], rd.Collection]] = {
        "map": lambda: one.map(merged),
        "filter": lambda: one.filter(is_ascending),
        "distinct": lambda: one.distinct(),
        "count": lambda: one.key_by(start).count().map(placed),
        "max": lambda: one.key_by(start).max(end),
        "min": lambda: one.key_by(end).min(start).map(lambda pair: (pair[1], pair[0])),
        "digest": lambda: one.key_by(group).reduce(digest).map(lambda pair: pair[1]),
        "mix": lambda: one.concat(*others).key_by(group).reduce(digest).map(lambda pair: pair[1]),
        "concat": lambda: one.concat(*others).distinct(),
        "except": lambda: one.except_(*others),
        "intersect": lambda: one.intersect(*others),
        "compose": lambda: one.key_by(end).join(others[0].key_by(start)).map(composed).distinct(),
        "semi": lambda: one.key_by(end).join(others[0].arrange_by(start), "semi").map(lambda pair: pair[1]),
        "anti": lambda: one.key_by(end).join(others[0].key_by(start), "anti").map(lambda pair: pair[1]),
        "left": lambda: one.key_by(end).join(others[0].key_by(start), "left").map(missed).distinct(),
    }
    return made[what]()


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
    if what == "mix":
        return _of_one("digest", sum(others, one))
    return _of_two(what, one, others[0]) if others else _of_one(what, one)


def _of_one(what: str, one: Table) -> Table:
    out: Table = Counter()
    if what == "map":
        for edge, weight in one.items():
            out[merged(edge)] += weight
    elif what == "filter":
        out.update({edge: weight for edge, weight in one.items() if is_ascending(edge)})
    elif what == "distinct":
        out.update(set(one))
    elif what == "min":
        out.update({(min(a for a, c in one if c == b), b) for _, b in one})
    else:
        key_of = group if what == "digest" else start
        for key in {key_of(edge) for edge in one}:
            records = [edge for edge, weight in one.items() for _ in range(weight) if key_of(edge) == key]
            made: dict[str, Callable[[], list[Edge]]] = {
                "count": lambda: [(key, len(records) % NODES)],  # noqa: B023
                "max": lambda: [(key, max(b for _, b in records))],  # noqa: B023
                "digest": lambda: digest(key, records),  # noqa: B023
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

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
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
        return self._with(part if deep > 1 or self._chance.random() < 0.3 else (self._chance.choice(TWO), part, variable), inside)

    def _mix(self, inside: tuple[int, ...]) -> Program:
        """Of variables that drive more often than of driven ones: these change in each round of all loops."""
        chance = self._chance
        leaves: list[Program] = [("variable", number) for number in inside if chance.random() < (0.2 if number % 2 else 0.8)]
        leaves += [("edges", part) for part in range(PARTS) if chance.random() < 0.4]
        return ("mix", *leaves) if len(leaves) > 1 else ("mix", ("variable", inside[-1]), ("edges", 0))

    def _with(self, part: Program, inside: tuple[int, ...]) -> Program:
        """The part, as one of those of an operator."""
        if self._chance.random() < 0.4:
            return self._chance.choice(ONE), part
        both = [part, self._leaf(inside)]
        self._chance.shuffle(both)
        return self._chance.choice(TWO), *both

    def _leaf(self, inside: tuple[int, ...]) -> Program:
        if inside and self._chance.random() < 0.6:
            return "variable", self._chance.choice(inside)
        return "edges", self._chance.choice((*range(PARTS), *range(PARTS), PARTS))

    def _part(self, depth: int, inside: tuple[int, ...]) -> Program:
        what = self._chance.random()
        if depth == 0 or what < 0.2:
            return self._leaf(inside)
        if what < 0.4:
            return self._chance.choice(ONE), self._part(depth - 1, inside)
        return self._chance.choice(TWO), self._part(depth - 1, inside), self._part(depth - 1, inside)


def drawn(chance: random.Random) -> Program:
    """A random program: see :class:`Drawing`."""
    return Drawing(chance).program()


__all__ = ["NODES", "Program", "Table", "built", "computed", "drawn", "history"]
