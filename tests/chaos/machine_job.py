"""The job that runs while machines are disturbed: a live input, a keyed count, a loop, Parquet, CSV, JSON, collected results. Its driver's
side, and its model.

The functions run in the driver on machine 1 (see :mod:`tests.machines.driver`); none of them waits for the job. Four threads of the driver
use the job meanwhile: one sends, one watches epochs become complete, one waits until they are saved, and one asks how the job is.
"""

from __future__ import annotations

import collections
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import ray

import rayad as rd
from rayad.integrations import CsvSink, JsonSink, ParquetSink
from tests.chaos import steps
from tests.machines.driver import KEPT
from tests.machines.jobs import addresses

EPOCH_S = 0.1
RECORDS = 20
OUTPUTS = ("counts", "steps", "numbers")
"""Folders below ``out``: Parquet, CSV, JSON."""
SAVE_S = 5.0
"""How long one call waits for an epoch to be saved."""
ASK_EVERY_S = 0.5
Rows = collections.Counter[tuple[int, int, int]]
"""Epoch, key, value."""


class Status(NamedTuple):
    """Where the job is, as its driver knows."""

    sent: int = -1
    """The last epoch that was sent."""
    done: int = -1
    """The last one that is complete at both probes."""
    saved: int = -1
    """The last one of which ``wait_saved`` said that the driver need not have it any more."""
    error: str = ""
    is_over: bool = False
    longest_s: dict[str, float] = {}  # noqa: RUF012
    """By call: how much longer than the time that it was given one has taken, since this was last asked; calls under way count."""


def numbers(seed: int, epoch: int) -> list[int]:
    """The records of an epoch."""
    rng = random.Random(f"{seed}/{epoch}")
    return [rng.randrange(1, 60) for _ in range(RECORDS)]


