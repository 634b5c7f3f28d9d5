"""ParquetSink: nothing is visible before publish, publish can be repeated, and no name leads out of the directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayad.integrations import ParquetSink, ParquetSource
from rayad.integrations.file_output.sink import check_name
from rayad.integrations.file_output.writer import StagedFile
from rayad.progress import ConfigError, DataflowError, Timestamp
from tests.integrations.driving import records, run_sink
from tests.integrations.outputs import files_of, manifest


def names(path: Path) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def test_replicas_records_are_published_with_a_manifest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run_sink(ParquetSink(out), [[(0, [{"a": 1}]), (1, [{"a": 2}])], [(0, pa.record_batch({"a": [3]}))], []])
    assert (result.path, result.rows, len(result.files)) == (str(out), 3, 2)
    found = manifest(out)
    assert [file.name for file in found.files] == list(result.files)
    assert [file.rows for file in found.files] == [2, 1]
    assert files_of(out) == list(result.files)
    assert sorted(row["a"] for row in records(ParquetSource(out))) == [1, 2, 3]


def test_nothing_is_visible_before_publish_and_abort_removes_it(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    writers = [sink.open(i, 2) for i in range(2)]
    for writer in writers:
        writer.write(Timestamp(0), [{"a": 1}])
    staged = writers[0].stage()
    assert all(name.startswith("_staging/") for name in names(tmp_path / "out"))
    assert len(staged) == 1
    writers[1].abort()
    sink.abort()
    sink.abort()
    assert names(tmp_path / "out") == []


def test_publishing_that_was_interrupted_is_finished_by_repeating_it(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    staged = []
    for i in range(2):
        writer = sink.open(i, 2)
        writer.write(Timestamp(0), [{"a": i}])
        staged.append(writer.stage())
    sink.publish(staged[:1])
    receipt = sink.publish(staged)
    assert sink.publish(staged) == receipt
    assert receipt.rows == 2
    assert sorted(row["a"] for row in records(ParquetSource(tmp_path / "out"))) == [0, 1]


def test_each_snapshot_adds_to_what_the_job_published(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    writer = sink.open(0, 1)
    for i in range(3):
        writer.write(Timestamp(i), [{"a": i}])
        assert sink.publish([writer.stage()]).rows == i + 1
    assert sink.publish([writer.stage()]).rows == 3


def test_a_staged_file_that_is_gone_is_named(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    staged = writer.stage()
    Path(staged[0].staged).unlink()
    with pytest.raises(DataflowError, match=r"its staged file .* is gone and .* is missing"):
        sink.publish([staged])


def test_a_directory_that_is_not_empty_is_refused_unless_the_mode_says_otherwise(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_sink(ParquetSink(out), [[(0, [{"a": 1}])]])
    with pytest.raises(ConfigError, match=r"already holds 1 files .*mode='overwrite' or mode='append'"):
        ParquetSink(out).check()
    appended = run_sink(ParquetSink(out, mode="append"), [[(0, [{"a": 2}])]])
    assert appended.rows == 2
    assert sorted(row["a"] for row in records(ParquetSource(out))) == [1, 2]
    overwritten = run_sink(ParquetSink(out, mode="overwrite"), [[(0, [{"a": 3}])]])
    assert overwritten.rows == 1
    assert [row["a"] for row in records(ParquetSource(out))] == [3]
    assert files_of(out) == list(overwritten.files)


def test_files_of_another_job_are_refused_at_publish(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    run_sink(ParquetSink(tmp_path / "out"), [[(0, [{"a": 9}])]])
    with pytest.raises(ConfigError, match="already holds 1 files"):
        sink.publish([writer.stage()])


def test_append_counts_files_that_have_no_manifest(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "old.parquet")
    (tmp_path / "_SUCCESS").write_text("")  # as Spark leaves it
    result = run_sink(ParquetSink(tmp_path, mode="append"), [[(0, [{"a": 3}])]])
    assert result.rows == 3
    assert "old.parquet" in result.files


def test_partitions_by_epoch_and_reads_back_the_epochs(tmp_path: Path) -> None:
    result = run_sink(ParquetSink(tmp_path / "out", partition_by_epoch=True), [[(e, [{"a": e * 10}]) for e in range(20)]])
    assert len(result.files) == 20
    assert result.files[0].startswith("epoch=0/part-")
    rows = records(ParquetSource(tmp_path / "out", epoch="epoch"))
    assert sorted((row["epoch"], row["a"]) for row in rows) == [(e, e * 10) for e in range(20)]
    with pytest.raises(DataflowError, match="partition_by_epoch makes a column 'epoch'"):
        run_sink(ParquetSink(tmp_path / "two", partition_by_epoch=True), [[(0, [{"epoch": 1}])]])


def test_an_epoch_column_is_added(tmp_path: Path) -> None:
    run_sink(ParquetSink(tmp_path / "out", epoch_column="_epoch"), [[(3, [{"a": 1}, {"a": 2}])]])
    assert records(ParquetSource(tmp_path / "out")) == [{"a": 1, "_epoch": 3}, {"a": 2, "_epoch": 3}]
    with pytest.raises(DataflowError, match="epoch_column='a' is already a column"):
        run_sink(ParquetSink(tmp_path / "two", epoch_column="a"), [[(0, [{"a": 1}])]])


@pytest.mark.parametrize("second", [pa.record_batch({"a": ["x"]}), pa.record_batch({"b": [1]}), [{"a": "x"}], [{"a": b"x"}]], ids=str)
def test_schema_drift_names_expected_and_got(tmp_path: Path, second: Any) -> None:
    writer = ParquetSink(tmp_path / "out").open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    with pytest.raises(DataflowError, match="a: int64"):
        writer.write(Timestamp(0), second)


def test_replicas_of_different_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match="replicas gave different columns"):
        run_sink(ParquetSink(tmp_path / "out"), [[(0, [{"a": 1}])], [(0, [{"a": "x"}])]])


def test_a_given_schema_has_priority(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.float64()), ("b", pa.string())])
    sink = ParquetSink(tmp_path / "out", schema=schema)
    run_sink(sink, [[(0, [{"a": 1}]), (0, pa.record_batch({"a": [2], "b": ["x"]}))], [(0, [{"a": None, "b": "y"}])]])
    assert ParquetSource(tmp_path / "out").schema.equals(schema)


def test_keyed_records_become_key_and_value(tmp_path: Path) -> None:
    run_sink(ParquetSink(tmp_path / "out"), [[(0, [("x", 1), ("y", 2)])]])
    assert records(ParquetSource(tmp_path / "out")) == [{"key": "x", "value": 1}, {"key": "y", "value": 2}]


def test_small_batches_share_row_groups(tmp_path: Path) -> None:
    result = run_sink(ParquetSink(tmp_path / "out", row_group_rows=10), [[(0, [{"a": i}]) for i in range(25)]])
    meta = pq.read_metadata(tmp_path / "out" / result.files[0])
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [10, 10, 5]


def test_no_records_give_an_empty_manifest(tmp_path: Path) -> None:
    assert run_sink(ParquetSink(tmp_path / "out"), [[], []]).files == ()
    assert manifest(tmp_path / "out").files == ()


BAD_NAMES = ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\0b", "a\\..\\b", "_SUCCESS", "_staging/x", "_manifests/x"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="refused the file name"):
        check_name(name)
    sink = ParquetSink(tmp_path / "out")
    with pytest.raises(ConfigError, match="refused the file name"):
        sink.publish([(StagedFile(f"{sink.port.path('_staging')}/x", name, 1, 1, pa.schema([])),)])


def test_staged_files_from_elsewhere_are_refused(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    (tmp_path / "secret").write_text("x")
    for staged in (str(tmp_path / "secret"), f"{sink.port.path('_staging')}/../../secret"):
        with pytest.raises(ConfigError, match="refused the staged file"):
            sink.publish([(StagedFile(staged, "a.parquet", 1, 1, pa.schema([])),)])
    assert (tmp_path / "secret").exists()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^write_parquet: mode is 'w': it must be 'error', 'append' or 'overwrite'$"):
        ParquetSink(tmp_path, mode="w")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^write_parquet: row_group_rows is 0: it must be an int of at least 1$"):
        ParquetSink(tmp_path, row_group_rows=0)
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match="is a file; give a directory"):
        ParquetSink(tmp_path / "f")
    with pytest.raises(ConfigError, match="cannot open the URI"):
        ParquetSink("nope://x")
