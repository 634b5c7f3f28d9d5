"""Windows with frames by GROUPS and by distance give after each epoch what DuckDB gives."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

import rayad as rd
from tests.sql.against_duckdb import verify
from tests.sql.test_queries import SEEDS, tables

OF_T = {
    "a": ("2 preceding and current row", "1 following and 2 following", "unbounded preceding and 1 preceding"),
    "f": ("1.5 preceding and 0.5 following", "unbounded preceding and 2 following"),
    "b": ("1 preceding and unbounded following", "3 preceding and 2 preceding"),
}
OF_D = {
    "day": ("interval '3 days' preceding and interval '1 month' following", "unbounded preceding and interval '1 day' preceding"),
    "ts": ("interval '12 hours' preceding and interval '1 second' following", "interval '2 years' preceding and current row"),
    "d": ("4.75 preceding and 8.5 following",),
}
ORDERS = ("", " desc", " nulls first", " desc nulls last")


@pytest.mark.parametrize("column", OF_T)
@pytest.mark.parametrize("order", ORDERS)
def test_numbers(order: str, column: str) -> None:
    for seed, frame in product(SEEDS, OF_T[column]):
        of_one, of_all = (f"({by}order by {column}{order} range between {frame})" for by in ("partition by s ", ""))
        query = f"select {column}, s, sum(a) over {of_one} n, count(*) over {of_all} m, last_value({column}) over {of_all} k from t"
        verify(query, tables(seed), seed, rows=column == "b")


@pytest.mark.parametrize("column", OF_D)
def test_decimals_dates_and_moments(column: str) -> None:
    for seed, frame, order in product(SEEDS, OF_D[column], ("", " desc")):
        over = f"(partition by k order by {column}{order} range between {frame})"
        verify(f"select k, {column}, count(*) over {over} n, min(big) over {over} m from d", tables(seed), seed)


@pytest.mark.parametrize("frame", ["1 preceding and current row", "1 following and 2 following", "2 preceding and 1 preceding"])
def test_groups(frame: str) -> None:
    for seed in SEEDS:
        verify(f"select a, sum(b) over (partition by s order by a desc groups between {frame}) n from t", tables(seed), seed)


def test_a_distance_between_moments_is_an_interval() -> None:
    flow = rd.Dataflow("bare")
    t = flow.collection("t", schema=pa.schema([("day", pa.date32())]))
    with pytest.raises(rd.DataflowError, match="is over dates or moments: give an interval, such as interval '1 day'"):
        flow.sql("select count(*) over (order by day range between 2 preceding and current row) n from t", t=t)
