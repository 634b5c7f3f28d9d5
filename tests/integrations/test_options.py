"""The keywords that editors and type checkers know are those that the classes take."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any, Unpack, get_args, get_origin

import pandas as pd
import polars as pl
import pytest

import rayad as rd
from rayad import integrations
from rayad.dataflow import options
from rayad.integrations.folder import OPTIONS, FolderSource
from rayad.integrations.kafka import KafkaSink, KafkaSource
from rayad.integrations.lines import csv_lines, json_lines
from rayad.integrations.postgres import PostgresSink, PostgresSource


def reader_of(options: Any) -> Any:
    """A stand-in for the reader of a format: a function that takes these options."""
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in options]

    def read() -> None: ...

    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return read


TAKEN_BY: dict[Any, list[Any]] = {
    rd.Dataflow.from_arrow: [integrations.ArrowSource],
    rd.Dataflow.from_pandas: [integrations.PandasSource],
    rd.Dataflow.from_polars: [integrations.PolarsSource],
    rd.Dataflow.from_spark: [integrations.SparkSource, integrations.SparkStream],
    rd.Dataflow.from_ray_dataset: [integrations.RayDatasetSource],
    rd.Dataflow.read_text: [integrations.TextSource],
    rd.Dataflow.read_csv: [integrations.CsvSource, csv_lines],
    rd.Dataflow.read_json: [integrations.JsonLinesSource, json_lines],
    rd.Dataflow.read_parquet: [integrations.ParquetSource],
    rd.Dataflow.read_postgres: [PostgresSource],
    rd.Dataflow.from_folder: [FolderSource, *map(reader_of, OPTIONS.values())],
    rd.Dataflow.from_kafka: [KafkaSource],
    rd.Stream.write_parquet: [integrations.ParquetSink],
    rd.Stream.write_delta: [integrations.DeltaSink],
    rd.Stream.write_iceberg: [integrations.IcebergSink],
    rd.Stream.write_csv: [integrations.CsvSink],
    rd.Stream.write_json: [integrations.JsonSink],
    rd.Stream.write_kafka: [KafkaSink],
    rd.Stream.write_postgres: [PostgresSink],
    rd.Stream.to_ray_dataset: [integrations.RayDatasetSink],
    rd.Stream.to_spark: [integrations.SparkSink],
    rd.Collection.write_delta: [integrations.DeltaTable],
    rd.Collection.write_iceberg: [integrations.IcebergTable],
}


def named(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD} - {"self"}


@pytest.mark.parametrize("method", TAKEN_BY, ids=lambda method: method.__name__)
def test_each_keyword_of_the_class_is_one_of_the_method(method: Any) -> None:
    names = {**vars(sys.modules[inspect.unwrap(method).__module__]), "pd": pd, "pl": pl}  # these two are imported for type checkers alone
    annotation = inspect.signature(method, eval_str=True, globals=names).parameters["options"]
    assert get_origin(annotation.annotation) is Unpack
    (keywords,) = get_args(annotation.annotation)
    known = named(method) | set(keywords.__annotations__)
    taken = set().union(*(named(made) - first(made) for made in TAKEN_BY[method]))
    assert taken - known == set(), "the class takes these"
    assert set(keywords.__annotations__) - taken == set(), "nobody takes these"


def first(function: Any) -> set[str]:
    """The positional ones: what is read or written."""
    return {name for name, one in inspect.signature(function).parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY}


def test_all_are_compared() -> None:
    used = [
        method
        for made in (rd.Dataflow, rd.Stream, *rd.Collection.__mro__)
        for method in vars(made).values()
        if "Unpack[opt." in str(signature(method))
    ]
    assert {method.__name__ for method in used} == {method.__name__ for method in TAKEN_BY}
    of_runs = {"LocalRuntime", "Start", "StartLocally", "tells_options"}
    assert len(set(options.__all__) - of_runs) == len(TAKEN_BY)


def signature(method: Any) -> Any:
    return inspect.signature(method) if inspect.isfunction(method) else ""


@pytest.mark.parametrize("method", TAKEN_BY, ids=lambda method: method.__name__)
def test_help_tells_the_meaning_of_each_option(method: Any) -> None:
    told = (inspect.getdoc(method) or "").partition("Options:\n")[2].splitlines()
    (kind,) = re.findall(r"opt\.(\w+)", str(signature(method).parameters["options"].annotation))
    assert [line.partition(":")[0].strip() for line in told] == sorted(getattr(options, kind).__annotations__)
    assert all(len(line.partition(": ")[2]) > 10 for line in told)


def test_each_meaning_is_of_an_option() -> None:
    kinds = [kind for name in options.__all__ if isinstance(kind := getattr(options, name), type)]
    assert set(options.MEANINGS) <= {name for kind in kinds for name in kind.__annotations__}
