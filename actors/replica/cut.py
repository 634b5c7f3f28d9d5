"""The cut through one replica for a snapshot: what it consists of, and how a replica resumes from it.

Everything restored counts as if it had just been received or asked for: so the progress core is rebuilt from the parts
(docs/design/snapshots.md, 3).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.input.live_input import LiveInput
from rayad.actors.replica.input.pace import Pace
from rayad.actors.replica.input.source_life import SourceLife
from rayad.actors.replica.output.outputs import Outputs
from rayad.actors.replica.passed import passed_here
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.replica.rest import PartRest, ResumedPart, stored_maker, thaw
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.actors.replica.vertex.end_hold import EndHold
from rayad.actors.replica.vertex.waiting_for_time import WaitingForTime
from rayad.dataflow.compiling.state_identity import of_class
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.vertex import EndVertex
from rayad.progress import SnapshotError, Timestamp
from rayad.snapshots.identity import fits, spell

Receive = Callable[[int, Timestamp, Any], None]


class ReplicaCut:
    """What snapshots hold of one replica besides its vertex' state.

    Args:
        plan: the whole plan; layouts do not matter.
        stage: the replica's stage.
        changes, callbacks, outputs, source, live_input, pace, waiting, end_hold: parts of the replica.
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        *,
        changes: ProgressChanges,
        callbacks: Callbacks,
        outputs: Outputs,
        source: SourceLife,
        live_input: LiveInput,
        pace: Pace,
        waiting: WaitingForTime,
        end_hold: EndHold,
    ) -> None:
        self._plan, self._stage = plan, stage
        self._changes, self._callbacks, self._outputs = changes, callbacks, outputs
        self._source, self._live_input, self._pace, self._waiting, self._end_hold = source, live_input, pace, waiting, end_hold

    def cut(self) -> PartRest:
        """Everything but the vertex's state, between two activations; what combiners keep back must have been flushed and sent."""
        names, callbacks, live, waiting = edge_names(self._plan), self._callbacks, self._live_input, self._waiting
        gate = waiting.gate
        return PartRest(
            source=self._source.position(),
            input_epoch=live.epoch,
            input_frames=live.frames,
            input_sends=live.sends,
            input_note=live.note,
            input_before=live.before,
            input_begun=live.begun,
            begun=sorted(self._pace.begun),
            notifications=[(n.guarantee, n.capability) for n in waiting.notificator.pending()],
            furthest=max(self._source.furthest, live.furthest),
            hold=self._end_hold.time,
            latest=self._end_hold.latest,
            gated=[(names[edge], data) for edge, data in (gate.waiting.frozen() if gate is not None else ())],
            passed=list(gate.passed) if gate is not None else [],
            parked=[(names[edge], data) for edge, data in waiting.parked.frozen()],
            counts=(callbacks.batches, callbacks.records, self._outputs.outbox.batches_out),
            vertex=of_class(type(callbacks.vertex)) if callbacks.vertex is not None else None,
            maker=self._maker,
            applied=callbacks.applied,
            passed_epoch=passed_here(
                waiting.view,
                waiting.notificator.pending(),
                sends_at_end=isinstance(callbacks.vertex, EndVertex) and not self._end_hold.has_spoken,
            ),
        )

    @cached_property
    def _maker(self) -> bytes | None:
        """How the vertex is made, for reading its state without the program (:mod:`rayad.actors.saved_state`)."""
        return stored_maker(self._stage.op) if isinstance(self._callbacks.vertex, KeyedVertex) else None

    def resume_source(self, resumed: ResumedPart | None) -> None:
        """Open the source where it was at the cut, or at its beginning."""
        self._source.open(resumed.rest if resumed is not None else None)
        if resumed is not None:
            self._pace.resume(resumed.rest.get("begun", ()))
            self._resume_counts(resumed)

    def resume_input(self, resumed: ResumedPart) -> None:
        """Restore the position of a live input."""
        self._live_input.resume(resumed.rest)
        self._pace.resume(resumed.rest.get("begun", ()))
        self._resume_counts(resumed)

    def resume_vertex(self, resumed: ResumedPart, receive: Receive) -> None:
        """Restore state, notifications, and batches that wait. Raises SnapshotError when the state is that of another class."""
        rest, vertex = resumed.rest, self._callbacks.vertex
        assert vertex is not None
        before, now = rest.get("vertex"), of_class(type(vertex))
        if not fits(before, now):
            raise SnapshotError(
                f"vertex {self._stage.name!r} cannot resume: what it keeps in the snapshot is that of {spell(before)}, and the dataflow "
                f"makes {spell(now)}; run the dataflow that the snapshot was taken of, or begin afresh with resume='never'"
            )
        for i, state in enumerate(resumed.states):
            self._callbacks.guard("restore", partial(vertex.restore if i == 0 else vertex.restore_changes, state))
        self._end_hold.latest = rest["latest"]
        ids = self._ids()
        self._waiting.resume(rest, ids)
        for name, data in rest["gated"]:
            time, batch = thaw(data)
            self._changes.count_waiting(ids[name], time)
            receive(ids[name], time, batch)
        self._resume_counts(resumed)

    def _resume_counts(self, resumed: ResumedPart) -> None:
        """Restore the counts for statistics."""
        batches, records, self._outputs.outbox.batches_out = resumed.rest["counts"]
        self._callbacks.resume_counts(batches, records)
        self._callbacks.applied = resumed.rest.get("applied")

    def roll_back(self, edges: frozenset[int], part: ResumedPart | None) -> None:
        """The senders on these edges resume from a snapshot; ``part`` is this replica's part of it. What this replica has consumed stays.

        What they sent and still waits here is dropped; what was in flight to this replica at the cut, which they will not send again, is
        taken from the part.
        """
        self._waiting.roll_back(edges)
        if part is None:
            return
        ids = self._ids()
        for name, data in [*part.rest["gated"], *((name, data) for name, _, data in part.rest["log"])]:
            if ids[name] in edges:
                self._waiting.gate_again(ids[name], data)

    def _ids(self) -> dict[str, int]:
        return {name: edge for edge, name in edge_names(self._plan).items()}
