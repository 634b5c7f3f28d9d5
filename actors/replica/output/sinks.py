"""The sink writers of one replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rayad.actors.replica.output.actions import Emit
from rayad.actors.replica.recent import Recent
from rayad.actors.replica.user_errors import raise_located
from rayad.autoscale.statistics import ReplicaCounters
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.sink import SinkWriter
from rayad.progress import Timestamp

STAGE_BYTES = 1 << 24
"""A sink writer that keeps so much in memory is asked to stage it, where snapshots are taken."""


class SinkWriters:
    """The writers of one replica, each made once however often the layout changes.

    Args:
        plan, stage, replica: which one it is.
        counters: count what is written.
    """

    def __init__(self, plan: Plan, stage: Stage, replica: int, counters: ReplicaCounters) -> None:
        self.recent: dict[int, Recent] = {}
        """By sink that tells its updates: the last records written."""
        self.set_aside: Callable[[int, Any], None] | None = None
        """Takes (sink, staged value) of a writer that keeps STAGE_BYTES; None: writers keep everything until a snapshot or the end."""
        self._plan, self._stage, self._replica = plan, stage, replica
        self._sinks = plan.sink_by_id
        self._counters = counters
        self._writers: dict[int, SinkWriter] = {}

    def lay_out(self, plan: Plan) -> None:
        """Writers that are opened from now on are numbered by another layout."""
        self._plan, self._stage = plan, plan.stage(self._stage.id)

    def compile(self, sink_id: int) -> Emit:
        """The function that writes to a sink."""
        writer = self._open(sink_id)
        counters, recent = self._counters, self.recent.get(sink_id)

        def run(time: Timestamp, batch: Any) -> None:
            try:
                writer.write(time, batch)
                if recent is not None:
                    recent.put(time, batch)
                if self.set_aside is not None and writer.kept_bytes() >= STAGE_BYTES:
                    self.set_aside(sink_id, writer.stage())
            except Exception as error:
                raise_located(f"{self._place(sink_id, 'write')} at {time}", error)
            counters.written_items += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)

        return run

    def _open(self, sink_id: int) -> SinkWriter:
        """Several paths of one replica may lead to a sink: they share its writer."""
        if sink_id not in self._writers:
            sink = self._sinks[sink_id]
            number, count = self._plan.writer(sink, self._stage, self._replica)
            try:
                self._writers[sink_id] = sink.sink.open(number, count)
            except Exception as error:
                raise_located(self._place(sink_id, "open"), error)
            if sink.sink.tells_updates:
                self.recent[sink_id] = Recent()
        return self._writers[sink_id]

    def stage(self) -> dict[int, Any]:
        """What every writer has staged, by sink id."""
        out = {}
        for sink, writer in self._writers.items():
            try:
                out[sink] = writer.stage()
            except Exception as error:
                raise_located(self._place(sink, "stage"), error)
        return out

    def abort(self) -> None:
        """Throw away what was written. Never raises."""
        for writer in self._writers.values():
            try:
                writer.abort()
            except Exception:  # it must not hide the job's own outcome
                continue

    def _place(self, sink_id: int, hook: str) -> str:
        sink = self._sinks[sink_id]
        return f"{self._stage.name!r}[{self._replica}] ({self._stage.where}) failed in {hook} of sink {sink.key!r} ({sink.where})"
