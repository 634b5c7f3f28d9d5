"""The operators of random programs as queries: SQL on collections, in loops inside loops."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import rayad as rd
from tests.incremental.laws.operators import NODES, PARTS, Operators

EDGES = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
_NUMBER = "src * 7 + dst * dst * 3 + src * dst"
_SUMS = f"sum({_NUMBER}) * sum({_NUMBER}) + sum({_NUMBER}) * count(*) + count(*)"
_SEVERAL = f"{_SUMS} + max(dst) - min(src)"


def _asked(query: str, one: rd.Collection, *others: rd.Collection) -> rd.Collection:
    """A query over the tables ``a``, ``b``, ... ."""
    tables = {name: collection.with_schema(EDGES) for name, collection in zip("abcdefgh", (one, *others), strict=False)}
    return one.stream.flow.sql(query, **tables).with_schema(EDGES)


def _query(query: str) -> Callable[..., rd.Collection]:
    return lambda one, *others: _asked(query, one, *others)


def _part(edges: rd.Collection, part: int) -> rd.Collection:
    return edges if part == PARTS else _asked(f"select * from a where (src + dst * 2) % {PARTS} = {part}", edges)


def _several(one: rd.Collection, *others: rd.Collection) -> rd.Collection:
    together = " union all ".join(f"select * from {name}" for name in "abcdefgh"[: 1 + len(others)])
    return _asked(f"select ({_SEVERAL}) % {NODES} as src, src % 2 as dst from ({together}) group by src % 2", one, *others)


def _distinct(one: rd.Collection, *others: rd.Collection) -> rd.Collection:
    return _asked(" union ".join(f"select * from {name}" for name in "abcdefgh"[: 1 + len(others)]), one, *others)


IN_SQL: Operators = {
    "part": _part,
    "map": _query(f"select dst as src, (src + dst) % {NODES} as dst from a"),
    "many": _query(f"select dst as src, (src + dst) % {NODES} as dst from a"),
    "filter": _query("select * from a where src < dst"),
    "distinct": _query("select distinct src, dst from a"),
    "count": _query(f"select src, count(*) % {NODES} as dst from a group by src"),
    "max": _query("select src, max(dst) as dst from a group by src"),
    "min": _query("select min(src) as src, dst from a group by dst"),
    "sums": _query(f"select ({_SUMS}) % {NODES} as src, src % 2 as dst from a group by src % 2"),
    "several": _several,
    "blend": _several,
    "concat": _distinct,
    "except": _query("select * from a except select * from b"),
    "intersect": _query("select * from a intersect select * from b"),
    "compose": _query("select distinct a.src, b.dst from a join b on a.dst = b.src"),
    "semi": _query("select * from a where exists (select 1 from b where b.src = a.dst)"),
    "anti": _query("select * from a where dst not in (select src from b)"),
    "left": _query(
        "select distinct case when b.src is null then a.dst else a.src end as src, coalesce(b.dst, a.src) as dst "
        "from a left join b on a.dst = b.src"
    ),
}

__all__ = ["IN_SQL"]
