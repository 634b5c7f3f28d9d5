"""What the examples and notebooks do with Spark, in the session of the tests. With a Spark of their own, as programs: ``make soak``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ray import cloudpickle
from rich.console import Console

import rayad as rd
from rayad.integrations import SparkSource
from tests.cluster.spark_fixtures import spark
from tests.cluster.test_spark_source import read_here
from tests.examples.running import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]
DAYS = 3


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of the examples; they travel with the jobs, since workers cannot import them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    modules = [importlib.import_module(name) for name in ("flights_data", "flights", "spark_streams")]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield importlib.import_module
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_query_in_windows_and_a_loop_a_replica_that_dies_and_queries_out(spark: Any, examples: Any, tmp_path: Path) -> None:
    """``spark_streams.py``, and the cells of its notebook."""
    example, data = examples("spark_streams"), examples("flights_data")
    flights = data.read_with_arrow(DAYS)
    console = Console(record=True, quiet=True, width=200)
    rows = example.through_spark(spark, tmp_path, example.Airport(tmp_path / "in", flights), DAYS, 1, console)
    assert example.compare(rows, [row for row in flights.to_pylist() if not row["cancelled"]]) == []


def test_flights_that_spark_cleans_are_those_that_arrow_cleans(spark: Any, examples: Any, tmp_path: Path) -> None:
    data = examples("flights_data")
    frame = data.read_with_spark(spark, data.unpack(tmp_path), DAYS)
    found = pa.Table.from_batches([batch for _, batch in read_here(SparkSource(frame, epoch="day", parts=2))])
    wanted = data.read_with_arrow(DAYS)
    order = [(name, "ascending") for name in wanted.schema.names]
    assert found.select(wanted.schema.names).cast(wanted.schema).sort_by(order).equals(wanted.sort_by(order))


def test_means_of_a_frame_by_day(spark: Any) -> None:
    """The cell of the first notebook that reads from Spark."""
    frame = spark.range(1000).selectExpr("cast(id % 3 as int) as day", "id % 7 as shop", "cast(id as double) as price")
    flow = rd.Dataflow("from-spark")
    flow.from_spark(frame, epoch="day", name="sales").key_by("shop").mean("price", name="mean-price").collect("means")
    means = flow.run(parallelism=2, timeout_s=120)["means"]
    assert [(time.epoch, shop, f"{mean:.2f}") for time, (shop, mean) in sorted(means)[-7:]] == [
        (2, shop, f"{sum(range(shop, 1000, 7)) / len(range(shop, 1000, 7)):.2f}") for shop in range(7)
    ]
