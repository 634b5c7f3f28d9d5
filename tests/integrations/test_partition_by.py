"""``write_parquet(partition_by=...)``: values in the names of directories come back as they were, in their types."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations.file_output import writer
from rayad.progress import ConfigError, DataflowError
from tests.integrations.outputs import is_output
from tests.thorough import examples

SCHEMA = pa.schema(
    [("n", pa.int64()), ("town", pa.string()), ("code", pa.int16()), ("day", pa.date32()), ("open", pa.bool_()), ("big", pa.large_string())]
)
TEXTS = st.sampled_from(["Ulm", "007", "a/b", "..", "50%", "x=y", "Zürich", " ", "nan", "null", "\u2603", "a\\b", "%41"]) | st.none()
ROW = st.fixed_dictionaries(
    {
        "n": st.integers(0, 9),
        "town": TEXTS,
        "code": st.integers(-(2**15), 2**15 - 1) | st.none(),
        "day": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)) | st.none(),
        "open": st.booleans() | st.none(),
        "big": TEXTS,
    }
)
COLUMNS = st.lists(st.sampled_from(["town", "code", "day", "open", "big"]), min_size=1, max_size=3, unique=True)


def write(path: Path, epochs: list[Any], partition_by: Any, **options: Any) -> Any:
    flow = rd.Dataflow("partitioned")
    stream = flow.from_epochs(epochs, batch_rows=4).rebalance(name="spread").map_batches(lambda batch: batch)
    stream.write_parquet(str(path), partition_by=partition_by, name="out", **options)
    return flow.run(runtime="local", parallelism=2)["out"]


@examples(each_run=21, soak=60)
@given(epochs=st.lists(st.lists(ROW, max_size=8), min_size=1, max_size=3), columns=COLUMNS, by_epoch=st.booleans())
def test_values_come_back_in_their_types(
    epochs: list[Any], columns: list[str], by_epoch: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("out") / "table"
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    published = write(out, batches, columns, schema=SCHEMA, partition_by_epoch=by_epoch)
    found = rd.read_committed(str(out)).to_table()
    wanted = Counter(repr([row[name] for name in SCHEMA.names]) for rows in epochs for row in rows)
    if published.files:
        assert Counter(repr(list(row.values())) for row in found.select(SCHEMA.names).to_pylist()) == wanted
    else:
        assert not wanted
    if published.files:
        assert found.schema.field("town").type == pa.string()
        assert {name: found.schema.field(name).type for name in SCHEMA.names} == dict(zip(SCHEMA.names, SCHEMA.types, strict=True))
        assert all(set(columns).isdisjoint(pads.dataset(str(out / name)).schema.names) for name in published.files)
    if by_epoch and published.files:
        assert sorted(found.column("epoch").to_pylist()) == sorted(epoch for epoch, rows in enumerate(epochs) for _ in rows)


def test_directories_are_those_of_hive_and_others_read_them(tmp_path: Path) -> None:
    rows = [{"town": "Ulm", "day": dt.date(2024, 5, 1), "n": 1}, {"town": None, "day": dt.date(2024, 5, 2), "n": 2}]
    schema = pa.schema([("town", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    published = write(tmp_path / "out", [rows], ["day", "town"], schema=schema)
    assert sorted(name.rpartition("/")[0] for name in published.files) == [
        "day=2024-05-01/town=Ulm",
        "day=2024-05-02/town=__HIVE_DEFAULT_PARTITION__",
    ]
    flow = rd.Dataflow("read")
    flow.read_parquet(str(tmp_path / "out")).map(lambda row: (row["n"], row["town"])).collect("rows")
    assert sorted(row for _, row in flow.run(runtime="local")["rows"]) == [(1, "Ulm"), (2, None)]


FORMATS = ("parquet", "csv", "json")


@pytest.mark.parametrize("kind", FORMATS)
def test_our_own_reader_gives_the_types_back(kind: str, tmp_path: Path) -> None:
    """It gave 7 for "007": the text of a directory suggests a number. Of CSV and JSON the columns of directories were not there at all."""
    rows = [{"m": 1, "a code": "007", "n": 1}, {"m": 2, "a code": "8", "n": 2}, {"m": 3, "a code": None, "n": 3}]
    flow = rd.Dataflow("written")
    getattr(flow.from_items(rows), f"write_{kind}")(str(tmp_path / "out"), partition_by="a code", partition_by_epoch=True)
    flow.run(runtime="local")
    flow = rd.Dataflow("read")
    stream = getattr(flow, f"read_{kind}")(str(tmp_path / "out"))
    assert {field.name: str(field.type) for field in stream.schema} == {"m": "int64", "n": "int64", "a code": "string", "epoch": "int64"}
    stream.collect("rows")
    assert sorted((row["n"], row["a code"], row["epoch"]) for _, row in flow.run(runtime="local")["rows"]) == [
        (1, "007", 0),
        (2, "8", 0),
        (3, None, 0),
    ]


@examples(each_run=7, soak=20)
@given(epochs=st.lists(st.lists(ROW, min_size=1, max_size=8), min_size=1, max_size=3), columns=COLUMNS, kind=st.sampled_from(FORMATS))
def test_each_reader_gives_what_its_sink_was_given(
    epochs: list[Any], columns: list[str], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = str(tmp_path_factory.mktemp("out") / "table")
    flow = rd.Dataflow("written")
    stream = flow.from_epochs([pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs])
    getattr(stream, f"write_{kind}")(out, partition_by=columns, schema=SCHEMA)
    flow.run(runtime="local")
    flow = rd.Dataflow("read")
    getattr(flow, f"read_{kind}")(out).select(*SCHEMA.names).collect("rows", columnar=True)
    found = flow.run(runtime="local")["rows"]
    assert Counter(repr(list(row.values())) for row in found.to_pylist()) == Counter(
        repr([row[name] for name in SCHEMA.names]) for rows in epochs for row in rows
    )


def test_values_that_come_round_in_turn_have_a_file_each_and_not_one_a_batch(tmp_path: Path) -> None:
    """Beyond sixteen values each batch closed the files of others: 640 rows made 640 files."""
    rows = [{"k": n % 100, "n": n} for n in range(640)]
    flow = rd.Dataflow("many")
    flow.from_items(rows, batch_rows=64).write_parquet(str(tmp_path / "out"), partition_by="k", name="out")
    published = flow.run(runtime="local")["out"]
    assert (len(published.files), published.rows) == (100, 640)


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WAITING_BYTES_MAX", 2_000)
    rows = [{"k": n % 20, "n": n, "text": "x" * (n % 7)} for n in range(900)]
    published = write(tmp_path / "out", [rows], "k", row_group_rows=13)
    found = rd.read_committed(str(tmp_path / "out")).to_table()
    assert sorted(found.column("n").to_pylist()) == list(range(900))
    assert 20 < len(published.files) < 400


def test_a_column_of_nothing_but_null(tmp_path: Path) -> None:
    write(tmp_path / "out", [[{"town": None, "n": 1}]], "town")
    assert rd.read_committed(str(tmp_path / "out")).to_table().to_pylist() == [{"n": 1, "town": None}]


def test_a_run_that_resumes_goes_on_and_each_row_is_there_once(tmp_path: Path) -> None:
    rows = [{"k": n % 3, "n": n} for n in range(200)]
    config = rd.RunConfig(storage_path=str(tmp_path / "runs"), snapshots=rd.SnapshotConfig(interval_s=1e-6))

    def flow() -> rd.Dataflow:
        made = rd.Dataflow("partitioned")
        made.from_items(rows, batch_rows=10, parts=2).write_parquet(str(tmp_path / "out"), partition_by="k")
        return made

    job = flow().submit(config, runtime="local", seed=4)
    while not rd.committed_files(str(tmp_path / "out")) if is_output(tmp_path / "out") else True:
        job.step()
    job.cancel()
    flow().run(config, runtime="local", resume="latest")
    table = rd.read_committed(str(tmp_path / "out")).to_table()
    assert sorted(zip(table["n"].to_pylist(), table["k"].to_pylist(), strict=True)) == [(n, n % 3) for n in range(200)]


@pytest.mark.parametrize(
    ("partition_by", "rows", "told"),
    [
        ("town", [{"n": 1}], "there is no column 'town'"),
        ("x", [{"n": 1, "x": 0.5}], "'x' is double; a directory's name can be text, an integer, a bool or a date"),
        (["n"], [{"n": 1}], "leaves no column for the files"),
        ("town", [{"n": 1, "town": ""}], "'town' is '', which readers of such directories take for null"),
        ("town", [{"n": 1, "town": "__HIVE_DEFAULT_PARTITION__"}], "take for null: give it another value first"),
    ],
)
def test_what_a_directory_cannot_say_is_refused(partition_by: Any, rows: list[Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match=told):
        write(tmp_path / "out", [rows], partition_by)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("options", [{"partition_by": 3}, {"partition_by": ["a", "a"]}, {"partition_by": "a", "spark_log": True}])
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write_parquet: .*partition_by"):
        rd.Dataflow("refused").from_items([{"a": 1}]).write_parquet(str(tmp_path / "out"), **options)
