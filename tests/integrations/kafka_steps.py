"""A Kafka job whose process dies between any two steps of a commit, again and again; a new process resumes it.

A step is a call of the client's producer, the reading of what is committed, the staging of a replica's messages, or the publication of a
snapshot's manifest. At the step that is drawn :class:`Killed` is raised, and nothing catches it. The job is left as it is: nothing of it is
called again, and another job of the same program resumes from the store. That is what SIGKILL does, but hundreds of times a minute.
"""

from __future__ import annotations

import collections
import gc
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

import rayad as rd
from rayad.actors.store.job_store import JobStore
from rayad.integrations.kafka import KafkaSink
from rayad.integrations.kafka import sink as sink_module
from tests.integrations.broker import Broker

PRODUCER_STEPS = ("init_transactions", "begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")
KEYS = 5
STEPS_MAX = (10, 30, 100, 300)
"""The step at which a process dies is drawn from this many; a process that is done earlier does not die."""


class Killed(BaseException):
    """Stands for the death of the process."""


class Steps:
    """Counts the steps, and kills at one of them."""

    def __init__(self) -> None:
        self.left = -1
        self.kills: collections.Counter[str] = collections.Counter()

    def at(self, what: str) -> None:
        """One step."""
        self.left -= 1
        if self.left == 0:
            self.kills[what] += 1
            raise Killed(what)

    def around(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` with a step before it and a step after it."""

        def stepped(*args: Any, **options: Any) -> Any:
            self.at(f"before {what}")
            given = call(*args, **options)
            self.at(f"behind {what}")
            return given

        return stepped


@contextmanager
def steps_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Make every call that takes part in a commit count as steps."""
    steps = Steps()
    real = confluent_kafka.Producer

    class Stepping:
        def __init__(self, settings: dict[str, Any]) -> None:
            self._producer = real(settings)

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._producer, name)
            return steps.around(name, found) if name in PRODUCER_STEPS else found

    with monkeypatch.context() as patch:
        patch.setattr(confluent_kafka, "Producer", Stepping)
        for owner, name in (
            (sink_module.KafkaSink, "_committed"),
            (sink_module.KafkaSink, "roll_back"),
            (sink_module.KafkaWriter, "stage"),
            (JobStore, "publish"),
        ):
            patch.setattr(owner, name, steps.around(name.strip("_"), getattr(owner, name)))
        yield steps


def stamp(n: int) -> int:
    """Ten messages a second."""
    return 1000 * (1 + n // 10) + n % 10


def messages(count: int, partitions: int) -> list[tuple[int, int, str]]:
    """As :meth:`Broker.send` takes them: message n in partition n % partitions."""
    return [(n % partitions, stamp(n), str(n)) for n in range(count)]


def program(servers: str, start: str, end: str, *, pause_s: float = 0.0, sink: rd.Sink | None = None, **options: Any) -> rd.Dataflow:
    """Kafka -> keyed -> Kafka: the running total of each key in each epoch that touches it. Each batch takes ``pause_s``."""
    flow = rd.Dataflow("kafka")
    read = flow.from_kafka(
        servers, start, **{"parts": 2, "stop": "latest", "batch_rows": 8, "options": {"fetch.wait.max.ms": 5}, **options}
    )
    numbers = read.map_batches(lambda batch: [threading.Event().wait(pause_s), batch][1]).map(lambda row: int(row["value"]))
    counts = numbers.key_by(lambda n: n % KEYS).count(name="counts")
    counts.map(json.dumps).sink(sink if sink is not None else KafkaSink(servers, end), name="out")
    return flow


def oracle(count: int) -> list[bytes]:
    """The messages that must be in the topic, in any order."""
    out: list[bytes] = []
    totals: collections.Counter[int] = collections.Counter()
    epochs: dict[int, list[int]] = {}
    for n in range(count):
        epochs.setdefault(stamp(n) // 1000, []).append(n)
    for epoch in sorted(epochs):
        totals.update(n % KEYS for n in epochs[epoch])
        out += [json.dumps([key, totals[key]]).encode() for key in {n % KEYS for n in epochs[epoch]}]
    return sorted(out)


def run_with_kills(kafka: Broker, steps: Steps, folder: str, count: int, seed: int, partitions: int = 2) -> tuple[list[bytes], int]:
    """The messages that are committed at the end, sorted, and the number of kills."""
    draw = random.Random(seed)
    start, end = kafka.topic(partitions), kafka.topic(partitions)
    kafka.send(start, messages(count, partitions))
    config = rd.RunConfig(storage_path=folder, snapshots=rd.SnapshotConfig(interval_s=0.01, keep=3), resume="latest")
    kills = 0
    while True:
        steps.left = draw.randint(1, draw.choice(STEPS_MAX))
        job: Any = None
        try:
            job = program(kafka.servers, start, end).submit(config, runtime="local", seed=draw.randrange(1 << 30), parallelism=2)
            job.wait()
        except Killed:
            kills += 1
            job = None
            gc.collect()  # connections end with the process
            continue
        finally:
            steps.left = -1
        return sorted(kafka.committed(end, partitions)), kills


def copying(servers: str, start: str, end: str, *, parts: int = 4, **options: Any) -> rd.Dataflow:
    """Copies messages unchanged, without end."""
    flow = rd.Dataflow("copy")
    flow.from_kafka(servers, start, name="in", parts=parts, options={"fetch.wait.max.ms": 5}, **options).write_kafka(
        servers, end, value="value"
    )
    return flow
