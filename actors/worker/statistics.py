"""What a replica measures of itself, cheap enough to stay on: a few additions for each batch, two looks at the clock for each wait.

Items are counted in the core (`ReplicaCounters` of its outputs), bytes where batches come in and leave; everything else is looked up when
a reading is taken. Readings are taken in the thread of a control call, so that a replica in one long activation is measured, too;
only a source's backlog is asked of the loop before. The frontier's lag counts from the first reading that saw this frontier.

Latency is that of single batches, from the arrival of the frame to the end of the activation. Only one batch is measured at a time, so
under load there is one measurement in the time that a batch takes to get through.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import Any

from rayad.actors.process.size_estimate import estimate_bytes
from rayad.actors.worker.payloads import Ended, bytes_of
from rayad.actors.worker.workplace import Workplace
from rayad.autoscale.statistics import BACKPRESSURED, BUSY, IDLE, QUEUED, ReplicaReading
from rayad.dataflow.logical_graph import NodeKind
from rayad.snapshots.barrier import Barrier


class HostStatistics:
    """The counters of one replica, and its readings."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._clock = clock = place.clock
        self.counters = place.core.outputs.counters
        self.watched: Any = None
        """The payload whose latency is being measured."""
        self._arrived_s = 0.0
        self._draw = 0
        self._seen: tuple[Any, int] = (None, 0)
        self._offset_s = clock.time() - clock.perf_counter()
        self._frontier: Any = ()
        self._frontier_s = 0.0
        self._part_bytes: int | None = None
        self._last: ReplicaReading | None = None
        self._reading = threading.Lock()

    # -- in the loop ---------------------------------------------------------------------
    def begin(self) -> None:
        """The loop begins: time is counted from now on."""
        counters = self.counters
        counters.since_s = counters.started_s = self._clock.perf_counter()
        counters.activity = BUSY

    def rest(self, now_s: float, *, has_work: bool) -> None:
        """Another replica of the worker runs now, or the worker waits: this one is back-pressured, waits for its turn, or is idle."""
        self.counters.turn_to(BACKPRESSURED if self.place.sender.is_held_up else QUEUED if has_work else IDLE, now_s)

    def watch(self, regular: deque[Any], frames: int) -> None:
        """Watch one of the newest ``frames`` arrivals; called when batches are among them and none is watched."""
        self._draw += 1
        payload = regular[-1 - self._draw % min(frames, len(regular))][2]
        if not isinstance(payload, (Barrier, Ended)):
            self._arrived_s = self._clock.perf_counter()
            self.watched = payload

    def on_watched(self) -> None:
        """The batch that is watched has been consumed."""
        self.watched = None
        self.counters.latency.add(self._clock.perf_counter() - self._arrived_s)

    def on_part(self, size_bytes: int, *, is_increment: bool) -> None:
        """The state has been written into a snapshot; what increments replace is not known."""
        self._part_bytes = (self._part_bytes or 0) + size_bytes if is_increment else size_bytes

    # -- from any thread -----------------------------------------------------------------
    def reading(self, backlog_items: int | None = None) -> ReplicaReading:
        """What has been counted so far, in the clock of `time.time`; no count is below that of the reading before. ``backlog_items``: what
        the source says; None: the last that it said."""
        with self._reading:
            if backlog_items is None and self._last is not None:
                backlog_items = self._last.backlog_items
            core, counters, now_s = self.place.core, self.counters, self._clock.perf_counter()
            self._forget_lost()
            frontier = core.view.input_frontier if core.view is not None else ()
            if frontier != self._frontier:
                self._frontier, self._frontier_s = frontier, now_s
            queue_batches, queue_bytes = self._queue()
            batches, records = core.batches_in, core.records_in
            if core.stage.kind in (NodeKind.SOURCE, NodeKind.INPUT):
                counters.read_items = records - core.counted_before[1]
            reading = counters.reading(
                now_s,
                queue_items=round(queue_batches * records / batches) if batches else queue_batches,
                queue_bytes=queue_bytes,
                queue_batches=queue_batches,
                backlog_items=backlog_items,
                frontier_lag_s=now_s - self._frontier_s if frontier else None,
                state_bytes=self._state_bytes(),
            )
            last, offset_s = self._last, self._offset_s
            self._last = reading = replace(
                reading,
                started_s=reading.started_s + offset_s,
                now_s=reading.now_s + offset_s,
                busy_s=max(reading.busy_s, last.busy_s if last is not None else 0.0),  # it may fall between two updates of counters
                idle_s=max(reading.idle_s, last.idle_s if last is not None else 0.0),
                backpressured_s=max(reading.backpressured_s, last.backpressured_s if last is not None else 0.0),
                queued_s=max(reading.queued_s, last.queued_s if last is not None else 0.0),
            )
            return reading

    @property
    def has_backlog(self) -> bool:
        """Whether it reads a source, which may know what is waiting outside."""
        return self.place.stage.kind is NodeKind.SOURCE

    def ask_source(self) -> int | None:
        """In the loop: the backlog that the source reports."""
        source = self.place.core.source
        return source.backlog() if source is not None else 0

    def _forget_lost(self) -> None:
        """Stop watching a batch that has been passed on to another replica, or dropped: it is in no queue any more."""
        watched, batches = self.watched, self.place.core.batches_in
        if watched is None or any(entry[2] is watched for entry in self._regular()):
            self._seen = (None, 0)
        elif self._seen[0] is not watched:
            self._seen = (watched, batches)
        elif batches > self._seen[1]:
            self.watched = None

    def _regular(self) -> list[Any]:
        arrived = self.place.arrived
        return [*tuple(arrived.regular), *tuple(arrived.held)]

    def _queue(self) -> tuple[int, int]:
        """Batches and bytes that wait in this replica to be consumed."""
        arrived = self.place.arrived
        sizes = [bytes_of(payload) for _, _, payload in self._regular() if not isinstance(payload, (Barrier, Ended))]
        sizes.extend(bytes_of(frame.payload) for _, frame in tuple(arrived.input))
        sizes.extend(bytes_of(payload) for _, payload in tuple(arrived.restored))
        return len(sizes) + len(arrived.feedback), sum(sizes) + arrived.feedback.memory_bytes

    def _state_bytes(self) -> int:
        if self._part_bytes is not None:
            return self._part_bytes
        vertex = self.place.core.vertex
        return estimate_bytes(vertex) if vertex is not None else 0
