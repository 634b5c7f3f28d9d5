"""Spark reads what ``write_parquet``, ``write_csv`` and ``write_json`` wrote, and finds the columns in the names of directories."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.cluster.spark_fixtures import spark

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]

TEXTS = [
    "Ulm",
    "007",
    "a/b",
    "50%",
    "x=y",
    "Zürich",
    " ",
    "nan",
    "\u2603",
    "a\\b",
    "%41",
    "a:b",
    "{x}",
    "2024-05-01",
    "..",
    '"',
    "a+b",
    None,
]
KINDS = {
    "n": pa.int64(),
    "v": pa.float64(),
    "word": pa.string(),
    "town": pa.string(),
    "day": pa.date32(),
    "num": pa.int32(),
    "ok": pa.bool_(),
}
DAYS, NUMBERS = [dt.date(2024, 5, 1), None], [3, None, -2]
ROWS = [
    dict(zip(KINDS, (n, n / 4, f'say "{n}", \\\n', town, DAYS[n % 2], NUMBERS[n % 3], n > 9), strict=True)) for n, town in enumerate(TEXTS)
]
SPARKS = {"n": "bigint", "v": "double", "word": "string", "town": "string", "day": "date", "num": "int", "ok": "boolean"}


def written(out: Path, kind: str, columns: list[str]) -> None:
    flow = rd.Dataflow("files")
    stream = flow.from_epochs([ROWS[:7], ROWS[7:]], batch_rows=4)
    getattr(stream, f"write_{kind}")(str(out), partition_by=columns, schema=pa.schema(list(KINDS.items())))
    flow.run(runtime="local")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_spark_finds_partitions_and_reads_each_row(spark: Any, kind: str, tmp_path: Path) -> None:
    for columns in (["town"], ["day", "town"], ["num", "ok"], []):
        out = tmp_path / "-".join(["out", *columns])
        written(out, kind, columns)
        in_files = [name for name in KINDS if name not in columns]
        reader = spark.read.schema(", ".join(f"`{name}` {SPARKS[name]}" for name in [*in_files, *columns]))
        if kind == "csv":
            reader = reader.option("header", True).option("escape", '"').option("multiLine", True)
        frame = getattr(reader, kind)(str(out))
        found = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["n"])
        assert [{name: row[name] for name in KINDS} for row in found] == ROWS, columns
        assert rd.read_committed(out).to_table().select(list(KINDS)).sort_by("n").to_pylist() == ROWS


def test_spark_guesses_the_types_of_directories(spark: Any, tmp_path: Path) -> None:
    """What it gives without a schema, so that the page says the truth: bools are text, and a text that looks like a number is one."""
    written(tmp_path / "ok", "parquet", ["day", "num", "ok"])
    assert dict(spark.read.parquet(str(tmp_path / "ok")).dtypes)["day"] == "date"
    assert dict(spark.read.parquet(str(tmp_path / "ok")).dtypes)["num"] == "int"
    assert dict(spark.read.parquet(str(tmp_path / "ok")).dtypes)["ok"] == "string"
