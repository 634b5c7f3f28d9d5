"""How costs grow with the input, the state, the number of epochs, vertices and replicas, and the depth of loops.

Each rung of a ladder is twice the one before; the exponent matters, not the figure. A record must cost the same in a long run as in a short
one, and with a large state as with a small one. A barrier may grow with the replicas, and an epoch with the vertices that it passes; an
iteration may not grow with the loops around it. The ladder of graphs is `graph_growth`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks import barrier, columns, loop, rows
from benchmarks.climbing import climb
from benchmarks.machine import settle
from benchmarks.measurement import Measurement
from benchmarks.sources import Generated

TITLE = "Growth"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """The rungs of each ladder; a ladder without rungs is left out."""

    repetitions: int = 3
    columnar_rows: tuple[int, ...] = (2_500_000, 5_000_000, 10_000_000, 20_000_000, 40_000_000)
    python_rows: tuple[int, ...] = (250_000, 500_000, 1_000_000, 2_000_000)
    state_keys: tuple[int, ...] = (62_500, 125_000, 250_000, 500_000, 1_000_000)
    state_epochs: int = 40
    epoch_keys: int = 5_000
    epochs: tuple[int, ...] = (500, 1_000, 2_000, 4_000)
    lengths: tuple[int, ...] = (1, 2, 4, 8)
    length_epochs: int = 500
    replicas: tuple[int, ...] = (1, 2, 4, 8)
    barriers: int = 3_000
    depths: tuple[int, ...] = (1, 2, 4)
    rounds: int = 5_000
    loop_epochs: tuple[int, ...] = (500, 1_000, 2_000, 4_000)
    loops: tuple[int, ...] = (50, 100, 200, 400)


FULL = Sizes()
QUICK = Sizes(
    repetitions=1, columnar_rows=(), python_rows=(), state_keys=(500, 1_000), state_epochs=5, epoch_keys=50, epochs=(), lengths=(1, 2),
    length_epochs=10, replicas=(), barriers=50, depths=(), rounds=50,
    loop_epochs=(10, 20), loops=(2, 4),
)  # fmt: skip
"""The sizes of ladders with programs of their own; the others use those of `columns`, `rows`, `barrier` and `loop`."""


def touches(keys: int, epochs: int, epoch_keys: int) -> Iterator[rd.SourceBatch]:
    """Epoch 0 brings every key, each further epoch ``epoch_keys`` of them, spread over all."""
    mixed = np.arange(keys, dtype=np.int64) * 2_654_435_761 % (1 << 40)  # not a small range, so keys are not array indexes
    began = time.perf_counter()
    yield rd.SourceBatch(0, pa.record_batch({"key": mixed, "value": np.ones(keys, np.int64), "at": np.full(keys, began)}))
    rng = np.random.default_rng(1)
    for epoch in range(1, epochs + 1):
        some = mixed[rng.integers(0, keys, epoch_keys)]
        ones, now = np.ones(len(some), np.int64), np.full(len(some), time.perf_counter())
        yield rd.SourceBatch(epoch, pa.record_batch({"key": some, "value": ones, "at": now}))


class Last(rd.Sink):
    """Keeps no results, only the time at which the last result of each epoch came."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return LastWriter()

    def publish(self, staged: Any) -> tuple[int, list[tuple[int, float]]]:
        return sum(rows for rows, _ in staged), sorted(entry for _, times in staged for entry in times)


class LastWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self) -> None:
        self.rows = 0
        self.times: dict[int, float] = {}

    def write(self, at: rd.Timestamp, batch: Any) -> None:
        self.rows += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        self.times[at.epoch] = time.perf_counter()

    def stage(self) -> tuple[int, list[tuple[int, float]]]:
        return self.rows, sorted(self.times.items())


def state_program(keys: int, sizes: Sizes) -> rd.Dataflow:
    """A running sum for each of many keys, some of which change in each epoch."""
    flow = rd.Dataflow("state")
    source = flow.source(Generated(1, lambda part: touches(keys, sizes.state_epochs, sizes.epoch_keys)))
    source.key_by("key").sum("value").sink(Last(), name="last")
    return flow


def epoch_of_state(keys: int, sizes: Sizes, **options: Any) -> tuple[float, int]:
    """Microseconds an epoch, without the first, which brings all keys; and how many results there were."""
    results, times = state_program(keys, sizes).run(parallelism=2, **options)["last"]
    ends: dict[int, float] = {}
    for epoch, at in times:
        ends[epoch] = max(at, ends.get(epoch, 0.0))
    return 1e6 * (max(ends.values()) - ends[0]) / sizes.state_epochs, results


def results_of_state(keys: int, sizes: Sizes) -> int:
    """The number of results by numpy: each epoch gives one for each key that it touches."""
    rng = np.random.default_rng(1)
    return keys + sum(len(np.unique(rng.integers(0, keys, sizes.epoch_keys))) for _ in range(sizes.state_epochs))


