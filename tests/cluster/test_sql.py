"""SQL on real Ray, in columns: a process is killed and the layout changes between epochs, and each result is DuckDB's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import rayad as rd
from tests.cluster.recovering import by_value, kill, surviving
from tests.patience import PATIENCE_S
from tests.sql import against_duckdb
from tests.sql.against_duckdb import Table, asked, same, tables_of

pytestmark = pytest.mark.cluster
QUERY = """select x.name, count(*) as n, sum(t.v) as total, max(t.v) filter (where t.v > 1) as most
           from t left join x on t.k = x.k and t.v > x.least group by x.name"""
T = pa.schema([("k", pa.int64()), ("v", pa.int64())])
X = pa.schema([("k", pa.int64()), ("name", pa.string()), ("least", pa.int64())])
TABLES = {
    "t": Table(
        T,
        [
            [((1, 1), 1), ((2, 2), 1), ((None, 3), 1)],
            [((1, 5), 1), ((2, 2), -1)],
            [((1, 5), 1), ((1, 1), -1), ((2, None), 1)],
            [((1, 5), -1), ((2, 7), 1)],
            [((1, 5), -1), ((2, None), -1), ((None, 3), -1), ((2, 7), -1)],
        ],
    ),
    "x": Table(X, [[((1, "one", 2), 1), ((2, "two", 0), 1)], [], [((2, "two", 0), -1)], [((2, "zwei", 0), 1)], []]),
}


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__], against_duckdb):
        yield


def test_results_are_right_after_each_epoch_whatever_happens_meanwhile(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    flow = rd.Dataflow("sql")
    made = flow.sql(QUERY, **{name: flow.collection(name, schema=table.schema) for name, table in TABLES.items()})
    made.changes().probe("seen").collect("out")
    job = flow.submit(surviving(tmp_path), rd.ScalingConfig(parallelism=1, placement="workers"))
    live = {name: job.collection(name) for name in TABLES}
    for epoch in range(5):
        for name, table in TABLES.items():
            for weight, give in ((1, live[name].insert), (-1, live[name].remove)):
                rows = [dict(zip(table.schema.names, row, strict=True)) for row, often in table.changes[epoch] if often == weight]
                if rows:
                    give(pa.Table.from_pylist(rows, table.schema))
            live[name].advance_to(epoch + 1)
        if epoch == 1:
            kill("WorkerActor", -1)
        if epoch == 2:
            job.rescale("aggregate", 2, timeout_s=PATIENCE_S)
        assert job.probe("seen").wait(epoch, timeout_s=PATIENCE_S)
    for one in live.values():
        one.close()
    result = job.wait(timeout_s=PATIENCE_S)
    assert made.schema is not None
    for epoch, got in enumerate(tables_of(result["out"], made.schema.names, 5)):
        assert same(got, asked(QUERY, TABLES, epoch)), f"epoch {epoch}: {got}"
    assert result.statistics.failures == 1
    nothing_left()
