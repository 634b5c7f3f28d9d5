"""One record at a time, 1,000 a second, through a keyed stateful vertex with two replicas to a sink; beside the alternatives.

Records are made by the clock, whether the system keeps up or not (an open loop): each has a time at which it is *due*. A record carries
that time and the time when it was *made*; the sink subtracts both from its own clock, which all processes of a machine share. *From
made* is the time that the system takes. *From due* adds the time that the maker had to wait, because the system did not accept the record
earlier or did not wake its source in time. So a pause of the system counts for all records that were due during it.

- *Rayad, live input*: the driver makes the records, as a service would. They go from the driver to the worker with the input, and half of
  them then to the other one: one hop between processes, or two.
- *Rayad, source inside*: a source in the dataflow makes them, as in the peers: each goes to a replica, so to another process.
- *epoch until complete*: the driver sends a record, advances the epoch, and waits until the probe says that it is complete. The probe is a
  Ray call.
- *Bytewax*: two processes, the source in one of them, ``stateful_map``. Half of the records stay in their process, so the others
  are also shown by themselves. *Fed by a third*: a third process makes the records and sends them by a socket, as a service would; that is
  what live input is to be compared with. *Spark*: Structured Streaming, micro-batches without pause,
  from a socket through ``dropDuplicates``. *Ray actor round trip*: one call after another.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import rayad as rd
from benchmarks import machine, round_trips
from benchmarks.measurement import Measurement, Series, quantile
from benchmarks.peer_environments import NoFigure, run_peer
from benchmarks.side_by_side import NO_FIGURE, ratios_of
from benchmarks.sources import Generated

TITLE = "Latency of one record"
NEEDS_RAY = True
ROUND_TRIP, COMPLETE = "Ray actor round trip", "Rayad, epoch until complete"
LIVE, INSIDE, SPARK = "Rayad, live input", "Rayad, source inside", "Spark micro-batches"
BYTEWAX, FED = "Bytewax, 2 processes", "Bytewax, 2 processes, fed by a third"
MADE, DUE, CROSSED = "from made", "from due", "from made, those that changed process"
PEERS = ((BYTEWAX, "bytewax", 1_000, False), (FED, "bytewax", 1_000, True), (SPARK, "spark", 15_000, True))
"""Series, folder, the number of records before those that count (a JVM warms up slowly), and whether records come from outside."""
AIMS = (
    (f"{INSIDE}, {MADE}", f"{BYTEWAX}, {MADE}", "at most 1"),
    (f"{INSIDE}, {MADE}", f"{BYTEWAX}, {CROSSED}", "at most 1"),
    (f"{INSIDE}, {DUE}", f"{BYTEWAX}, {DUE}", "at most 1"),
    (f"{LIVE}, {MADE}", f"{FED}, {MADE}", "at most 1"),
    (f"{LIVE}, {DUE}", f"{FED}, {DUE}", "at most 1"),
    (f"{LIVE}, {MADE}", f"{BYTEWAX}, {MADE}", "at most 1"),
    (f"{LIVE}, {DUE}", f"{BYTEWAX}, {DUE}", "at most 1"),
    (f"{LIVE}, {MADE}", ROUND_TRIP, ""),
    (COMPLETE, ROUND_TRIP, ""),
    (f"{SPARK}, {MADE}", f"{INSIDE}, {MADE}", ""),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; the first tenth of the records warms up."""

    repetitions: int = 5
    records: int = 10_000
    rate_per_s: int = 1_000
    keys: int = 64
    epochs: int = 300
    round_trips: int = 1_000
    replicas: int = 2
    peer_warm_share: float = 1.0
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, records=300, epochs=20, round_trips=50, peer_warm_share=0.2)


