"""After the end of Spark. The module's name puts it after the other tests of the one session."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rayad.integrations import SparkSink, SparkSource, stop_spark
from rayad.progress import ConfigError
from tests.cluster.spark_fixtures import TIMES_S, spark
from tests.cluster.test_spark_source import rows_of

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]


def test_blocks_survive_the_session_and_later_use_of_it_is_refused(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listed = SparkSource(spark.range(0, 100, 1, 2))
    listed.list_parts()
    late = SparkSource(spark.range(10))
    frame = spark.range(5)
    sink = SparkSink(spark)
    started = time.perf_counter()
    stop_spark(spark)
    TIMES_S["spark stop"] = time.perf_counter() - started
    assert [row["id"] for row in rows_of(listed)] == list(range(100))
    for act in (late.list_parts, lambda: SparkSource(frame)):
        with pytest.raises(ConfigError, match=r"has been stopped. Spark stopped too early: keep the session until the job has started"):
            act()
    with pytest.raises(ConfigError, match=r"to_spark: the Spark session has been stopped; keep it until the job has ended"):
        sink.result(())
    stop_spark()
    with capsys.disabled():
        print("\n" + "\n".join(f"{seconds:8.2f} s  {phase}" for phase, seconds in TIMES_S.items()))
