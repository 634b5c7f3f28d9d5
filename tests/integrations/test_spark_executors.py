"""A wait for what Spark computes ends, whatever Spark does: it is given up where no executor comes. See test_spark_stop.py, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rayad.integrations.spark import executors
from rayad.integrations.spark.executors import compute
from rayad.progress import DataflowError

pytest.importorskip("pyspark")


class Spark:
    """What the watch asks Spark for: how many executors there are, and which jobs run."""

    def __init__(self) -> None:
        self.count = 1
        self.active: list[int] = []
        self.tags: dict[str, list[int]] = {}
        self.cancelled = threading.Event()
        java = SimpleNamespace(
            getExecutorIds=lambda: SimpleNamespace(size=lambda: self.count),
            statusTracker=lambda: SimpleNamespace(
                getActiveJobIds=lambda: self.active, getJobIdsForTag=lambda tag: [1] if tag in self.tags else []
            ),
        )
        self._jsparkSession = SimpleNamespace(sparkContext=lambda: java)
        self.sparkContext = SimpleNamespace(
            addJobTag=lambda tag: self.tags.setdefault(tag, []), cancelJobsWithTag=lambda tag: self.cancelled.set()
        )


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Bounds of hundredths of seconds; set at the end, for the threads that wait for it."""
    event = threading.Event()
    for name, seconds in (("WITHOUT_S", 0.05), ("IDLE_S", 0.1), ("GRACE_S", 0.05), ("LOOK_S", 0.01)):
        monkeypatch.setattr(executors, name, seconds)
    yield event
    event.set()


@pytest.mark.usefixtures("over")
def test_the_result_and_the_error_of_the_call_are_given() -> None:
    def fail() -> None:
        raise LookupError("no such column")

    assert compute(Spark(), "from_spark", lambda: 7) == 7
    with pytest.raises(LookupError, match="no such column"):
        compute(Spark(), "from_spark", fail)


def test_a_call_that_hangs_without_an_executor_is_given_up(over: threading.Event) -> None:
    spark = Spark()
    spark.count = 0
    with pytest.raises(
        DataflowError, match=r"^from_spark: Spark has had no executor for 0.05 s, and what it computed was cancelled"
    ) as caught:
        compute(spark, "from_spark", lambda: over.wait(60.0))
    assert spark.cancelled.is_set()
    assert caught.value.__cause__ is None


def test_what_ends_because_it_was_cancelled_is_the_cause() -> None:
    spark = Spark()
    spark.count = 0

    def call() -> None:
        assert spark.cancelled.wait(60.0)
        raise LookupError("job cancelled")

    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in (("WITHOUT_S", 0.05), ("GRACE_S", 60.0), ("LOOK_S", 0.01)):
            patch.setattr(executors, name, seconds)
        with pytest.raises(DataflowError, match="no executor") as caught:
            compute(spark, "from_spark", call)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_call_that_hangs_after_its_last_job_is_given_up(over: threading.Event) -> None:
    """Executors are there again, and Spark has computed all: what RayDP then asks them for never comes."""
    spark = Spark()

    def call() -> Any:
        spark.active = [1]
        assert not over.wait(0.2), "the job runs: no reason to give up"
        spark.active = [2]  # somebody else's
        return over.wait(60.0)

    with pytest.raises(DataflowError, match=r"^from_spark: Spark's jobs have ended, and nothing has come of them for 0.1 s"):
        compute(spark, "from_spark", call)


def test_a_call_without_any_job_yet_may_take_its_time(over: threading.Event) -> None:
    assert compute(Spark(), "from_spark", lambda: over.wait(0.3)) is False


def test_the_end_of_spark_ends_the_wait(over: threading.Event) -> None:
    spark = Spark()

    def ended() -> Any:
        raise ConnectionRefusedError("the gateway is gone")

    spark._jsparkSession.sparkContext = ended
    with pytest.raises(DataflowError, match=r"no executor for 0\.05 s"):
        compute(spark, "from_spark", lambda: over.wait(60.0))
