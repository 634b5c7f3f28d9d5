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


__all__ = ["Queries"]
