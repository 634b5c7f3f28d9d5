"""Folders of CSV, JSON lines and joined Parquet files, a Delta and an Iceberg table, written by one job on Ray: each record is in each of
them once, though a replica and the coordinator are killed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.snapshots.store import SnapshotStore
from tests.cluster.recovering import Paced, by_value, kill, until
from tests.patience import PATIENCE_S

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
from tests.integrations.iceberg_tables import catalog_in, rows_by_polars, rows_of, table_of  # noqa: E402

pytestmark = pytest.mark.cluster
EPOCHS = [[epoch * 10 + i for i in range(10)] for epoch in range(200)]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__]):
        yield


def test_each_record_is_in_each_output_once(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    flow = rd.Dataflow("outputs")
    rows = flow.source(Paced(EPOCHS, pause_s=0.02), name="ticks").map(lambda n: {"n": n, "word": f"word, {n}", "even": n % 2 == 0})
    rows.write_csv(str(tmp_path / "csv"), name="csv", compression="gzip")
    rows.write_json(str(tmp_path / "json"), name="json", partition_by="even")
    rows.write_parquet(str(tmp_path / "parquet"), name="parquet", compact=True)
    rows.write_delta(str(tmp_path / "delta"), name="delta", partition_by="even")
    catalog = catalog_in(tmp_path / "lake")
    rows.write_iceberg("ns.t", catalog=catalog, name="iceberg")
    snapshots, failures = rd.SnapshotConfig(interval_s=0.1), rd.FailureConfig(max_failures=5)
    config = rd.RunConfig(storage_path=str(tmp_path / "jobs"), snapshots=snapshots, failures=failures)
    job = flow.submit(config, parallelism=1)
    store = SnapshotStore(str(tmp_path / "jobs" / "outputs" / "snapshots"))
    until(lambda: len(store.numbers()) >= 2, "two snapshots")
    for victim in ("VertexActor", "Coordinator"):
        newest = store.numbers()[-1]
        kill(victim, -1)
        until(lambda newest=newest: store.numbers()[-1] > newest + 1, "two snapshots after the kill")  # type: ignore[misc]
    result = job.wait(timeout_s=PATIENCE_S)
    wanted = Counter((n, f"word, {n}", n % 2 == 0) for epoch in EPOCHS for n in epoch)

    def found(rows: list[dict[str, Any]]) -> Counter[tuple[int, str, bool]]:
        return Counter((row["n"], row["word"], row["even"]) for row in rows)

    for folder in ("csv", "json", "parquet"):
        assert found(rd.read_committed(tmp_path / folder).to_table().to_pylist()) == wanted, folder
        assert result[folder].rows == len(wanted)
    table = deltalake.DeltaTable(str(tmp_path / "delta"))
    assert found(table.to_pyarrow_table().to_pylist()) == wanted
    assert table.version() == result["delta"].version
    assert found(rows_of(catalog)) == wanted
    assert found(rows_by_polars(catalog)) == wanted
    assert table_of(catalog).current_snapshot().snapshot_id == result["iceberg"].version
    assert any("-joined-" in name for name in result["parquet"].files)
    assert len(result["parquet"].files) < len(result["csv"].files)
