"""All 22 queries of TPC-H give after each epoch what DuckDB gives, over tables that come and go."""

from __future__ import annotations

from functools import cache

import pytest

from tests.sql.against_duckdb import Table, verify
from tests.sql.tpch import QUERIES, tables
from tests.thorough import amount

SEEDS = range(amount(each_run=2, soak=10))


@cache
def _tables(seed: int) -> dict[str, Table]:
    return tables(seed, scale=2)


def _read(query: str, seed: int) -> dict[str, Table]:
    return {name: table for name, table in _tables(seed).items() if name in query}


@pytest.mark.parametrize("number", QUERIES)
def test_query(number: int) -> None:
    query = QUERIES[number]
    compared = sum(verify(query, _read(query, seed), seed) for seed in SEEDS)
    assert compared, "it compared no row"
