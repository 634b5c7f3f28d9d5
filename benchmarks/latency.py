"""One record at a time, from the driver to a sink behind a keyed exchange; beside a Ray actor round trip.

- *to the sink*: the driver notes the time in the record, the sink subtracts it from its own; both read the clock that all
  processes of a machine share. One record is sent every few milliseconds, so none waits behind another.
- *until complete*: the driver sends a record, advances the epoch, and waits until the probe says that it is complete. This one asks
  Ray.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import rayad as rd
from benchmarks import machine, round_trips
from benchmarks.measurement import Measurement, Ratio

TITLE = "Latency of one record"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    records: int = 2_000
    epochs: int = 300
    round_trips: int = 1_000
    pause_s: float = 0.002
    replicas: int = 2


FULL = Sizes()
QUICK = Sizes(repetitions=2, records=100, epochs=20, round_trips=50)


class ClockSink(rd.Sink):
    """Keeps how old each record was when it came: ``(number, microseconds)``."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return ClockWriter()

    def publish(self, staged: Sequence[Any]) -> list[tuple[int, float, int]]:
        return sorted(entry for part in staged for entry in part)


class ClockWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float, int]] = []

    def write(self, at: rd.Timestamp, batch: Any) -> None:
        now = time.perf_counter()
        for _, (number, sent_s) in batch:
            self.seen.append((number, 1e6 * (now - sent_s), os.nice(0)))

    def stage(self) -> list[tuple[int, float, int]]:
        seen, self.seen = self.seen, []
        return seen


def count(state: int, record: Any) -> tuple[int, Any]:
    """Some state for each key; the record goes on."""
    return state + 1, record[1:]


def program() -> rd.Dataflow:
    """Records are ``(key, number, time sent)``."""
    flow = rd.Dataflow("latency")
    mapped = flow.input("records").key_by(itemgetter(0)).stateful_map(count, initial=0, name="count")
    mapped.probe("done").sink(ClockSink(), name="ages")
    return flow


@dataclass(frozen=True, slots=True)
class Run:
    """Microseconds of each record to the sink and of each epoch until complete."""

    to_sink_us: list[float]
    complete_us: list[float]
    numbers: list[int]
    nice: int


def run_once(sizes: Sizes, **options: Any) -> Run:
    """Send records at a pace, then epochs one by one."""
    job = program().submit(parallelism=sizes.replicas, **options)
    complete_us: list[float] = []
    try:
        records, probe = job.input("records"), job.probe("done")
        number = 0
        for _ in range(sizes.records):
            records.send([(number % 64, number, time.perf_counter())])
            number += 1
            time.sleep(sizes.pause_s)
        records.advance_to(1)
        probe.wait(0, timeout_s=60)
        for epoch in range(1, sizes.epochs + 1):
            began = time.perf_counter()
            records.send([(number % 64, number, began)])
            number += 1
            records.advance_to(epoch + 1)
            probe.wait(epoch, timeout_s=60)
            complete_us.append(1e6 * (time.perf_counter() - began))
        records.close()
        ages = job.wait(timeout_s=60)["ages"]
    except BaseException:
        job.cancel()
        raise
    warm = sizes.records // 10
    return Run([age for n, age, _ in ages if warm <= n < sizes.records], complete_us, [n for n, _, _ in ages], ages[0][2])


def run(sizes: Sizes) -> Measurement:
    """Round trips, records and epochs, round trips; several times."""
    out = Measurement("latency", TITLE, asdict(sizes))
    to_sink, complete = out.new_series("record to the sink", "µs", "?"), out.new_series("epoch until complete", "µs", "?")
    round_trip = out.new_series("Ray actor round trip", "µs", "?")
    actors = round_trips.start(1)
    try:
        for _ in range(sizes.repetitions):
            machine.settle()
            before = round_trips.round_trips_us(actors, sizes.round_trips)
            done = run_once(sizes)
            out.check("every record reached the sink, once", done.numbers, list(range(sizes.records + sizes.epochs)))
            to_sink.add(*done.to_sink_us)
            complete.add(*done.complete_us)
            machine.settle()
            round_trip.add(*before, *round_trips.round_trips_us(actors, sizes.round_trips))
            round_trip.nice = to_sink.nice = complete.nice = f"{os.nice(0)}, actors {done.nice}"
    finally:
        round_trips.stop(actors)
    out.ratios = [Ratio(to_sink.name, round_trip.name), Ratio(complete.name, round_trip.name)]
    return out
