"""A computed Spark DataFrame in the storage of Spark's executors: RayDP's *recoverable RDD*, and when it is released.

RayDP 1.6.5 turns a DataFrame into an RDD of Arrow batches, computes it once into Spark's storage (memory, then disk), and keeps it for as
long as the session lives, so that a partition that is lost with a node can be computed again. RayDP never releases it: without
:meth:`SparkBlocks.release` each read would take up its size in the executors for ever.

The code that made it releases it when its partitions are no longer needed: a bounded read at the end of its job (a recovery may fetch
blocks again until then), a micro-batch when all kept snapshots cover it. If that is forgotten, it is released when the object is collected.
"""

from __future__ import annotations

import functools
import re
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from rayad.actors.process.threads import OwnedThread
from rayad.integrations.spark.executors import compute
from rayad.integrations.spark.jvm import java_frame, java_packages, persistent_rdds
from rayad.integrations.spark.session import actor_exists, session_alive
from rayad.progress import DataflowError, say

EARLY = (
    "Spark stopped too early: keep the session until the job has started (its blocks are fetched then), "
    "and until its end to survive lost nodes"
)
_ACTOR = "raydp-executor-"
FETCHES_MAX = 3
"""How many times a partition is asked for: RayDP restarts an executor that died, under the same name."""
AGAIN_S = 1.0
RESTART_S = 60.0
"""How long an executor that restarts may be unknown to RayDP."""
_NO_ACTOR = re.compile(r"^: java\.util\.NoSuchElementException", re.MULTILINE)
"""What RayDP raises then, and not Spark: an error of the frame itself is a SparkException."""
MADE_AT = "callSite.short"
"""Spark's local property for the place in the program that makes an RDD."""


@dataclass(frozen=True, slots=True)
class SparkBlock:
    """Where one partition of a computed frame is, as plain values that any process of the job can use.

    Args:
        executor: the name of the Ray actor that is the executor.
        rdd, partition: Spark's numbers.
        schema_json: Arrow's, as Java writes it.
        driver_agent_url: where an executor asks for a lost partition to be computed again.
    """

    executor: str
    rdd: int
    partition: int
    schema_json: str
    driver_agent_url: str

    def stream(self) -> pa.Buffer:
        """The partition as an Arrow IPC stream. Raises Ray's error when its executor dies meanwhile, or Spark has ended.

        The bytes as they are, not a table: Ray's serialization of tables fails on the empty offset buffers that Spark writes for a
        partition in which all strings of a list column are missing, and it would encode the Arrow data a second time.
        """
        import ray

        executor = ray.get_actor(self.executor)
        with _calling_java():
            held = executor.getRDDPartition.remote(self.rdd, self.partition, self.schema_json, self.driver_agent_url)
        return pa.py_buffer(ray.get(held))  # ends with the partition, or with the executor

    def table(self) -> pa.Table:
        """The partition's rows. Raises DataflowError when no attempt to fetch them succeeds."""
        import ray

        attempt = 1
        while True:
            try:
                return pa.ipc.open_stream(self.stream()).read_all()
            except (ray.exceptions.RayError, ValueError) as error:  # ValueError: there is no actor of that name
                if attempt == FETCHES_MAX:
                    raise DataflowError(
                        f"from_spark: partition {self.partition} is lost: its executor {self.executor!r} did not give it in {attempt} "
                        f"attempts: {type(error).__name__}: {say(error)}; keep the Spark session until the job has ended"
                    ) from error
            attempt += 1
            time.sleep(AGAIN_S)


@contextmanager
def _calling_java() -> Iterator[None]:
    """Let this process call methods of a Java actor.

    Ray refuses that unless the process "loads code from local". While it does, it exports no class that it could import, and an actor of
    such a class does not start in any other process. Workers are used again, by whatever else runs on Ray: so the flag is put back at once.
    """
    from ray._private.worker import global_worker

    before = global_worker.load_code_from_local
    global_worker.set_load_code_from_local(True)
    try:
        yield
    finally:
        global_worker.set_load_code_from_local(before)


class SparkBlocks:
    """The partitions of ``frame``, computed now. DataflowError if Spark fails.

    ``blocks`` are in the order of the partitions. They can be read until :meth:`release`, or until this object is collected.
    """

    def __init__(self, frame: Any) -> None:
        spark = frame.sparkSession
        try:
            info = _prepare_again(spark, frame)
            self._release = weakref.finalize(self, _releases().ask, spark, int(info.rddId()))
            self._release.atexit = False  # executors end with the driver
            places = _executor_actors(spark, list(info.locations()))
            about = (int(info.rddId()), str(info.schemaJson()), str(info.driverAgentUrl()))
        except DataflowError:
            raise
        except Exception as error:
            if not session_alive(spark):
                raise DataflowError(f"from_spark: Spark ended while it computed the DataFrame. {EARLY}") from error
            raise DataflowError(f"from_spark: Spark could not compute the DataFrame: {error}") from error
        self.blocks = tuple(SparkBlock(place, about[0], index, *about[1:]) for index, place in enumerate(places))

    def release(self) -> None:
        """Spark's executors may forget the partitions. A second call does nothing."""
        held = self._release.detach()
        if held is not None:
            _release(*held[2])


