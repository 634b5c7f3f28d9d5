"""The executors that Spark has: how many, and an end to what it computes when it has none.

Spark waits for an executor without an end. So a job would stand still, and say nothing, where the executors have died and no new one comes.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rayad.actors.process.threads import OwnedThread
from rayad.integrations.spark.jvm import java_session
from rayad.progress import DataflowError

WITHOUT_S = 120.0
"""How long Spark may be without an executor while something is computed: RayDP begins it again, in seconds on a quiet machine."""
LOOK_S = 2.0


def executors(session: Any) -> int:
    """How many are registered now."""
    return int(java_session(session).sparkContext().getExecutorMemoryStatus().size()) - 1  # the driver counts itself


@contextmanager
def needs_executors(spark: Any, what: str) -> Iterator[None]:
    """Within the block this thread has Spark compute ``what``. Raises DataflowError where Spark has no executor for :data:`WITHOUT_S`."""
    context, tag = spark.sparkContext, f"rayad-{uuid.uuid4().hex}"
    watch = _Watch(spark, tag)
    context.addJobTag(tag)
    try:
        yield
    except Exception as error:
        if not watch.has_cancelled:
            raise
        raise DataflowError(
            f"{what}: Spark has had no executor for {WITHOUT_S:g} s, and what it computed was cancelled; look at RayDP's executors "
            "(`ray list actors`), give the cluster room for them, and start the job again"
        ) from error
    finally:
        watch.close()
        context.removeJobTag(tag)


class _Watch:
    """Cancels the jobs with a tag when there is no executor for too long."""

    def __init__(self, spark: Any, tag: str) -> None:
        self.has_cancelled = False
        self._spark = spark
        self._tag = tag
        self._over = threading.Event()
        self._thread = OwnedThread("spark-executors", self._run, stop=self._over.set).start()

    def close(self) -> None:
        """The thread may be within a call to Java, which ends."""
        self._thread.close(LOOK_S)

    def _run(self) -> None:
        since_s = time.monotonic()
        while not self._over.wait(LOOK_S):
            try:
                if executors(self._spark):
                    since_s = time.monotonic()
                elif time.monotonic() - since_s > WITHOUT_S:
                    self.has_cancelled = True
                    self._spark.sparkContext.cancelJobsWithTag(self._tag)
            except Exception:
                return  # Spark has ended: what it computes ends, too
