"""Folders of CSV and of joined Parquet files, Delta and Iceberg tables, on a server that speaks S3, written by a job that crashes and is
resumed from a savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import rayad as rd
from tests.integrations.object_store import ObjectStore, serving, serving_apart

ROWS = [[{"n": epoch * 10 + i, "word": f"a,\n{i}", "even": i % 2 == 0} for i in range(10)] for epoch in range(6)]


@pytest.fixture
def objects() -> Iterator[ObjectStore]:
    with serving() as store:
        yield store


def written(objects: ObjectStore, write: Any, **config: Any) -> None:
    """Write by a job that crashes behind each of its savepoints; then once more from one of these."""

    def program() -> rd.Dataflow:
        flow = rd.Dataflow("outputs")
        write(flow.from_epochs(ROWS, batch_rows=3, parts=2).rebalance().map(lambda row: row))
        return flow

    run = {"storage_path": objects.uri("jobs"), "snapshots": rd.SnapshotConfig(interval_s=None, keep=50)}
    job = program().submit(rd.RunConfig(**run), runtime="local", seed=5, parallelism=2)
    savepoints = []
    for _ in range(4):
        for _ in range(12):
            job.step()
        savepoints.append(job.savepoint())
        if len(savepoints) in (2,):
            job.crash()
    job.cancel()
    program().run(rd.RunConfig(**run, resume=savepoints[2]), runtime="local", seed=6, parallelism=2)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in ("n", "word", "even")} for row in rows), key=lambda row: row["n"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files(objects: ObjectStore, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.file_output.compacting.JOIN_FILES", 2)
    options = {"compact": True} if kind == "parquet" else {"compression": "gzip"}
    uri = objects.uri("out")
    written(objects, lambda rows: getattr(rows, f"write_{kind}")(uri, partition_by="even", **options))
    assert in_order(rd.read_committed(uri).to_table().to_pylist()) == [row for rows in ROWS for row in rows]
    names = [path.removeprefix("out/") for path in objects.paths() if path.startswith("out/")]
    assert sorted(name for name in names if name.startswith("even=")) == sorted(rd.committed_files(uri).files)
    assert any("-joined-" in name for name in names) == (kind == "parquet")


def test_a_delta_table() -> None:
    deltalake = pytest.importorskip("deltalake")
    with serving_apart() as objects:
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        options = {**keys, "AWS_ENDPOINT_URL": f"http://{objects.endpoint}", "AWS_ALLOW_HTTP": "true"}
        filesystem = fs.S3FileSystem(
            access_key="key", secret_key="secret", endpoint_override=objects.endpoint, scheme="http", region="us-east-1"
        )
        uri = f"s3://{objects.bucket}/table"
        written(objects, lambda rows: rows.write_delta(uri, partition_by="even", storage_options=options, filesystem=filesystem))
        found = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()
        assert in_order(found) == [row for rows in ROWS for row in rows]


def test_an_iceberg_table(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from tests.integrations.iceberg_tables import catalog_in, rows_of, table_of

    with serving_apart() as objects:
        keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
        lake = {"warehouse": f"s3://{objects.bucket}/lake", "s3.endpoint": f"http://{objects.endpoint}"}
        catalog = {**catalog_in(tmp_path), **keys, **lake}
        written(objects, lambda rows: rows.write_iceberg("ns.t", catalog=catalog, partition_by=["even", "bucket(2, n)"]))
        expected = [row for rows in ROWS for row in rows]
        assert in_order(rows_of(catalog)) == expected
        flow = rd.Dataflow("kept")
        rows = rd.Collection(flow.from_epochs([[({**row, "word": "new"}, 1) for row in expected[:3]]]))
        rows.write_iceberg("ns.t", key=["n", "even"], catalog=catalog)
        flow.run(runtime="local")
        assert in_order(rows_of(catalog)) == [{**row, "word": "new"} for row in expected[:3]] + expected[3:]
        assert table_of(catalog).location() == f"s3://{objects.bucket}/lake/ns/t"
        assert not [path for path in objects.paths() if "/_staging/" in path]