class ClockSink(rd.Sink):
    """Keeps the age of each record when it came: ``(number, microseconds from made, from due, nice)``."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return ClockWriter()

    def publish(self, staged: Sequence[Any]) -> list[tuple[int, float, float, int]]:
        return sorted(entry for part in staged for entry in part)


class ClockWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float, float, int]] = []

    def write(self, at: rd.Timestamp, batch: Any) -> None:
        now = time.perf_counter()
        for _, (number, made_s, due_s) in batch:
            self.seen.append((number, 1e6 * (now - made_s), 1e6 * (now - due_s), os.nice(0)))

    def stage(self) -> list[tuple[int, float, float, int]]:
        seen, self.seen = self.seen, []
        return seen


def paced(sizes: Sizes) -> Iterator[rd.SourceBatch]:
    """A source of records by the clock, each made when it is due."""
    clock = time.perf_counter
    begin_s = clock()
    for number in range(sizes.records):
        due_s = begin_s + number / sizes.rate_per_s
        wait_s = due_s - clock()
        if wait_s > 0:
            time.sleep(wait_s)
        yield rd.SourceBatch(0, [(number % sizes.keys, number, clock(), due_s)])


def count(state: int, record: Any) -> tuple[int, Any]:
    """Keep some state for each key, and send the record on."""
    return state + 1, record[1:]


def program(inside: Sizes | None = None) -> rd.Dataflow:
    """Records are ``(key, number, when made, when due)``, in seconds; ``inside``: made by a source, not by the driver."""
    flow = rd.Dataflow("latency")
    records = flow.input("records") if inside is None else flow.source(Generated(1, lambda _: paced(inside)), name="records")
    mapped = records.key_by(itemgetter(0)).stateful_map(count, initial=0, name="count")
    mapped.probe("done").sink(ClockSink(), name="ages")
    return flow


@dataclass(frozen=True, slots=True)
class Run:
    """Microseconds of each record to the sink, from when it was made and from when it was due, and of each epoch until complete."""

    made_us: list[float]
    due_us: list[float]
    complete_us: list[float]
    numbers: list[int]
    nice: int


def run_once(sizes: Sizes, **options: Any) -> Run:
    """Send records at their pace, then epochs one by one."""
    job = program().submit(**_laid_out(sizes, options))
    complete_us: list[float] = []
    clock = time.perf_counter
    try:
        records, probe = job.input("records"), job.probe("done")
        records.send([(0, -1, clock(), clock())])
        records.advance_to(1)
        probe.wait(0, timeout_s=60)  # the job runs: its start does not count for any record
        begin_s = clock() + 0.1
        for number in range(sizes.records):
            due_s = begin_s + number / sizes.rate_per_s
            wait_s = due_s - clock()
            if wait_s > 0:
                time.sleep(wait_s)
            records.send([(number % sizes.keys, number, clock(), due_s)])
        records.advance_to(2)
        probe.wait(1, timeout_s=60)
        for epoch in range(2, sizes.epochs + 2):
            began = clock()
            number = sizes.records + epoch - 2
            records.send([(number % sizes.keys, number, began, began)])
            records.advance_to(epoch + 1)
            probe.wait(epoch, timeout_s=60)
            complete_us.append(1e6 * (clock() - began))
        records.close()
        ages = job.wait(timeout_s=60)["ages"]
    except BaseException:
        job.cancel()
        raise
    return run_of(ages, complete_us, sizes)


def run_inside(sizes: Sizes, **options: Any) -> Run:
    """The same records from a source in the dataflow; no epochs."""
    return run_of(program(sizes).run(parallelism=sizes.replicas, **options)["ages"], [], sizes)


def _laid_out(sizes: Sizes, options: dict[str, Any]) -> dict[str, Any]:
    """As many processes as the peers have, which is what a Ray with as many processors as this machine gives by itself. A source that waits
    by the clock has a process of its own anyway."""
    if options:
        return {"parallelism": sizes.replicas, **options}
    return {"scaling": rd.ScalingConfig(parallelism=sizes.replicas, placement="workers")}


def run_of(ages: Sequence[tuple[int, float, float, int]], complete_us: list[float], sizes: Sizes) -> Run:
    """The results of the sink, without the warm-up."""
    measured = [age for age in ages if sizes.records // 10 <= age[0] < sizes.records]
    numbers = [age[0] for age in ages if age[0] >= 0]
    return Run([made for _, made, _, _ in measured], [due for _, _, due, _ in measured], complete_us, numbers, ages[0][3])


@dataclass(slots=True)
class Peer:
    """A peer's series, by the field of its output; and the reason if it gave no figures."""

    name: str
    folder: str
    warm: int
    is_live: bool
    series: dict[str, Series]
    failed: str = ""

    def measure(self, sizes: Sizes, out: Measurement) -> None:
        """Run it once; every record must have come, once."""
        warm = sizes.records // 10 + int(self.warm * sizes.peer_warm_share)
        arguments = {"records": sizes.records, "warm": warm, "rate_per_s": sizes.rate_per_s, "keys": sizes.keys, "live": self.is_live}
        try:
            done = run_peer(self.folder, "latency", arguments, timeout_s=sizes.timeout_s, nice=machine.WORKER_NICE)
        except NoFigure as reason:
            self.failed = str(reason)
            return
        out.check("every record reached the sink, once", done.digest, [sizes.records, sizes.records * (sizes.records - 1) // 2])
        for told, series in self.series.items():
            series.add(*done.told[told])


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Round trips, records and epochs, peers, round trips; several times."""
    out = Measurement("latency", TITLE, asdict(sizes))
    made, due = (out.new_series(f"{LIVE}, {since}", "µs", "?") for since in (MADE, DUE))
    inside_made, inside_due = (out.new_series(f"{INSIDE}, {since}", "µs", str(machine.WORKER_NICE)) for since in (MADE, DUE))
    complete, round_trip = out.new_series(COMPLETE, "µs", "?"), out.new_series(ROUND_TRIP, "µs", "?")
    others = []
    for name, folder, warm, is_live in PEERS:
        if peers is None or folder in peers:
            fields = {"made_us": MADE, "due_us": DUE} | ({"crossed_us": CROSSED} if name == BYTEWAX else {})
            series = {told: Series(f"{name}, {since}", "µs", str(machine.WORKER_NICE)) for told, since in fields.items()}
            others.append(Peer(name, folder, warm, is_live, series))
    actors = round_trips.start(1)
    try:
        for _ in range(sizes.repetitions):
            machine.settle()
            before = round_trips.round_trips_us(actors, sizes.round_trips)
            done = run_once(sizes)
            out.check("every record reached the sink, once", done.numbers, list(range(sizes.records + sizes.epochs)))
            made.add(*done.made_us)
            due.add(*done.due_us)
            complete.add(*done.complete_us)
            machine.settle()
            inside = run_inside(sizes)
            out.check("every record of the source reached the sink, once", inside.numbers, list(range(sizes.records)))
            inside_made.add(*inside.made_us)
            inside_due.add(*inside.due_us)
            for other in others:
                if not other.failed:
                    machine.settle()
                    other.measure(sizes, out)
            machine.settle()
            round_trip.add(*before, *round_trips.round_trips_us(actors, sizes.round_trips))
            round_trip.nice = made.nice = due.nice = complete.nice = f"{os.nice(0)}, actors {done.nice}"
    finally:
        round_trips.stop(actors)
    out.series += [series for other in others if not other.failed for series in other.series.values()]
    out.ratios = ratios_of(out, AIMS)
    add_tables(out, others)
    return out


def add_tables(out: Measurement, others: Sequence[Peer]) -> None:
    """Tables of the tails over all samples, and of peers without figures."""
    table = out.new_table("Over all records, µs (aim for Rayad: p99 below 2,000)", "measured", "p50", "p99", "p99.9", "most", "samples")
    for series in out.series:
        samples = [sample for repetition in series.repetitions for sample in repetition]
        tails = [quantile(samples, share) for share in (0.99, 0.999)]
        table.add(series.name, statistics.median(samples), *tails, max(samples), len(samples))
    if any(other.failed for other in others):
        missing = out.new_table(NO_FIGURE, "system", "why")
        for other in others:
            if other.failed:
                missing.add(other.name, other.failed)