def _prepare_again(spark: Any, frame: Any) -> Any:
    """:func:`_prepare`, repeated while an executor restarts: RayDP looks for the actors of the executors that Spark knows, and
    for a while the new one is known under an id of which there is no actor."""
    deadline_s = time.monotonic() + RESTART_S
    while True:
        try:
            return _prepare(spark, frame)
        except Exception as error:
            if not _NO_ACTOR.search(str(error)) or time.monotonic() > deadline_s or not session_alive(spark):
                raise
        time.sleep(AGAIN_S)


def _prepare(spark: Any, frame: Any) -> Any:
    """Compute ``frame`` into Spark's storage; gives RayDP's description of it. If that fails, nothing stays in the storage.

    RayDP marks the RDD as persistent, then computes it, and gives its number only on success. So after a failure the RDD is found by its
    call site: Spark records one for each RDD, and lets us set it.
    """
    packages = java_packages(spark).org.apache.spark
    level = packages.storage.StorageLevel.MEMORY_AND_DISK()
    made_here = f"from_spark {uuid.uuid4().hex}"

    def prepare() -> Any:
        spark.sparkContext.setLocalProperty(MADE_AT, made_here)
        return packages.sql.raydp.ObjectStoreWriter.prepareRecoverableRDD(java_frame(frame), level)

    try:
        return compute(spark, "from_spark", prepare)
    except Exception:
        for number, rdd in persistent_rdds(spark).items():
            if rdd.getCreationSite() == made_here:
                _release(spark, number, rdd)
        raise


def _release(spark: Any, rdd: int, unfinished: Any = None) -> None:
    """Release an RDD, and wait for that; does nothing when Spark has ended, and its storage with it. ``unfinished``: the RDD itself, where
    RayDP does not know it, since it was not computed to its end."""
    _releases().ask(spark, rdd, unfinished).result()  # ends with the calls to Java


class _Releases:
    """A thread that releases RDDs, with a thread of its own in Java.

    In the thread that computes a micro-batch a release may end half-way: Spark interrupts that one when its query is stopped. And a
    finalizer, which runs in any thread, perhaps in the middle of a call to Java, may neither wait nor take a lock.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Any, int, Any, Future[None]]] = SimpleQueue()
        OwnedThread("spark-release", self._run).start()  # one in a process, with which it ends

    def ask(self, spark: Any, rdd: int, unfinished: Any = None) -> Future[None]:
        """Have an RDD released; gives what ends when it is. ``unfinished``: see :func:`_release`."""
        done: Future[None] = Future()
        self._asked.put((spark, rdd, unfinished, done))
        return done

    def _run(self) -> None:
        while True:
            spark, rdd, unfinished, done = self._asked.get()  # ends with the process: the thread is a daemon
            try:
                java_packages(spark).org.apache.spark.sql.raydp.ObjectStoreWriter.releaseRecoverableRDD(rdd)
                if unfinished is not None:
                    unfinished.unpersist(False)
            except Exception as error:
                if session_alive(spark):
                    done.set_exception(error)
                    continue
            done.set_result(None)
            del spark, unfinished, done  # else kept until the next release


_releases = functools.cache(_Releases)


def _executor_actors(spark: Any, executors: Sequence[str]) -> list[str]:
    """The name of the Ray actor of each Spark executor.

    An executor that died and was started again has a new id in Spark, but its actor keeps the name with the first id. RayDP's master
    knows the first id (RayDP's own conversion looks for an actor with the new id and fails).
    """
    restarted: dict[str, str] = {}
    names: list[str] = []
    for executor in executors:
        if not actor_exists(_ACTOR + executor) and not restarted:
            packages = java_packages(spark)
            master = packages.io.ray.api.Ray.getActor("RAY_APP_MASTER").get()  # ends with this call: get() of an Optional does not wait
            restarted = dict(packages.org.apache.spark.deploy.raydp.RayAppMasterUtils.getRestartedExecutors(master))
        names.append(_ACTOR + restarted.get(executor, executor))
    return names


__all__ = ["EARLY", "SparkBlock", "SparkBlocks"]
