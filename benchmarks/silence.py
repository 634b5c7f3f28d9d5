"""How late a timer by the clock fires while the input is silent: ``with_processing_time`` behind a live input that advances by itself.

A live input gets a burst of records, each of a key of its own, with waits that differ; then it is silent. A process sets a timer for each.
A step behind it subtracts the timer's moment from its clock, which all processes of a machine share. Half an epoch is the least that a
timer is late on average; the rest is Rayad's. Beside it: an actor of Ray that sleeps until each moment, without state or recovery.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import asdict, dataclass
from typing import Any

import ray

import rayad as rd
from benchmarks.machine import WORKER_NICE, settle
from benchmarks.measurement import Measurement, Ratio

TITLE = "Timers in silence"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. ``epochs_s``: the lengths of epochs."""

    repetitions: int = 5
    timers: int = 200
    within_s: float = 4.0
    epochs_s: tuple[float, ...] = (0.01, 0.02, 0.05)


FULL = Sizes()
QUICK = Sizes(repetitions=1, timers=20, within_s=1.0, epochs_s=(0.02,))


class After(rd.Process):
    """Tells its moment once a record's wait is over."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.set_timer(context.time + dt.timedelta(seconds=record["wait_s"]))

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(context.time)


def lateness_s(pair: tuple[Any, dt.datetime]) -> float:
    """Seconds between a timer's moment and now."""
    return (dt.datetime.now(dt.UTC) - pair[1]).total_seconds()


def timers_s(epoch_s: float, sizes: Sizes) -> list[float]:
    """How late each timer of one job was, in seconds."""
    flow = rd.Dataflow("silence")
    stamped = flow.input("x", epoch_s=epoch_s).with_processing_time()
    stamped.key_by("key").process(After).map(lateness_s).collect("late")
    job = flow.submit(runtime="ray", parallelism=2)
    with job.input("x") as x:
        x.send([{"key": n, "wait_s": sizes.within_s * (n + 1) / sizes.timers} for n in range(sizes.timers)])
        time.sleep(sizes.within_s + 1.0)
    return [late for _, late in job.wait()["late"]]


class Sleeper:
    """What a user writes without Rayad."""

    def run(self, waits_s: list[float]) -> list[float]:
        """How late each sleep ended, in seconds."""
        began_s, out = time.time(), []
        for wait_s in waits_s:
            time.sleep(max(0.0, began_s + wait_s - time.time()))
            out.append(time.time() - began_s - wait_s)
        return out


def run(sizes: Sizes) -> Measurement:
    """Each length of an epoch, and the sleeper, in turns."""
    out = Measurement("silence", TITLE, asdict(sizes))
    series = {epoch_s: out.new_series(f"timer, epochs of {1000 * epoch_s:g} ms", "ms", str(WORKER_NICE)) for epoch_s in sizes.epochs_s}
    alone = out.new_series("sleep in a Ray actor", "ms", "")
    for _ in range(sizes.repetitions):
        for epoch_s, ours in series.items():
            settle()
            late_s = timers_s(epoch_s, sizes)
            out.check("every timer has fired once, and none too early", (len(late_s), min(late_s) >= 0.0), (sizes.timers, True))
            ours.add(*(1000 * one for one in late_s))
        settle()
        made: Any = ray.remote(num_cpus=0)(Sleeper)
        sleeper = made.remote()
        waits_s = [sizes.within_s * (n + 1) / sizes.timers for n in range(sizes.timers)]
        alone.add(*(1000 * one for one in ray.get(sleeper.run.remote(waits_s))))
        ray.kill(sleeper)
    out.ratios = [Ratio(ours.name, alone.name) for ours in series.values()]
    return out
