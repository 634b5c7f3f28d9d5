"""Queries are right after each epoch while replicas fail, snapshots are taken, and the layout changes between any two steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.dataflow.operators.state.runs import disk, files
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import History
from tests.sql.against_duckdb import Row, Table, asked, plain, tables_of
from tests.sql.test_queries import QUERIES as PLAIN
from tests.sql.test_queries import T, tables
from tests.sql.test_subqueries import QUERIES as OF_SUBQUERIES
from tests.thorough import amount, by_turns

NAMES = ("left residual", "not in", "distinct several", "whole", "top", "recursion", "rank", "filtered", "scalar correlated", "except rows")
NEW = ("nested", "in correlated", "full join inside", "bags inside")
QUERIES = {
    **PLAIN,
    **OF_SUBQUERIES,
    "frame": "select a, b, sum(b) over (partition by s order by a range between 1 preceding and 1 following) x from t",
}
BOUND = 1 << 20
SEEDS = range(amount(each_run=1, soak=40))


@dataclass(frozen=True)
class Asked:
    """A query over tables of which one changes as it is said, as a program to be disturbed.

    Args:
        query: of it.
        tables: the others.
    """

    query: str
    tables: dict[str, Table]

    def flow(self, changes: History) -> rd.Dataflow:
        """See ``disturbed.Program``."""
        flow = rd.Dataflow("disturbed")
        given = {"t": Table(T, [[(tuple(row), weight) for row, weight in some] for some in changes]), **self.tables}
        made = {name: flow.from_arrow(table.arrow(), epoch="epoch", batch_rows=3).drop("epoch") for name, table in given.items()}
        flow.sql(self.query, **{name: stream.as_collection(diff="diff") for name, stream in made.items()}).collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """See there."""
        there = {"t": Table(T, changes), **self.tables}
        names = list(collected[0][1][0]) if collected else []
        for epoch, got in enumerate(tables_of(collected, names, max(len(table.changes) for table in there.values()))):
            want = Counter(tuple(map(plain, row)) for row in asked(self.query, there, epoch))
            mine: Counter[Row] = Counter()
            for row, often in got.items():
                mine[tuple(map(plain, row))] += often
            assert mine == want, f"{self.query}, epoch {epoch}: {mine}, not {want}"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few rows go to disk, are merged in pieces of a few rows, and are files of snapshots."""
    for name, value in (("FILE_BYTES_MIN", 1), ("HELD_PART", BOUND), ("LEFT_PART", BOUND >> 5), ("PIECE_PART", BOUND >> 8)):
        monkeypatch.setattr(disk, name, value)
    monkeypatch.setattr(files, "FILED_BYTES_MIN", 60)


@by_turns(2)
@pytest.mark.parametrize("name", [*NAMES, NEW[0]])
def test_results_are_right_on_disk(name: str, tmp_path: Path, tiny: None) -> None:
    for seed in SEEDS:
        given = tables(seed + 90)
        program = Asked(QUERIES[name], {other: table for other, table in given.items() if other != "t"})
        run_disturbed(program, given["t"].changes, seed, tmp_path / str(seed), state_memory_bytes=BOUND)


@by_turns(2)
@pytest.mark.parametrize("name", [*NAMES, *NEW, "frame"])
def test_results_are_right_whatever_happens_meanwhile(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        given = tables(seed + 50)
        query = QUERIES[name]
        program = Asked(query, {other: table for other, table in given.items() if other != "t"})
        run_disturbed(program, given["t"].changes, seed, tmp_path / str(seed))
