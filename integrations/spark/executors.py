"""The executors that Spark has: how many, others where it has lost all, and an end to what it computes when none comes.

Spark waits for an executor without an end. So a job would stand still, and say nothing, where the executors have died and no new one comes.
Ray begins a lost one again; but where it is up before RayDP's master has heard of the loss (``onDisconnected`` of ``RayAppMaster``), the
master ends it for the one that was lost, and Ray begins it no more. So Spark asks for as many as it had.
A call to Java cannot be ended from outside: it runs in a thread of its own, which is given up where Spark does not end it, either.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from rayad.actors.process.threads import OwnedThread
from rayad.integrations.spark.jvm import java_packages, java_session
from rayad.progress import DataflowError

_log = logging.getLogger(__name__)
T = TypeVar("T")
WITHOUT_S = 120.0
"""How long Spark may be without an executor while something is computed: Ray begins it again, in seconds on a quiet machine."""
ASKS_S = 20.0
"""After how long without an executor Spark asks for others."""
IDLE_S = 600.0
"""How long nothing of it may run after its last Spark job: then only RayDP asks the executors where the partitions are."""
GRACE_S = 20.0
"""How long the call may take to end after Spark has cancelled what it computed."""
LOOK_S = 2.0


def executors(session: Any) -> int:
    """How many Spark's scheduler has now.

    Not by their storage (``getExecutorMemoryStatus``): where an executor dies as it registers, that is still known of minutes later.
    """
    return int(java_session(session).sparkContext().getExecutorIds().size())


def ask_for_executors(session: Any) -> None:
    """Have Spark ask for as many as it was begun with, where it has none.

    Not more often than needed: what has been asked for and is not up is asked for again, as far as RayDP knows.
    """
    context = java_session(session).sparkContext()
    wanted = int(context.getConf().get("spark.executor.instances", "1"))
    _log.warning("Spark has no executor, and Ray begins none: %d are asked for", wanted)
    none_yet = getattr(java_packages(session).scala.collection.immutable, "Map$")
    context.requestTotalExecutors(wanted, 0, getattr(none_yet, "MODULE$").empty())


def compute(spark: Any, what: str, call: Callable[[], T]) -> T:
    """What ``call`` gives, which has Spark compute ``what``. It runs in a thread of its own, with the local properties of this one.

    Raises its error, or DataflowError where Spark has no executor for :data:`WITHOUT_S`, or nothing runs for :data:`IDLE_S`: the Spark jobs
    are cancelled then, and a call that does not end within :data:`GRACE_S` is left behind.
    """
    from pyspark import inheritable_thread_target

    work = _Work(spark, call)
    OwnedThread("spark-compute", inheritable_thread_target(work.run)).start()  # ends with the call, or is given up
    trouble = None
    try:
        while trouble is None:
            if work.has_ended(LOOK_S):
                return work.ended.result()  # ends with this call: it has ended
            trouble = work.trouble()
    finally:
        work.cancel()  # of a call that has ended nothing runs
    has_ended = work.has_ended(GRACE_S)
    error = work.ended.exception() if has_ended else None  # ends with this call
    if has_ended and error is None:
        return work.ended.result()  # ends with this call: it was about to end
    raise DataflowError(
        f"{what}: {trouble}, and what it computed was cancelled; look at RayDP's executors (`ray list actors`), give the cluster room for "
        "them, and start the job again"
    ) from error


class _Work(Generic[T]):
    """A call that has Spark compute something, and what Spark says of it meanwhile."""

    def __init__(self, spark: Any, call: Callable[[], T]) -> None:
        self.ended: Future[T] = Future()
        self._spark = spark
        self._call = call
        self._tag = f"rayad-{uuid.uuid4().hex}"
        self._executor_at_s = self._job_at_s = time.monotonic()
        self._has_had_job = False
        self._has_asked = False

    def run(self) -> None:
        """Call; in the thread of the call."""
        try:
            self._spark.sparkContext.addJobTag(self._tag)  # of this thread, and what it begins
            self.ended.set_result(self._call())
        except BaseException as error:
            self.ended.set_exception(error)

    def has_ended(self, within_s: float) -> bool:
        """Whether the call ends within this."""
        return bool(wait([self.ended], within_s).done)

    def trouble(self) -> str | None:
        """Why the call will not end; None while it may."""
        now_s = time.monotonic()
        try:
            if executors(self._spark):
                self._executor_at_s, self._has_asked = now_s, False
            elif now_s - self._executor_at_s > ASKS_S and not self._has_asked:
                self._has_asked = True
                ask_for_executors(self._spark)
            if self._runs():
                self._job_at_s, self._has_had_job = now_s, True
        except Exception:  # Spark has ended: so does the call, or it is given up as without an executor
            self._has_had_job = False
        if now_s - self._executor_at_s > WITHOUT_S:
            return f"Spark has had no executor for {WITHOUT_S:g} s"
        if self._has_had_job and now_s - self._job_at_s > IDLE_S:
            return f"Spark's jobs have ended, and nothing has come of them for {IDLE_S:g} s"
        return None

    def _runs(self) -> bool:
        """Whether Spark has a job of the call now."""
        tracker = java_session(self._spark).sparkContext().statusTracker()
        active = set(tracker.getActiveJobIds())
        return bool(active) and not active.isdisjoint(tracker.getJobIdsForTag(self._tag))

    def cancel(self) -> None:
        """Have Spark end its jobs, so that the call ends."""
        try:
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
        except Exception as error:
            _log.debug("Spark has ended: %s", error)