def _step(record: tuple[int, int, int]) -> tuple[int, int, int]:
    first, n, steps = record
    return first, (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1


class _Parquet(steps.Watched, ParquetSink):
    pass


class _Csv(steps.Watched, CsvSink):
    pass


class _Json(steps.Watched, JsonSink):
    pass


def build(name: str, folder: str, *, compact: bool) -> rd.Dataflow:
    """The dataflow."""
    flow = rd.Dataflow(name)
    live = flow.input("numbers")
    counts = live.key_by(lambda n: n % 7).count(name="counts")
    counts.probe("counted")
    counts.collect("totals")
    parquet = _Parquet(f"{folder}/out/counts", epoch_column="epoch", compact=compact)
    text, lines = _Csv(f"{folder}/out/steps", epoch_column="epoch"), _Json(f"{folder}/out/numbers", epoch_column="epoch")
    parquet.steps = text.steps = lines.steps = f"{folder}/steps"
    counts.map(lambda pair: {"key": pair[0], "value": pair[1]}).sink(parquet, name="counts-files")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.rebalance().map(_step)
        return stepped.filter(lambda r: r[1] != 1), stepped.filter(lambda r: r[1] == 1)

    ended = live.map(lambda n: (n, n, 0)).iterate(body, name="collatz")
    ended.probe("ended")
    ended.map(lambda r: {"key": r[0], "value": r[2]}).sink(text, name="steps-files")
    live.rebalance().map(lambda n: {"key": n, "value": -n}).sink(lines, name="numbers-files")
    return flow


class Feeder:
    """Sends one epoch after the other until it is told to stop, and knows which epochs are complete, and which are saved."""

    def __init__(self, name: str, seed: int, folder: str, heartbeat_timeout_s: float, *, detached: bool, compact: bool) -> None:
        failures = rd.FailureConfig(max_failures=1000, delay_s=0.1, delay_max_s=1.0, heartbeat_timeout_s=heartbeat_timeout_s)
        snapshots = rd.SnapshotConfig(interval_s=1.0)
        config = rd.RunConfig(storage_path=f"{folder}/jobs", snapshots=snapshots, failures=failures, start_timeout_s=120.0)
        self.seed = seed
        scaling = rd.ScalingConfig(parallelism=2, placement="vertices")
        self.job = build(name, folder, compact=compact).submit(config, scaling, detached=detached)
        self.live = self.job.input("numbers")
        self.sent = self.done = self.saved = -1
        self.error = ""
        self.totals: Rows = collections.Counter()
        self.stopping = threading.Event()
        self.over = threading.Event()
        self._began: dict[str, tuple[float, float]] = {}  # calls under way: when, and what they were given
        self._longest: dict[str, float] = {}
        for work in (self.feed, self.watch, self.save, self.ask):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            if not self.over.is_set():
                self.error = self.error or f"{work.__name__}: {type(error).__name__}: {error}"

    def feed(self) -> None:
        """Send. What a keeper could not take, because the store is away, is sent again: nobody was told that it was taken."""
        while not self.stopping.wait(EPOCH_S):
            batch = numbers(self.seed, self.sent + 1)
            self._until_taken(lambda batch=batch: self.live.send(batch))
            self._until_taken(lambda: self.live.advance_to(self.sent + 2))
            self.sent += 1
        self._until_taken(self.live.close)
        result = self.job.wait()
        self.totals.update((at.epoch, key, value) for at, (key, value) in result["totals"])
        self.over.set()

    def _until_taken(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                return call()
            except rd.SnapshotError:
                if self.over.wait(0.2):
                    raise

    def watch(self) -> None:
        """Watch epochs become complete at both probes."""
        while not self.over.is_set():
            epoch = self.done + 1
            if all(self.job.probe(name).wait(epoch, timeout_s=2.0) for name in ("counted", "ended")):
                self.done = max(epoch, min(self._frontier(), self.sent))

    def _frontier(self) -> int:
        times = [time for name in ("counted", "ended") for time in self.job.probe(name).frontier()]
        return min((time.epoch for time in times), default=0) - 1

    def save(self) -> None:
        """Wait again and again until all that was sent is saved, as a driver does that acknowledges it to an outer system."""
        while not self.over.wait(0.2):
            epoch = self.sent
            if epoch > self.saved:
                with self.timed("wait_saved", SAVE_S):
                    try:
                        self.live.wait_saved(epoch, timeout_s=SAVE_S)
                    except (TimeoutError, rd.SnapshotError):  # the latter: the keeper cannot write that somebody waits
                        continue
                self.saved = epoch

    def ask(self) -> None:
        """Ask how the job is, whatever state it is in: each question has an answer at once."""
        while not self.over.wait(ASK_EVERY_S):
            for name in ("status", "progress", "explain_stuck"):
                with self.timed(name, 0.0):
                    getattr(self.job, name)()

    @contextmanager
    def timed(self, name: str, given_s: float) -> Iterator[None]:
        """Note how long a call takes beyond what it was given."""
        self._began[name] = time.monotonic(), given_s
        try:
            yield
        finally:
            began_s, given_s = self._began.pop(name)
            self._longest[name] = max(self._longest.get(name, 0.0), time.monotonic() - began_s - given_s)

    def longest(self) -> dict[str, float]:
        """See :class:`Status`."""
        found, self._longest = self._longest, {}
        for name, (began_s, given_s) in list(self._began.items()):
            found[name] = max(found.get(name, 0.0), time.monotonic() - began_s - given_s)
        return found


def start(name: str, seed: int, folder: str, heartbeat_timeout_s: float, detached: bool, compact: bool) -> None:
    """Begin."""
    KEPT["feeder"] = Feeder(name, seed, folder, heartbeat_timeout_s, detached=detached, compact=compact)


def status() -> Status:
    """Where the job is; does not wait."""
    feeder = KEPT["feeder"]
    return Status(feeder.sent, feeder.done, feeder.saved, feeder.error, feeder.over.is_set(), feeder.longest())


def stop() -> None:
    """No more input."""
    KEPT["feeder"].stopping.set()


def end_detached() -> None:
    """Kill all coordinators and keepers on the cluster for good, in a driver that has started none."""
    for named in ray.util.list_named_actors(all_namespaces=True):
        with suppress(ValueError):  # it has just ended
            ray.kill(ray.get_actor(**named), no_restart=True)


def totals() -> Rows:
    """The collected results, when the job is over."""
    found: Rows = KEPT["feeder"].totals
    return found


def events(kind: str) -> list[tuple[float, str]]:
    """What the job's journal has of a kind; none when it does not answer."""
    found = _within(10, KEPT["feeder"].job.journal) or ()
    return [(event.at_s, event.what) for event in found if event.kind == kind]


def explain() -> str:
    """The job's explanation why nothing moves."""
    job = KEPT["feeder"].job
    told = _within(30, lambda: f"{job.progress()}\n{job.explain_stuck()}")
    return told or "the job does not answer"


def ports() -> list[int]:
    """The TCP ports on which replicas listen, if the coordinator answers."""
    found = _within(10, lambda: addresses(KEPT["feeder"].job, 5.0)) or {}
    return [address.port for address in found.values()]


def _within(timeout_s: float, ask: Callable[[], Any]) -> Any:
    """The job's answer to a question; None when it does not come in time."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(ask()), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return told[0] if told else None


# -- the model ----------------------------------------------------------------------------------------------------------------------------
class Model:
    """The right rows of each output; computed as far as they are asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._epochs: list[dict[str, Rows]] = []
        self._seen: collections.Counter[int] = collections.Counter()
        self._steps = {n: _steps_of(n) for n in range(1, 60)}

    def of(self, output: str, epoch: int) -> Rows:
        """The rows of one epoch."""
        while len(self._epochs) <= epoch:
            self._epochs.append(self._next(len(self._epochs)))
        return self._epochs[epoch][output]

    def _next(self, epoch: int) -> dict[str, Rows]:
        sent = numbers(self.seed, epoch)
        self._seen.update(n % 7 for n in sent)
        return {
            "counts": collections.Counter((epoch, key, self._seen[key]) for key in {n % 7 for n in sent}),
            "steps": collections.Counter((epoch, n, self._steps[n]) for n in sent),
            "numbers": collections.Counter((epoch, n, -n) for n in sent),
        }


def _steps_of(n: int) -> int:
    record = _step((n, n, 0))
    while record[1] != 1:
        record = _step(record)
    return record[2]
