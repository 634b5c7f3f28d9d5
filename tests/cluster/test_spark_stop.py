"""After the end of Spark. The module's name puts it after the other tests of the one session."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rayad.integrations import SparkSink, SparkSource, spark_session, stop_spark
from rayad.integrations.spark import executors
from rayad.progress import ConfigError, DataflowError
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


@pytest.mark.usefixtures("spark")
def test_executors_that_are_gone_for_good_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody begins them again: as where RayDP's master ends the one that Ray has begun again, for the one that was lost."""
    stop_spark()
    spark = spark_session("rayad-executors-gone", num_executors=1, configs={"spark.ui.enabled": "false"})
    try:
        monkeypatch.setattr(executors, "ASKS_S", 0.5)
        monkeypatch.setattr(executors, "LOOK_S", 0.2)
        kill_executors()
        assert [row["id"] for row in rows_of(SparkSource(spark.range(0, 100, 1, 2)))] == list(range(100))
        assert executors.executors(spark) == 1
    finally:
        stop_spark(spark)


def kill_executors() -> None:
    """All that there are, so that Ray begins none again."""
    import ray

    for name in ray.util.list_named_actors():
        if name.startswith("raydp-executor-"):
            ray.kill(ray.get_actor(name), no_restart=True)


@pytest.mark.usefixtures("spark")
def test_what_spark_computes_without_an_executor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_spark()  # the one of the fixture, where this test is run again, alone
    spark = spark_session("rayad-without-executors", configs={"spark.ui.enabled": "false"})
    try:
        monkeypatch.setattr(executors, "WITHOUT_S", 3.0)
        monkeypatch.setattr(executors, "LOOK_S", 0.2)
        kill_executors()
        with pytest.raises(DataflowError, match=r"^from_spark: Spark has had no executor for 3 s, and what it computed was cancelled"):
            SparkSource(spark.range(0, 100, 1, 2)).list_parts()
    finally:
        stop_spark(spark)
