"""Random queries over the tables of the tests: joins of all kinds with any conditions, subqueries, groups, sets."""

from __future__ import annotations

import random

_NUMBERS = (
    "{0}a",
    "{0}b",
    "{0}a + {0}b",
    "{0}b - 1",
    "2",
    "cast(null as bigint)",
    "coalesce({0}a, 0)",
    "case when {0}b > 1 then {0}a end",
    "nullif({0}a, 2)",
)
_TESTS = ("=", "<>", "<", ">=", "is distinct from", "is not distinct from")
_AGGREGATES = ("count(*)", "count({})", "sum({})", "min({})", "max({})", "avg({})", "count(distinct {})")


class Queries:
    """Draws queries.

    Args:
        seed: of what is drawn.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def number(self, of: str) -> str:
        """A number of a row."""
        return self._chance.choice(_NUMBERS).format(f"{of}.")

    def condition(self, *of: str, depth: int = 2) -> str:
        """True, false or null of a row, or of a pair of rows."""
        chance = self._chance
        if depth and chance.random() < 0.5:
            both = self.condition(*of, depth=depth - 1), self.condition(*of, depth=depth - 1)
            return f"({both[0]} {chance.choice(['and', 'or'])} {both[1]})" if chance.random() < 0.7 else f"not ({both[0]})"
        one, other = (self.number(chance.choice(of)) for _ in range(2))
        simple = (
            f"({one} {chance.choice(_TESTS)} {other})",  # DataFusion reads "a is distinct from b or c" as one of (b or c)
            f"{one} is null",
            f"{one} between {other} and 3",
            f"{one} in (1, {other}, null)",
            f"({one} > {other}) is not true",
        )
        return chance.choice(simple)

    def table(self) -> str:
        """Rows with the columns a and b."""
        chance = self._chance
        plain = "select a, b from t", "select a, c as b from u", "select a, b from t where " + self.condition("t")
        return chance.choice((*plain, "select a, sum(b) as b from t group by a", "select distinct b as a, a as b from t"))

    def query(self) -> str:
        """A whole query."""
        return self._chance.choice([self._join, self._subquery, self._groups, self._sets])()

    def subqueries(self) -> str:
        """A query with subqueries anywhere."""
        return self._anywhere(self._chance.randrange(7))

    def subquery_in_a_join(self) -> str:
        """With one in the ON of a join."""
        return self._anywhere(6)

    def both_sides(self) -> str:
        """With a subquery over a join whose sides both use columns of the query around."""
        chance = self._chance
        sides = (f"(select y.a, y.b from ({self.table()}) y where {self._match('y', 'x')}) {name}" for name in ("p", "q"))
        how = chance.choice(["join", "left join", "right join", "full join"])
        what = chance.choice(["count(*)", "count(q.b)", "sum(p.b)", "max(q.a)"])
        return f"select x.a, x.b, (select {what} from {next(sides)} {how} {next(sides)} on p.a = q.a) as v from ({self.table()}) x"

    def bags(self) -> str:
        """With INTERSECT ALL and EXCEPT ALL."""
        how = [self._chance.choice(["intersect all", "except all", "union all", "except"]) for _ in range(2)]
        if self._chance.random() < 0.5:
            return f"{self.table()} {how[0]} {self.table()}"
        return f"{self.table()} {how[0]} {self.table()} {how[1]} {self.table()}"

    def _join(self) -> str:
        how = self._chance.choice(["join", "left join", "right join", "full join"])
        on = ["x.a = y.a", "x.a = y.a and x.b = y.b", "x.a is not distinct from y.b"]
        condition = self._chance.choice([*on, f"x.a = y.a and {self.condition('x', 'y', depth=1)}"])
        where = f" where {self.condition('x', 'y')}" if self._chance.random() < 0.5 else ""
        return f"select x.a p, x.b q, y.a r, y.b s from ({self.table()}) x {how} ({self.table()}) y on {condition}{where}"

    def _subquery(self) -> str:
        chance = self._chance
        match = chance.choice(["y.a = x.a", "y.a = x.b and y.b <> x.a", f"y.a = x.a and {self.condition('y', depth=1)}"])
        inner = f"select y.a from ({self.table()}) y"
        where = chance.choice(
            [
                f"exists ({inner} where {match})",
                f"not exists ({inner} where {match})",
                f"x.a in ({inner})",
                f"x.b not in ({inner})",
                f"x.b not in ({inner} where {self.condition('y')})",
                f"x.b not in ({inner} where {match})",
                f"x.b not in ({inner} where y.b < x.a) and x.a = {chance.choice([1, 2])}",
                f"x.b = 1 and x.b not in ({inner})",
                f"x.b <> 2 and x.b <> all ({inner} where {match})",
                f"x.a > (select min(y.b) from ({self.table()}) y)",
                f"x.b = (select max(y.b) from ({self.table()}) y where y.a = x.a)",
                f"x.a in ({inner}) or {self.condition('x', depth=1)}",
            ]
        )
        return f"select x.a, x.b from ({self.table()}) x where {where}"

    def _groups(self) -> str:
        chance = self._chance
        some = [chance.choice(_AGGREGATES).format(self.number("x")) for _ in range(chance.randrange(1, 4))]
        filtered = [one + (f" filter (where {self.condition('x', depth=1)})" if chance.random() < 0.3 else "") for one in some]
        named = ", ".join(f"{one} as v{at}" for at, one in enumerate(filtered))
        key = self.number("x")
        if chance.random() < 0.3:
            return f"select {named} from ({self.table()}) x where {self.condition('x')}"
        having = f" having {some[0]} > 1" if chance.random() < 0.4 else ""
        return f"select k, {named} from (select {key} as k, x.a, x.b from ({self.table()}) x) x group by k{having}"

    def _sets(self) -> str:
        how = self._chance.choice(["union", "union all", "intersect", "except"])
        return f"{self.table()} {how} {self.table()}"

    # -- subqueries as values --------------------------------------------------------------------------------------
    def _match(self, inner: str, *outer: str) -> str:
        """What rows of a subquery are looked at for a row of the queries around."""
        chance, around = self._chance, self._chance.choice(outer)
        simple = (
            f"{inner}.a {chance.choice(['<', '<>', '>=', '='])} {around}.{chance.choice('ab')}",
            f"({inner}.a is not distinct from {around}.b)",
            f"{inner}.a = {around}.a and {inner}.b <> {chance.choice(outer)}.b",
            f"({inner}.b > {around}.a or {inner}.a = {around}.b)",
            self.condition(inner, *outer, depth=1),
            "true",
        )
        return chance.choice(simple)

    def _inner(self, what: str, depth: int, *outer: str) -> str:
        """A subquery that gives ``what`` of its rows."""
        chance, name = self._chance, f"y{depth}"
        where = self._match(name, *outer)
        if depth < 2 and chance.random() < 0.25:
            where += f" and {self._truth(depth + 1, name, *outer)}"
        source = f"({self.table()}) {name}"
        if chance.random() < 0.2:
            source = f"({self.table()}) {name} {chance.choice(['join', 'left join'])} ({self.table()}) z{depth} on z{depth}.a = {name}.b"
        return f"(select {what.format(f'{name}.')} from {source} where {where})"

    def _truth(self, depth: int, *outer: str) -> str:
        """True, false, or null, by a subquery."""
        chance, value = self._chance, self.number(self._chance.choice(outer))
        kind = chance.choice(["exists", "not exists", "in", "not in", "any", "all", "compared"])
        if kind in ("exists", "not exists"):
            what, end = chance.choice(["1", "1", "count(*)"]), chance.choice(["", "", " limit 1", " offset 1"])
            return f"{kind} {self._inner(what, depth, *outer)[:-1]}{end})"
        if kind == "compared":
            return f"{value} {chance.choice(['<', '=', '>='])} {self._value(depth, *outer)}"
        whats = ("{}a", "{}b", "{}b + 1", "count(*)", "max({}b)", "row_number() over (order by {}a, {}b)")
        many = self._inner(chance.choice(whats).replace("{}", f"y{depth}."), depth, *outer)
        if kind in ("any", "all"):
            return f"({value} {chance.choice(['<', '>=', '<>', '='])} {kind} {many})"
        return f"({value} {kind} {many})"

    def _value(self, depth: int, *outer: str) -> str:
        """A number by a subquery."""
        chance = self._chance
        if chance.random() < 0.1:
            rows = f"from ({self.table()}) y where {self._match('y', *outer)}"
            return f"(select {chance.choice(['count(*)', 'sum(n)'])} from (select y.a, count(*) as n {rows} group by y.a) q)"
        if chance.random() < 0.2:
            some = self._inner("{}b as v, {}a as w".replace("{}", f"y{depth}."), depth, *outer)
            return f"(select v from {some} q order by v, w limit 1)"
        whats = ("count(*)", "count({}b)", "sum({}b)", "max({}a)", "min({}b)", "count(distinct {}a)", "avg({}b)")
        return self._inner(chance.choice(whats), depth, *outer)

    def _anywhere(self, place: int) -> str:
        chance, x = self._chance, f"({self.table()}) x"
        match place:
            case 0:
                return f"select x.a, x.b, {self._truth(1, 'x')} as p, {self._value(1, 'x')} as q from {x}"
            case 1:
                return f"select x.a, x.b from {x} where {self._truth(1, 'x')} or {self.condition('x', depth=1)}"
            case 2:
                return f"select case when {self._truth(1, 'x')} then x.a else {self._value(1, 'x')} end as p from {x}"
            case 3:
                return f"select x.a, x.b from {x} where not ({self._truth(1, 'x')} and {self._truth(1, 'x')})"
            case 4:
                having = self._truth(1, "x").replace("x.b", "x.a")
                return f"select x.a, sum({self._value(1, 'x')}) as p, count(*) as n from {x} group by x.a having {having}"
            case 5:
                return f"select x.a, x.b from {x} where {self._truth(1, 'x')} and {self.condition('x', depth=1)}"
            case _:
                how = chance.choice(["join", "left join", "right join", "full join"])
                on = f"x.a = w.a and {self._truth(1, 'x', 'w')}"
                return f"select x.a p, x.b q, w.a r, w.b s from {x} {how} ({self.table()}) w on {on}"

    def frames(self) -> str:
        """With windows whose frames are by distance, or by groups."""
        chance = self._chance
        bounds = sorted(chance.choices(range(-3, 4), k=2))
        told = [f"{abs(bound)} {'preceding' if bound < 0 else 'following'}" for bound in bounds]
        start, stop = chance.choice([told[0], "unbounded preceding"]), chance.choice([told[1], "unbounded following"])
        order, unit = chance.choice(["", "desc", "nulls first"]), chance.choice(["range", "range", "groups"])
        over = f"order by x.a {order} {unit} between {start} and {stop}"
        partition = chance.choice(["", "partition by x.b "])
        what = chance.choice(["count(*)", "sum(x.b)", "min(x.b)"])
        return f"select x.a, x.b, {what} over ({partition}{over}) as v from ({self.table()}) x"


FORMS = ("subqueries", "subqueries", "subquery_in_a_join", "both_sides", "bags", "frames")
"""Methods that draw a query, the more often the more there is to it."""

__all__ = ["FORMS", "Queries"]
