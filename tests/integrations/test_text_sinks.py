"""``write_csv`` and ``write_json``: committed as Parquet is, and every value comes back as it was, or is refused."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations import CsvSink, JsonSink
from rayad.integrations.file_output.committed import read_manifest
from rayad.progress import ConfigError, DataflowError, RayadError
from rayad.testing import check_sink
from tests.every_type.arrays import COLUMNS
from tests.thorough import amount, by_turns, examples

FORMATS = ["csv", "json"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", '"', "a,b", "x\ny", "\r", "\r\n", " x ", "NA", "null", "nan", "\\", '\\"', "\ufeff", "007", "\0", "\u2028", "''"]
)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "g": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), TEXTS),
    "l": (pa.large_string(), TEXTS),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us"), MOMENTS),
    "z": (pa.timestamp("us", "Europe/Berlin"), MOMENTS.map(lambda moment: moment.replace(year=2 + moment.year % 9000, tzinfo=dt.UTC))),
    "m": (pa.decimal128(38, 9), st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-9, Context(prec=40)))),
    "o": (pa.duration("us"), st.timedeltas(dt.timedelta(days=-90_000), dt.timedelta(days=90_000))),
}


def schema_of(names: Iterable[str]) -> pa.Schema:
    return pa.schema([("i", pa.int64()), *((name, KINDS[name][0]) for name in names)])


def write(path: Path, kind: str, epochs: list[Any], **options: Any) -> Any:
    flow = rd.Dataflow("texts")
    stream = flow.from_epochs(epochs, batch_rows=3).rebalance(name="spread").map_batches(lambda batch: batch)
    getattr(stream, f"write_{kind}")(str(path), name="out", **options)
    return flow.run(runtime="local", parallelism=2)["out"]


def flow_read(path: Path, kind: str, **options: Any) -> pa.Table:
    flow = rd.Dataflow("read")
    getattr(flow, f"read_{kind}")(str(path), **options).collect("out", columnar=True)
    return flow.run(runtime="local")["out"]


def by_i(table: pa.Table) -> pa.Table:
    return table.sort_by("i").combine_chunks()


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(1, 12))
    columns = [draw(st.lists(KINDS[name][1] | st.none(), min_size=count, max_size=count)) for name in names]
    arrays = [pa.array(range(count)), *(pa.array(values, KINDS[name][0]) for name, values in zip(names, columns, strict=True))]
    return pa.Table.from_arrays(arrays, schema=schema_of(names))


@pytest.mark.parametrize("kind", FORMATS)
@examples(each_run=21, soak=60)
@given(table=tables(), compression=st.sampled_from([None, "gzip", "bz2"]), in_rows=st.booleans())
def test_values_come_back_as_they_were(
    kind: str, table: pa.Table, compression: str | None, in_rows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("out") / "table"
    epoch = table.to_pylist() if in_rows else table.to_batches()[0]
    published = write(out, kind, [epoch], schema=table.schema, compression=compression)
    assert published.rows == table.num_rows
    assert by_i(rd.read_committed(out).to_table()).equals(by_i(table))
    assert by_i(flow_read(out, kind)).equals(by_i(table))  # its types come from the manifest
    shutil.rmtree(out / "_manifests")  # the files alone
    options = {"null": ""} if kind == "csv" else {}
    assert by_i(flow_read(out, kind, schema=table.schema, **options)).equals(by_i(table))


@by_turns(3)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_every_type_comes_back_or_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    column = COLUMNS[name]
    table = pa.table({"i": pa.array(range(len(column))), "x": column})
    refused = f"write_{kind}: column 'x' is .* does not hold exactly"
    if name in held(kind):
        write(tmp_path / "out", kind, [table.to_batches()[0]])
        for found in (rd.read_committed(tmp_path / "out").to_table(), flow_read(tmp_path / "out", kind)):
            assert found.schema == table.schema
            assert by_i(found).to_pylist() == table.to_pylist()
        return
    with pytest.raises(RayadError, match=refused):
        write(tmp_path / "out", kind, [table.to_batches()[0]])


def held(kind: str) -> list[str]:
    """The types that a format takes where they are declared."""
    out = []
    for name, column in COLUMNS.items():
        try:
            CsvOrJson[kind]("nowhere", schema=pa.schema([("x", column.type)]))
            out.append(name)
        except DataflowError as error:
            assert "does not hold exactly" in str(error)  # noqa: PT017
    return out


CsvOrJson: dict[str, Any] = {"csv": CsvSink, "json": JsonSink}


def test_which_types_text_holds() -> None:
    csv, json_lines = set(held("csv")), set(held("json"))
    both = {"int8", "uint64", "float64", "string", "date32", "date64", "timestamp[ns]", "duration[s]", "dictionary of strings"}
    assert both <= csv & json_lines
    assert csv - json_lines == {"time32[s]", "time32[ms]", "time64[us]", "time64[ns]"}
    more = {"list", "large_list", "struct", "decimal32(9, 2)", "decimal64(18, 2)", "decimal256(76, 20)"}
    assert json_lines - csv == more
    assert not {"binary", "float16", "map", "uuid", "string_view", "fixed_size_list"} & (csv | json_lines)


def test_other_programs_read_csv(tmp_path: Path) -> None:
    rows = [
        {"i": 0, "s": "a", "f": 1.5, "d": dt.date(2024, 5, 1), "t": dt.datetime(2024, 5, 1, 12, 0, 0, 1)},
        {"i": 1, "s": 'say "x, y"\nz', "f": None, "d": None, "t": None},
    ]
    published = write(tmp_path / "out", "csv", [rows], schema=pa.schema([
        ("i", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("d", pa.date32()), ("t", pa.timestamp("us"))]))  # fmt: skip
    paths = [str(tmp_path / "out" / name) for name in published.files]
    frame = pd.concat([pd.read_csv(path, parse_dates=["d", "t"]) for path in paths]).sort_values("i")
    assert frame["s"].tolist() == ["a", 'say "x, y"\nz']
    assert frame["t"].iloc[0] == pd.Timestamp(2024, 5, 1, 12, 0, 0, 0).replace(microsecond=1)
    assert frame["f"].isna().tolist() == [False, True]
    assert duckdb.read_csv(paths, quotechar='"', escapechar='"').order("i").fetchall() == [tuple(row.values()) for row in rows]


def test_other_programs_read_json(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"i": 0, "s": "☃\n", "d": dt.date(2024, 5, 1), "v": [1, None], "r": {"a": 1, "t": dt.datetime(2024, 5, 1, 12)}},
        {"i": 1, "s": None, "d": None, "v": [], "r": None},
    ]
    record = pa.struct([("a", pa.int64()), ("t", pa.timestamp("us"))])
    fields = {"i": pa.int64(), "s": pa.string(), "d": pa.date32(), "v": pa.list_(pa.int64()), "r": record}
    published = write(tmp_path / "out", "json", [rows], schema=pa.schema(fields))
    lines = [json.loads(line) for name in published.files for line in (tmp_path / "out" / name).read_text().splitlines()]
    assert sorted(lines, key=lambda line: line["i"]) == [
        {"i": 0, "s": "☃\n", "d": "2024-05-01", "v": [1, None], "r": {"a": 1, "t": "2024-05-01 12:00:00.000000"}},
        {"i": 1, "s": None, "d": None, "v": [], "r": None},
    ]
    paths = [str(tmp_path / "out" / name) for name in published.files]
    assert duckdb.read_json(paths).order("i").fetchall() == [tuple(row.values()) for row in rows]
    frame = pd.concat([pd.read_json(path, lines=True) for path in paths])
    assert sorted(frame["i"]) == [0, 1]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("by_epoch", [False, True])
def test_partitions_come_back_in_their_types(kind: str, by_epoch: bool, tmp_path: Path) -> None:
    schema = pa.schema([("i", pa.int64()), ("town", pa.string()), ("day", pa.date32()), ("d", pa.date32())])
    day = dt.date(2024, 5, 1)
    rows = [{"i": i, "town": [None, "007", "a/b"][i % 3], "day": day + dt.timedelta(i % 2), "d": day} for i in range(20)]
    write(tmp_path / "out", kind, [rows[:10], rows[10:]], schema=schema, partition_by=["town", "day"], partition_by_epoch=by_epoch)
    found = rd.read_committed(tmp_path / "out").to_table()
    assert by_i(found.select(schema.names)).to_pylist() == rows
    assert found.select(schema.names).schema == schema
    if by_epoch:
        assert by_i(found)["epoch"].to_pylist() == [0] * 10 + [1] * 10
    assert sorted(flow_read(tmp_path / "out", kind).select(["i", "d"]).to_pylist(), key=lambda row: row["i"]) == [
        {"i": row["i"], "d": day} for row in rows
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_sinks_keep_the_contract(kind: str, tmp_path: Path) -> None:
    places = itertools.count()

    def rows(sink: Any) -> list[Any]:
        if read_manifest(sink.filesystem, sink.path) is None:
            return []
        return list(rd.read_committed(sink.path).to_table().to_pylist())

    for mode in ("error", "append", "overwrite"):
        check_sink(
            lambda mode=mode: CsvOrJson[kind](str(tmp_path / str(next(places))), mode=mode), rows, histories=amount(each_run=2, soak=5)
        )


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("seed", range(5))
def test_jobs_that_crash_and_resume_give_each_record_once(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    out = tmp_path / "out"
    config = rd.RunConfig(storage_path=str(tmp_path / "runs"), snapshots=rd.SnapshotConfig(keep=50))

    def program() -> rd.Dataflow:
        flow = rd.Dataflow("job")
        numbers = flow.from_epochs([[{"i": epoch * 100 + i, "s": "x\ny"} for i in range(20)] for epoch in range(5)], batch_rows=3, parts=2)
        getattr(numbers.rebalance().map(lambda row: row), f"write_{kind}")(str(out), name="out", compression="gzip")
        return flow

    job = program().submit(config, runtime="local", parallelism=2, seed=seed)
    for _ in range(300):
        if not job.step():
            break
        if chance.random() < 0.05:
            job.savepoint()
        if chance.random() < 0.03:
            job.crash()
    job.cancel()
    program().run(config, runtime="local", parallelism=2, resume="latest")
    assert sorted(row["i"] for row in rd.read_committed(out).to_table().to_pylist()) == [e * 100 + i for e in range(5) for i in range(20)]


def test_append_goes_on_with_files_that_were_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.csv").write_text("i,s\n1,a\n2,b\n")
    published = write(out, "csv", [[{"i": 3, "s": "c"}]], mode="append")
    assert published.rows == 3
    assert sorted(rd.read_committed(out).to_table()["i"].to_pylist()) == [1, 2, 3]
    write(out, "csv", [pa.record_batch({"i": [4, 5], "s": ["", None]})], mode="overwrite")
    assert by_i(rd.read_committed(out).to_table()).to_pylist() == [{"i": 4, "s": ""}, {"i": 5, "s": None}]
    assert not (out / "old.csv").exists()


def test_an_output_is_of_one_format(tmp_path: Path) -> None:
    write(tmp_path / "out", "csv", [[{"i": 1}]])
    with pytest.raises(ConfigError, match=r"holds an output of other files: \{'kind': 'csv', 'delimiter': ','\}, these would be"):
        write(tmp_path / "out", "json", [[{"i": 1}]], mode="append")
    with pytest.raises(ConfigError, match="these would be parquet; write to another directory"):
        write(tmp_path / "out", "parquet", [[{"i": 1}]], mode="overwrite")
    assert rd.read_committed(tmp_path / "out").to_table().to_pylist() == [{"i": 1}]


@pytest.mark.parametrize(
    ("kind", "rows", "told"),
    [
        ("json", [{"x": math.nan}], "JSON has no NaN and no infinity, record {'x': nan} has one"),
        ("json", [{"x": [1.0, math.inf]}], "JSON has no NaN and no infinity"),
        ("json", [{"x": dt.time(1)}], "column 'x' is time64.us., which JSON does not hold exactly: cast it to text"),
        ("csv", [{"x": [1]}], "column 'x' is list<.*>, which CSV does not hold exactly: explode"),
        ("csv", [{"x": {"a": 1}}], "column 'x' is struct<.*>, which CSV does not hold exactly: unnest"),
        ("csv", [{"x": b"1"}], "column 'x' is binary, which CSV does not hold exactly: make text of it, as by base64"),
        ("csv", [{"x": 1}, {"x": None}], "column 'x', the only one of the files, has a null: its line would be empty"),
    ],
)
def test_what_text_cannot_say_is_refused(kind: str, rows: list[Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match=told):
        write(tmp_path / "out", kind, [rows])
    assert not list(tmp_path.rglob("part-*.csv")) + list(tmp_path.rglob("part-*.jsonl"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([-(2**63)], pa.timestamp("ns")),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([1], pa.int64()).view(pa.date64()),
    ],
    ids=lambda column: str(column.type),
)
def test_moments_that_have_no_text_are_refused(kind: str, column: pa.Array, tmp_path: Path) -> None:
    sink = CsvOrJson[kind](tmp_path / "out")
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), pa.record_batch({"i": [1], "x": column}))
    with pytest.raises(DataflowError, match=f"write_{kind}: column 'x' of type"):
        writer.stage()


def test_nan_and_infinity_come_back_from_csv(tmp_path: Path) -> None:
    write(tmp_path / "out", "csv", [pa.record_batch({"i": [0, 1, 2, 3], "x": pa.array([math.nan, math.inf, -math.inf, None])})])
    for table in (rd.read_committed(tmp_path / "out").to_table(), flow_read(tmp_path / "out", "csv")):
        assert repr(by_i(table)["x"].to_pylist()) == "[nan, inf, -inf, None]"


def test_files_are_compressed_and_separated_as_asked(tmp_path: Path) -> None:
    published = write(tmp_path / "out", "csv", [[{"a": 1, "b": "x;y"}]], delimiter=";", compression="gzip")
    (name,) = published.files
    assert name.endswith(".csv.gz")
    assert gzip.decompress((tmp_path / "out" / name).read_bytes()) == b'"a";"b"\n1;"x;y"\n'
    assert rd.read_committed(tmp_path / "out").to_table().to_pylist() == [{"a": 1, "b": "x;y"}]
    assert flow_read(tmp_path / "out", "csv", delimiter=";").to_pylist() == [{"a": 1, "b": "x;y"}]


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("csv", {"delimiter": "."}, "write_csv: delimiter='.': give one character"),
        ("csv", {"delimiter": ""}, "write_csv: delimiter='': give one character"),
        ("csv", {"compression": "snappy"}, "write_csv: compression is 'snappy': it must be 'gzip', 'bz2' or None"),
        ("json", {"mode": "w"}, "write_json: mode is 'w'"),
        ("json", {"partition_by": 3}, "write_json: partition_by is 3"),
    ],
)
def test_what_cannot_be_meant_is_refused(kind: str, options: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        write(tmp_path / "out", kind, [[{"a": 1}]], **options)


def test_read_csv_takes_a_text_for_null(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s\n1,-\n-,"-"\n2,\n')
    assert flow_read(tmp_path / "a.csv", "csv", null="-").to_pylist() == [{"n": 1, "s": None}, {"n": None, "s": "-"}, {"n": 2, "s": ""}]
    with pytest.raises(ConfigError, match="read_csv: null=3: give a text"):
        flow_read(tmp_path / "a.csv", "csv", null=3)


def test_read_json_refuses_a_date_with_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"d":"2024-05-01 12:00:00"}\n')
    with pytest.raises(DataflowError, match=r"column 'd' of type timestamp\[s\] cannot become date32"):
        flow_read(tmp_path / "a.jsonl", "json", schema=pa.schema([("d", pa.date32())]))
    flow = rd.Dataflow("lenient")
    (tmp_path / "b.jsonl").write_text('{"d":"2024-05-01 12:00:00"}\n{"d":"2024-05-02"}\n')
    read = flow.read_json(str(tmp_path / "b.jsonl"), schema=pa.schema([("d", pa.date32())]), on_error="skip")
    read.collect("out")
    assert [row for _, row in flow.run(runtime="local")["out"]] == [{"d": dt.date(2024, 5, 2)}]


def test_rows_and_columns_of_all_kinds_give_the_same_files(tmp_path: Path) -> None:
    table = pa.table({"i": pa.array(range(50)), "f": pa.array(np.linspace(-1, 1, 50)), "s": [f"{n}" for n in range(50)]})
    for kind in FORMATS:
        write(tmp_path / f"{kind}-rows", kind, [table.to_pylist()])
        write(tmp_path / f"{kind}-columns", kind, table.to_batches())
        texts = [
            Counter(line for path in (tmp_path / f"{kind}-{of}").glob("part-*") for line in path.read_text().splitlines())
            for of in ("rows", "columns")
        ]
        assert {line for line in texts[0] if not line.startswith('"i"')} == {line for line in texts[1] if not line.startswith('"i"')}
