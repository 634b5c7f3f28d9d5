"""How long a global barrier takes: in each notification every replica asks for the next one, and notes the time.

No replica runs ``on_notify(t)`` before all have run ``on_notify(t - 1)``. So a notification is a barrier over all replicas, through the
progress actor. The same run measures a Ray actor round trip, the least that any barrier made of Ray calls costs.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import rayad as rd
from benchmarks import machine, round_trips
from benchmarks.measurement import Measurement, Ratio

TITLE = "Global barrier"
NEEDS_RAY = True
ROUND_TRIP, RAY_BARRIER = "Ray actor round trip", "barrier of 2 Ray actors, by ray.get"
WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    barriers: int = 10_000
    round_trips: int = 1_000
    replicas: tuple[int, ...] = (2, 1, 4)


FULL = Sizes()
QUICK = Sizes(repetitions=2, barriers=300, round_trips=50, replicas=(2, 1))


class Barriers(rd.Vertex):
    """Asks for the next epoch in each notification; at the end it reports when each one ran."""

    def __init__(self, barriers: int) -> None:
        self.barriers = barriers
        self.at_s = [0.0] * barriers

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.notify_at(time)  # several requests for one time are one notification

    def on_notify(self, at: rd.Timestamp) -> None:
        self.at_s[at.epoch] = time.perf_counter()
        if at.epoch + 1 < self.barriers:
            self.notify_at(rd.Timestamp(at.epoch + 1))
        else:
            self.send_by(0, [(self.replica, os.nice(0), self.at_s)], at)


def program(barriers: int) -> rd.Dataflow:
    """One record goes to every replica, which then begins."""
    flow = rd.Dataflow("barrier")
    start = flow.from_items(["go"], name="start")
    start.broadcast().vertex(partial(Barriers, barriers), name="barriers").collect("at")
    return flow


@dataclass(frozen=True, slots=True)
class Run:
    """One run: microseconds of each barrier, how many replicas reported, whether all passed each barrier before any passed the next."""

    durations_us: list[float]
    replicas: int
    is_global: bool
    nice: int


def run_once(barriers: int, replicas: int, **options: Any) -> Run:
    """Run the program; a barrier is over when the last replica has passed it."""
    told = [record for _, record in program(barriers).run(parallelism=replicas, **options)["at"]]
    by_replica = [at_s for _, _, at_s in told]
    first, last = [min(times) for times in zip(*by_replica, strict=True)], [max(times) for times in zip(*by_replica, strict=True)]
    is_global = all(passed <= following for passed, following in zip(last, first[1:], strict=False))
    warm = min(WARM_UP, barriers // 2)
    durations = [1e6 * (after - before) for before, after in zip(last[warm:], last[warm + 1 :], strict=False)]
    return Run(durations, len({replica for replica, _, _ in told}), is_global, told[0][1])


def run(sizes: Sizes) -> Measurement:
    """Round trips, barriers, round trips; several times."""
    out = Measurement("barrier", TITLE, asdict(sizes))
    series = {n: out.new_series(f"barrier of {n} replicas", "µs", "?") for n in sizes.replicas}
    round_trip, ray_barrier = out.new_series(ROUND_TRIP, "µs", "?"), out.new_series(RAY_BARRIER, "µs", "?")
    actors = round_trips.start(2)
    try:
        for _ in range(sizes.repetitions):
            machine.settle()
            single = round_trips.round_trips_us(actors, sizes.round_trips)
            both = round_trips.barriers_us(actors, sizes.round_trips // 2)
            for replicas in sizes.replicas:
                machine.settle()
                done = run_once(sizes.barriers, replicas)
                out.check("every replica passed every barrier", done.replicas, replicas)
                out.check("no replica passed a barrier before all had passed the one before it", done.is_global, True)
                series[replicas].add(*done.durations_us)
                series[replicas].nice = str(done.nice)
                round_trip.nice = ray_barrier.nice = f"{os.nice(0)}, actors {done.nice}"
            machine.settle()
            round_trip.add(*single, *round_trips.round_trips_us(actors, sizes.round_trips))
            ray_barrier.add(*both, *round_trips.barriers_us(actors, sizes.round_trips // 2))
    finally:
        round_trips.stop(actors)
    first = series[sizes.replicas[0]].name
    out.ratios = [Ratio(first, ROUND_TRIP, "below 1/5; hoped for 1/10"), Ratio(first, RAY_BARRIER)]
    return out
