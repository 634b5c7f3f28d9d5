"""The left join that is measured gives what Polars and DuckDB give, and what it keeps does not grow."""

from __future__ import annotations

from benchmarks import collection_joins


def test_all_systems_give_one_digest() -> None:
    some = collection_joins.tables(3_000, 400)
    wanted = collection_joins.by_polars(*some)
    assert wanted[0] == 3_000
    assert 0 < wanted[1] < wanted[0]
    assert collection_joins.by_duckdb(*some) == wanted
    assert collection_joins.by_rayad(*some) == wanted


def test_bytes_do_not_grow_while_as_much_goes_as_comes() -> None:
    sizes = collection_joins.flat(200, 1_000)
    assert max(sizes[6:]) <= 1.5 * max(sizes[1:6])
