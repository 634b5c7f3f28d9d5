"""Each construct of SQL gives after each epoch what DuckDB gives, over tables with nulls and duplicates whose rows come and go."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from functools import cache

import cloudpickle
import pyarrow as pa
import pytest

import rayad as rd
from tests.sql.against_duckdb import Table, coming_and_going, verify
from tests.thorough import amount

SEEDS = range(amount(each_run=1, soak=20))
T = pa.schema([("a", pa.int64()), ("b", pa.int32()), ("s", pa.string()), ("f", pa.float64()), ("flag", pa.bool_())])
U = pa.schema([("a", pa.int64()), ("c", pa.int64()), ("s", pa.string())])
D = pa.schema(
    [("k", pa.int64()), ("d", pa.decimal128(12, 2)), ("big", pa.decimal128(30, 4)), ("day", pa.date32()), ("ts", pa.timestamp("us"))]
)


@cache
def tables(seed: int) -> dict[str, Table]:
    """Three tables."""
    chance = random.Random(seed)

    def some(*values: object) -> object:
        return chance.choice([None, *values])

    t = [(some(1, 2, 3), some(1, 2, 5), some("x", "yy", "Xz", "%"), some(1.5, -2.0, 0.1, 3.0), some(True, False)) for _ in range(14)]
    u = [(some(1, 2, 4), some(0, 1, 2), some("x", "Q", "")) for _ in range(10)]
    d = [
        (
            some(1, 2),
            some(Decimal("1.50"), Decimal("-3.25"), Decimal("10.00")),
            some(Decimal("123456789012345678901234.5678"), Decimal("-1.0001"), Decimal("7")),
            some(dt.date(2026, 1, 31), dt.date(1999, 12, 31), dt.date(2024, 2, 29)),
            some(dt.datetime(2026, 1, 31, 23, 59, 59, 5), dt.datetime(1969, 7, 20, 20, 17), dt.datetime(2026, 1, 31, 12)),
        )
        for _ in range(10)
    ]
    t += t[:3]
    return {
        "t": coming_and_going(T, t, chance),
        "u": coming_and_going(U, u, chance),
        "d": coming_and_going(D, d, chance),
    }


QUERIES = {
    "projection": "select a, b + a as x, s from t",
    "filter": "select * from t where a > 1 or b = 2",
    "filter not": "select * from t where not (a > 1 and b = 2)",
    "null tests": "select a is null n, b is not null m, (a > b) is true x, (a > b) is not false y, a is distinct from b z from t",
    "arithmetic": "select a - b x, a * b y, -a z, a % b w, f * 2 v, f / 4 q, f + a p from t",
    "comparison": "select a = b x, a <> b y, f >= a z, s < 'y' w from t",
    "case": "select case when a > 1 then 'big' when a = 1 then s else 'none' end x, case b when 1 then f else a end y from t",
    "lazy case": "select case when s = 'x' then 1 else length(s) / nullif(b - 1, 0) end x from t where b is not null and b = 2",
    "like": "select s like '%x%' x, s ilike 'x_' y, s not like '_' z, s like 'x' w from t",
    "in list": "select a in (1, 3) x, a not in (1, null) y, s in ('x', 'q', 'r', 's', 't') z, a in (b, 2) w from t",
    "between": "select a from t where a between b and 3",
    "coalesce": "select coalesce(a, b, 7) x, nullif(a, b) y, greatest(a, b) z, least(a, b, 2) w from t",
    "cast": (
        "select cast(a as varchar) x, cast(f as int) y, cast(b as double) z, cast('12' as int) w, try_cast(s as int) v, cast(a as "
        "decimal(9, 2)) u from t where f is null or f = 3.0"
    ),
    "texts": (
        "select upper(s) a, lower(s) b, length(s) c, s || '!' d, concat(s, 'q', s) e, substring(s, 1, 1) f, trim(s) g, replace(s, "
        "'y', 'zz') h, left(s, 1) i, right(s, 1) j, reverse(s) k, strpos(s, 'z') l, starts_with(s, 'x') m, lpad(s, 3, '*') n, "
        "repeat(s, 2) o from t"
    ),
    "numbers": (
        "select abs(f) a, round(f) b, floor(f) c, ceil(f) d, signum(f) e, round(f, 1) g, sqrt(abs(f)) h, power(f, 2) i, exp(f) j, "
        "ln(abs(f) + 1) k from t"
    ),
    "inner": "select t.a, t.s, u.c from t join u on t.a = u.a",
    "inner two keys": "select t.a, t.b, u.c from t join u on t.a = u.a and t.s = u.s",
    "inner expression": "select t.a, u.c from t join u on t.a + 1 = u.c",
    "inner residual": "select t.a, t.b, u.c from t join u on t.a = u.a and t.b < u.c + 1",
    "left": "select t.a, t.b, u.c from t left join u on t.a = u.a",
    "left residual": "select t.a, t.b, u.c, u.s from t left join u on t.a = u.a and t.b > u.c",
    "right residual": "select t.a, t.b, u.c, u.s from t right join u on t.a = u.a and t.b > u.c",
    "full": "select t.a x, t.b, u.a y, u.c from t full join u on t.a = u.a",
    "full residual": "select t.a x, t.b, u.a y, u.c from t full join u on t.a = u.a and t.b > u.c",
    "only residual": "select t.a, u.c from t join u on t.a < u.c",
    "left only residual": "select t.a, u.c from t left join u on t.a < u.c",
    "cross": "select t.a, u.c from t, u where t.b = 5",
    "using": "select a, t.s, c from t join u using (a)",
    "null safe": "select t.b, u.c from t join u on t.a is not distinct from u.a",
    "three": "select t.a, u.c, d.d from t join u on t.a = u.a left join d on d.k = u.c",
    "self": "select x.a, y.b from t x join t y on x.a = y.b",
    "exists": "select * from t where exists (select 1 from u where u.a = t.a)",
    "not exists": "select * from t where not exists (select 1 from u where u.a = t.a)",
    "exists residual": "select * from t where exists (select 1 from u where u.a = t.a and u.c <> t.b)",
    "not exists residual": "select * from t where not exists (select 1 from u where u.a = t.a and u.c <> t.b)",
    "exists alone": "select * from t where exists (select 1 from u where c > 1)",
    "in": "select * from t where a in (select a from u)",
    "not in": "select * from t where a not in (select a from u)",
    "not in known": "select * from t where a not in (select a from u where a is not null)",
    "not in filtered": "select * from t where a not in (select c from u where s = 'Q')",
    "in or": "select * from t where a in (select a from u) or b = 5",
    "exists or": "select * from t where exists (select 1 from u where u.a = t.a) or not exists (select 1 from u where u.c = t.b)",
    "intersect": "select a from t intersect select a from u",
    "except": "select a from t except select a from u",
    "except rows": "select a, s from t except select a, s from u",
    "union": "select a from t union select c from u",
    "union all": "select a, s from t union all select c, s from u",
    "union of types": "select a from t union all select f from t",
    "distinct": "select distinct a, b from t",
    "values": "select v.x, t.b from (values (1, 'p'), (2, null)) as v(x, y) join t on t.a = v.x",
    "no from": "select 1 as one, 'x' as text",
    "group": "select a, count(*) n, count(b) m, sum(b) s, avg(b) v, min(b) x, max(f) y from t group by a",
    "group two": "select a, s, sum(f) x from t group by a, s",
    "group expression": "select a % 2 as odd, count(*) n from t group by a % 2",
    "group texts": "select a, min(s) x, max(s) y, min(flag) p from t group by a",
    "group keys only": "select a, b from t group by a, b",
    "having": "select a, count(*) n from t group by a having count(*) > 2 and sum(b) is not null",
    "whole": "select count(*) n, count(a) m, sum(b) s, avg(f) v, min(s) x from t",
    "whole of nothing": "select count(*) n, sum(a) s from t where a > 100",
    "whole having": "select count(*) n from t having count(*) > 100",
    "filtered": "select a, count(*) filter (where b > 1) n, sum(f) filter (where flag) s, min(b) filter (where b > 1) m from t group by a",
    "distinct count": "select a, count(distinct b) n from t group by a",
    "distinct several": "select a, count(distinct b) n, count(distinct s) m, sum(distinct b) x, count(*) k from t group by a",
    "distinct whole": "select count(distinct b) n, count(distinct a) m from t",
    "deviation": "select a, stddev(f) x, var_pop(f) y, var_samp(b) z, stddev_pop(b) w from t group by a",
    "deviation whole": "select stddev(f) x, var_samp(b) y, corr(a, b) z, covar_pop(a, b) w from t",
    "truth": "select a, bool_and(flag) x, bool_or(flag) y from t group by a",
    "median": "select a, median(f) x from t group by a",
    "string_agg": "select a, string_agg(s, ',' order by s desc) x from t group by a",
    "first": "select a, first_value(b order by f, b, s) x from t where f is not null group by a",
    "rollup": "select a, b, count(*) n, sum(f) x, grouping(a) g from t group by rollup (a, b)",
    "cube": "select a, s, max(f) x from t group by cube (a, s)",
    "grouping sets": "select a, b, s, sum(f) x from t group by grouping sets ((a, b), (s), ())",
    "nested groups": "select n, count(*) m from (select a, count(*) n from t group by a) group by n",
    "top": "select a, b, f from t order by a desc, b, f limit 3",
    "top of all columns": "select a, b from t order by a nulls first, b nulls first limit 4 offset 2",
    "order alone": "select a, b from t order by a",
    "scalar": "select a, (select max(c) from u) m from t",
    "scalar in filter": "select a from t where b > (select avg(c) from u)",
    "scalar correlated": "select a, b, (select sum(c) from u where u.a = t.a) x from t",
    "scalar count correlated": "select a, b, (select count(*) from u where u.a = t.a) x from t",
    "cte": "with x as (select a, sum(b) n from t group by a) select x.a, y.n from x join x y on x.n = y.n",
    "decimal": "select k, d * 2 a, d + big b, d - d c, d * d e, d > 1 f, -d g, round(d, 1) h, abs(d) i from d",
    "decimal sums": "select k, sum(d) a, sum(big) b, round(avg(d), 4) c, count(d) e, min(d) f, max(big) g, sum(d * d) h from d group by k",
    "decimal whole": "select sum(d) a, sum(big) b, min(big) m from d",
    "dates": (
        "select day + interval '1 month' a, day - interval '3 days' b, extract(year from day) c, extract(month from ts) d, "
        "extract(dow from day) e, ts + interval '1 hour' f from d"
    ),
    "date_trunc": (
        "select date_trunc('month', ts) a, date_trunc('day', day) b, date_trunc('hour', ts) c, date_part('hour', ts) d, extract(doy "
        "from day) e, extract(week from day) f, extract(quarter from day) g from d"
    ),
    "date compare": "select * from d where day >= date '2024-01-01' and ts < timestamp '2026-01-31 12:30:00'",
    "date group": "select date_trunc('month', ts) m, count(*) n, min(day) x, max(ts) y from d group by date_trunc('month', ts)",
    "row_number": "select a, b, row_number() over (partition by a order by b, s, f, flag) x from t",
    "rank": "select a, b, rank() over (partition by a order by b) x, dense_rank() over (partition by a order by b desc) y from t",
    "lag": (
        "select a, b, lag(b) over (partition by a order by b, s, f, flag) x, lead(b, 2) over (partition by a order by b, s, f, flag) "
        "y, lag(b, 1, -1) over (partition by a order by b, s, f, flag) z from t"
    ),
    "window sums": (
        "select a, b, sum(b) over (partition by a) x, count(*) over (partition by a) y, max(f) over () z, avg(f) over (partition by "
        "s) w from t"
    ),
    "running": "select a, b, sum(b) over (partition by a order by b) x, count(*) over (partition by a order by b desc) y from t",
    "rows frame": "select a, b, sum(b) over (partition by a order by b, s, f, flag rows between 1 preceding and 1 following) x from t",
    "window of groups": "select a, sum(sum(b)) over () x from t group by a",
    "recursion": "with recursive r as (select a, c from u union select r.a, u.c from r join u on r.c = u.a) select a, c from r",
    "recursion numbers": (
        "with recursive r as (select 1 as n union all select n + 1 from r where n < 6) select n from r join t on t.a = r.n"
    ),
}
OF_DUCKDB = {
    "numbers": QUERIES["numbers"].replace("signum", "sign"),
    "first": "select a, first(b order by f, b, s) x from t where f is not null group by a",
}
"""Where it has other names."""


@pytest.mark.parametrize("name", QUERIES)
def test_what_a_query_becomes_can_be_sent_to_replicas(name: str) -> None:
    flow = rd.Dataflow("sent")
    made = {table: flow.collection(table, schema=one.schema) for table, one in tables(0).items()}
    flow.sql(QUERIES[name], **made).collect("out")
    for node in flow.graph.nodes:
        cloudpickle.loads(cloudpickle.dumps(node.op))


@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("name", QUERIES)
def test_query(name: str, rows: bool) -> None:
    for seed in SEEDS:
        verify(QUERIES[name], tables(seed), seed, rows=rows, duckdb_query=OF_DUCKDB.get(name))