def epochs_program(epochs: int, length: int) -> rd.Dataflow:
    """A record in each epoch, through a number of counting vertices."""
    flow = rd.Dataflow("epochs")
    stream = flow.from_epochs([[(0, epoch)] for epoch in range(epochs)])
    for _ in range(length):
        stream = stream.key_by(first).count().as_records()  # the result means nothing, only the work of a long chain counts
    stream.collect("out")
    return flow


def first(record: Any) -> Any:
    """A pair's key."""
    return record[0]


def epochs_s(epochs: int, length: int, **options: Any) -> float:
    """Seconds of that program."""
    result = epochs_program(epochs, length).run(parallelism=1, **options)
    if len(result["out"]) != epochs:
        raise AssertionError(f"{len(result['out'])} results of {epochs} epochs")
    return float(result.statistics.run_s)


def down(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
    """Count down to 0, once round the loop for each step."""
    return inner.filter(lambda number: number > 0).map(lambda number: number - 1), inner.filter(lambda number: number == 0)


def loop_epochs_s(epochs: int) -> float:
    """Seconds of epochs that all go round one loop at the same time; on the local runtime, since only the progress core could grow."""
    flow = rd.Dataflow("loop-epochs")
    flow.from_epochs([[7]] * epochs).iterate(down).collect("out")
    return _local_s(flow, epochs)


def loops_s(loops: int) -> float:
    """Seconds of one record through loops in a row, planning included; on the local runtime, since on Ray each loop is an actor."""
    flow = rd.Dataflow("loops")
    stream: rd.Stream = flow.from_items([3])
    for _ in range(loops):
        stream = stream.iterate(down)
    stream.collect("out")
    return _local_s(flow, 1)


def _local_s(flow: rd.Dataflow, results: int) -> float:
    began = time.perf_counter()
    found = len(flow.run(runtime="local", seed=1)["out"])
    if found != results:
        raise AssertionError(f"{found} results, not {results}")
    return time.perf_counter() - began


def run(sizes: Sizes) -> Measurement:
    """One ladder after another."""
    out = Measurement("ladders", TITLE, asdict(sizes))
    many = sizes.repetitions
    of_columns, of_rows = replace(columns.FULL, replicas=2), replace(rows.FULL, replicas=2)

    def columnar(count: int) -> float:
        settle()
        return float(columns.run_once(replace(of_columns, rows=count), combined=True)[1].run_s)

    def python(count: int) -> float:
        settle()
        return float(rows.run_once(replace(of_rows, records=count), combined=True)[1].run_s)

    def state(keys: int) -> float:
        settle()
        took_us, results = epoch_of_state(keys, sizes)
        out.check("every epoch gave each key that it touched once", results == results_of_state(keys, sizes), True)
        return took_us

    def of_epochs(epochs: int) -> float:
        settle()
        return epochs_s(epochs, 1)

    def of_length(length: int) -> float:
        settle()
        return 1e6 * epochs_s(sizes.length_epochs, length) / sizes.length_epochs

    def of_replicas(replicas: int) -> float:
        settle()
        done = barrier.run_once(sizes.barriers, replicas)
        out.check("no replica passed a barrier before all had passed the one before it", done.is_global, True)
        return statistics.median(done.durations_us)

    def of_depth(depth: int) -> float:
        settle()
        return 1e6 / loop.run_once(sizes.rounds, 2, depth).rounds_per_s

    climb(out, "Columnar keyed sum, input", "rows", sizes.columnar_rows, "s", columnar, repetitions=many, per="s/row", linear=True)
    climb(out, "Keyed sum of Python records, input", "records", sizes.python_rows, "s", python, repetitions=many,
          per="s/record", linear=True)  # fmt: skip
    climb(out, f"State: an epoch that changes {sizes.epoch_keys:,} keys", "keys in all", sizes.state_keys, "µs", state, repetitions=many)
    climb(out, "Epochs of one record", "epochs", sizes.epochs, "s", of_epochs, repetitions=many, per="s/epoch")
    climb(out, "Vertices that an epoch passes", "vertices", sizes.lengths, "µs", of_length, repetitions=many, linear=True)
    climb(out, "Barrier by replicas", "replicas", sizes.replicas, "µs", of_replicas, repetitions=many, linear=True)
    climb(out, "Epochs in one loop at once", "epochs", sizes.loop_epochs, "s", loop_epochs_s, repetitions=many, per="s/epoch", linear=True)
    climb(out, "Loops in a row", "loops", sizes.loops, "s", loops_s, repetitions=many, per="s/loop", linear=True)
    climb(out, "An iteration by depth of nesting", "depth", sizes.depths, "µs", of_depth, repetitions=many)
    return out
