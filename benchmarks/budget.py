"""The cost of a record, of an iteration and of a barrier: each stage alone, in one process, in processor time.

The stages are those that the replicas run, in the same order on the same data: reading, the fused steps, flushing the combiners (combine
and route), encoding, decoding, the keyed vertex, its result. A run on Ray adds sockets, wake-ups and waiting
(`transport` measures these); docs/performance.md puts the two together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import rayad as rd
from benchmarks import barrier, columns, inputs, keyed_sum, progress, rows, wordcount
from benchmarks.measurement import Measurement
from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.plane.protocol import pack_report, pack_view, unpack_report, unpack_view
from rayad.actors.replica.core import ReplicaCore
from rayad.progress import View

TITLE = "Budget of a record and of a barrier"
NEEDS_RAY = False
STAGES = ("read", "fused steps", "flush: combine, route", "encode", "decode", "keyed vertex", "result")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    lines: int = 250_000
    rows: int = 5_000_000
    keys: tuple[int, ...] = (1_000, 1_000_000)
    records: int = 500_000
    hold_batches: int = 12
    replicas: int = 2
    rounds: int = 20_000


FULL = Sizes()
QUICK = Sizes(repetitions=1, lines=2_000, rows=20_000, keys=(100,), records=5_000, rounds=500)


class Laps:
    """Processor time by stage."""

    def __init__(self) -> None:
        self.spent_s: Counter[str] = Counter()
        self._at_s = time.process_time()

    def lap(self, stage: str) -> None:
        """The time since the last call belongs to this stage."""
        now_s = time.process_time()
        self.spent_s[stage] += now_s - self._at_s  # type: ignore[assignment]
        self._at_s = now_s


def walk(flow: rd.Dataflow, sizes: Sizes) -> tuple[Counter[str], int]:
    """One source replica and one keyed replica, by turns: seconds by stage, and how many records the source read.

    All that the source sends goes to the one keyed replica, so decoding and the vertex are done for all of it.
    """
    plan = flow.plan(sizes.replicas)
    head, keyed = plan.stages[0], plan.stages[1]
    source, vertex = ReplicaCore(plan, head, 0), ReplicaCore(plan, keyed, 0)
    source.start()
    vertex.start()
    laps, batches, sent = Laps(), 0, 0

    def travel() -> None:
        nonlocal sent
        source.outputs.flush()
        laps.lap("flush: combine, route")
        for outgoing in source.outputs.outbox.take():
            data = b"".join(encode_batch(outgoing.time, outgoing.batch))
            laps.lap("encode")
            at, batch = decode_batch(data)
            laps.lap("decode")
            vertex.receive(outgoing.edge, at, batch)
            laps.lap("keyed vertex")
            sent += len(data)

    reader = source.source
    assert reader is not None
    while (read := reader.next()) is not None:
        laps.lap("read")
        source.emit_input(rd.Timestamp.of(read[0], ()), read[1])
        laps.lap("fused steps")
        batches += 1
        if batches % sizes.hold_batches == 0:
            travel()
    travel()
    vertex.on_view(View((), ()))
    vertex.notify()
    laps.lap("result")
    return laps.spent_s, source.records_in


def programs(sizes: Sizes) -> dict[str, tuple[Callable[[], rd.Dataflow], int]]:
    """The programs, and how many units (words, rows, records) one source record is."""
    text = inputs.text_folder(sizes.lines, 10, 50_000 if sizes.lines > 10_000 else 500, 1.2, 2)
    out: dict[str, tuple[Callable[[], rd.Dataflow], int]] = {
        "word count, rows": (partial(wordcount.rows, f"{text}/*.txt"), 10),
        "word count, columns": (partial(wordcount.columns, f"{text}/*.txt"), 10),
    }
    for keys in sizes.keys:
        folder = str(inputs.keyed_folder(sizes.rows, keys, 2))
        out[f"keyed sum of columns, {keys:,} keys"] = (partial(keyed_sum.columns, folder), 1)
    of_rows = rows.Sizes(records=sizes.records)
    out["keyed sum of Python records"] = (partial(rows.program, of_rows, combined=True), 1)
    out["keyed sum of Python records, each exchanged"] = (partial(rows.program, of_rows, combined=False), 1)
    of_columns = columns.Sizes(rows=sizes.rows)
    out["keyed sum of columns, each row exchanged"] = (partial(columns.program, of_columns, combined=False), 1)
    return out


def barrier_steps(rounds: int) -> dict[str, Callable[[], Any]]:
    """The steps of one barrier, as functions that are called ``rounds`` times."""
    plan = barrier.program(10).plan(2)
    stage = next(stage for stage in plan.stages if stage.name == "barriers")
    place = stage.notify_location
    changes = [(place, rd.Timestamp(5), -1), (place, rd.Timestamp(6), 1)]
    report, view = pack_report(changes), View((), (rd.Timestamp(6),))
    packed = pack_view(view)
    tracker = progress.new_tracker(plan.progress, waits_at=stage.id)
    reports = progress.barriers(plan.progress, stage.id)
    tracker.apply(next(reports))
    ready = iter([next(reports) for _ in range(2 * rounds)])
    apply, views = tracker.apply, tracker.views

    def track() -> None:
        apply(next(ready))
        views()
        apply(next(ready))
        views()

    core = ReplicaCore(plan, stage, 0)
    core.start()
    vertex: Any = core.vertex
    vertex.barriers, vertex.at_s = rounds + 10, [0.0] * (rounds + 10)
    edge = next(edge for edge in plan.edges if edge.target == stage.id)
    core.receive(edge.id, rd.Timestamp(0), ["go"])
    epochs = iter(range(1, rounds + 5))

    def notified() -> None:
        core.on_view(View((rd.Timestamp(next(epochs)),), ()))
        core.notify()
        core.take_changes()

    return {
        "replica: a view and its notification": notified,
        "replica: report packed": partial(pack_report, changes),
        "progress: two reports unpacked": lambda: (unpack_report(report), unpack_report(report)),
        "progress: two reports tracked": track,
        "progress: view packed": partial(pack_view, view),
        "replica: view unpacked": partial(unpack_view, packed),
    }


def run(sizes: Sizes) -> Measurement:
    """Every program, then the steps of a barrier."""
    out = Measurement("budget", TITLE, asdict(sizes))
    table = out.new_table("Nanoseconds a unit (a word, a row, a record) by stage, median", "program", *STAGES, "all")
    for name, (make, units) in programs(sizes).items():
        walks = [walk(make(), sizes) for _ in range(sizes.repetitions)]
        out.check(f"{name}: the source read as much in each repetition", len({count for _, count in walks}), 1)
        spent = [sorted(1e9 * w[stage] / (count * units) for w, count in walks)[len(walks) // 2] for stage in STAGES]
        table.add(name, *(float(f"{value:.3g}") for value in spent), float(f"{sum(spent):.3g}"))
    steps = out.new_table("Microseconds of one barrier of two replicas by step", "step", "µs")
    totals: dict[str, list[float]] = {}
    for _ in range(sizes.repetitions):
        for step, function in barrier_steps(sizes.rounds).items():
            began = time.process_time()
            for _ in range(sizes.rounds):
                function()
            totals.setdefault(step, []).append(1e6 * (time.process_time() - began) / sizes.rounds)
    for step, values in totals.items():
        steps.add(step, float(f"{sorted(values)[len(values) // 2]:.3g}"))
    return out
