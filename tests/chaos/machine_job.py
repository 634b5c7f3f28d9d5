"""The job that runs while machines are disturbed: a live input, a keyed count, a loop, Parquet. Its driver's side, and its model.

The functions run in the driver on machine 1 (see :mod:`tests.machines.driver`); none of them waits for the job.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable
from typing import Any

import rayad as rd
from tests.machines.driver import KEPT
from tests.machines.jobs import addresses

EPOCH_S = 0.05
RECORDS = 20
Rows = list[tuple[int, int, int]]


def numbers(seed: int, epoch: int) -> list[int]:
    """The records of an epoch."""
    rng = random.Random(f"{seed}/{epoch}")
    return [rng.randrange(1, 60) for _ in range(RECORDS)]


def _step(record: tuple[int, int, int]) -> tuple[int, int, int]:
    first, n, steps = record
    return first, (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1


def build(name: str, folder: str) -> rd.Dataflow:
    """The dataflow."""
    flow = rd.Dataflow(name)
    live = flow.input("numbers")
    counts = live.key_by(lambda n: n % 7).count(name="counts")
    counts.probe("counted")
    counts.map(lambda pair: {"key": pair[0], "value": pair[1]}).write_parquet(f"{folder}/counts", epoch_column="epoch", name="counts-files")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.rebalance().map(_step)
        return stepped.filter(lambda r: r[1] != 1), stepped.filter(lambda r: r[1] == 1)

    ended = live.map(lambda n: (n, n, 0)).iterate(body, name="collatz")
    ended.probe("ended")
    ended.map(lambda r: {"key": r[0], "value": r[2]}).write_parquet(f"{folder}/steps", epoch_column="epoch", name="steps-files")
    return flow


class Feeder:
    """Sends one epoch after the other until it is told to stop, and knows which epochs are complete."""

    def __init__(self, seed: int, folder: str, heartbeat_timeout_s: float) -> None:
        failures = rd.FailureConfig(max_failures=1000, delay_s=0.1, delay_max_s=1.0, heartbeat_timeout_s=heartbeat_timeout_s)
        snapshots = rd.SnapshotConfig(interval_s=1.0)
        config = rd.RunConfig(storage_path=f"{folder}/jobs", snapshots=snapshots, failures=failures)
        self.seed = seed
        self.job = build("chaos", folder).submit(config, parallelism=2)
        self.sent = self.done = -1
        self.error = ""
        self.is_over = False
        self.stopping = threading.Event()
        for work in (self.feed, self.watch):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.error = self.error or f"{work.__name__}: {type(error).__name__}: {error}"

    def feed(self) -> None:
        """Send."""
        live = self.job.input("numbers")
        while not self.stopping.wait(EPOCH_S):
            live.send(numbers(self.seed, self.sent + 1))
            live.advance_to(self.sent + 2)
            self.sent += 1
        live.close()
        self.job.wait()
        self.is_over = True

    def watch(self) -> None:
        """Watch epochs become complete at both probes."""
        while not self.is_over:
            epoch = self.done + 1
            if all(self.job.probe(name).wait(epoch, timeout_s=2.0) for name in ("counted", "ended")):
                self.done = max(epoch, min(self._frontier(), self.sent))

    def _frontier(self) -> int:
        times = [time for name in ("counted", "ended") for time in self.job.probe(name).frontier()]
        return min((time.epoch for time in times), default=0) - 1


def start(seed: int, folder: str, heartbeat_timeout_s: float) -> None:
    """Begin."""
    KEPT["feeder"] = Feeder(seed, folder, heartbeat_timeout_s)


def status() -> tuple[int, int, str, bool]:
    """Epochs sent and complete, the error if there was one, and whether the job is complete; does not wait."""
    feeder = KEPT["feeder"]
    return feeder.sent, feeder.done, feeder.error, feeder.is_over


def stop() -> None:
    """No more input."""
    KEPT["feeder"].stopping.set()


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


def read(path: str) -> Rows:
    """The committed rows of a sink; none before its first commit."""
    try:
        return [(row["epoch"], row["key"], row["value"]) for row in rd.read_committed(path).to_table().to_pylist()]
    except (rd.ConfigError, FileNotFoundError):
        return []


def expected(seed: int, epochs: int) -> tuple[collections.Counter[Any], collections.Counter[Any]]:
    """The model: rows of the counts, and of the loop."""
    seen: collections.Counter[int] = collections.Counter()
    counts: collections.Counter[Any] = collections.Counter()
    steps: collections.Counter[Any] = collections.Counter()
    for epoch in range(epochs):
        sent = numbers(seed, epoch)
        seen.update(n % 7 for n in sent)
        counts.update((epoch, key, seen[key]) for key in {n % 7 for n in sent})
        for n in sent:
            record = _step((n, n, 0))
            while record[1] != 1:
                record = _step(record)
            steps[epoch, n, record[2]] += 1
    return counts, steps
