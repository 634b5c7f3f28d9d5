"""The example of streams, in one process: its dataflow reads files as they appear, crashes, resumes, and is read back by Spark's rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rayad as rd
from tests.examples.running import EXAMPLES
from tests.integrations.sparks_reader import rows_listed


@pytest.fixture(scope="module")
def example() -> Any:
    """The example's module, with its folder on the path for the modules that it imports."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    import spark_streams

    return spark_streams


def test_the_results_of_files_that_appear_are_those_of_plain_python(example: Any, tmp_path: Path) -> None:
    days = 3
    whole = example.flights_data.read_with_arrow(days)
    table = whole.filter(pc.less(pc.random(whole.num_rows, initializer=1), 0.1))
    airport = example.Airport(tmp_path / "in", table)
    flow = rd.Dataflow("flights")
    files = flow.from_folder(airport.folder, "*.parquet", schema=example.flights_data.SCHEMA, every_s=1e-6, until="_DONE")
    for name, stream in example.follow(files.map_batches(example.departed_only)).items():
        stream.write_parquet(str(tmp_path / name), schema=example.TABLES[name], epoch_column="day", spark_log=True)
    config = rd.RunConfig(storage_path=str(tmp_path / "jobs"), snapshots=rd.SnapshotConfig(interval_s=None))
    job = flow.submit(config, runtime="local", seed=1)
    for day in range(days):
        airport.publish(day)
        for _ in range(300):
            job.step()
        job.savepoint()
        job.crash()
    airport.end()
    job.wait()
    flights = [row for row in table.to_pylist() if not row["cancelled"]]
    rows = {name: rows_listed(tmp_path / name) for name in example.TABLES}
    assert example.compare(rows, flights) == []
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["_DONE", "day-000.parquet", "day-001.parquet", "day-002.parquet"]
    assert pq.read_table(tmp_path / "in" / "day-001.parquet").num_rows == pc.sum(pc.equal(table.column("day"), 1)).as_py()
    rows["hours"].append(rows["hours"][0])
    assert example.compare(rows, flights) == ["1 hours came twice"]
