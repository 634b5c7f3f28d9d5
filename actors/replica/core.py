"""One replica of a stage, as a pure state machine: batches, views and source ticks in; batches and progress changes out.

Both runtimes drive this same core; it touches no socket, clock, thread or actor. What it produces waits in ``outputs`` (batches
for other replicas) and ``changes`` (progress, accumulated); the shell sends the batches and then the changes as one report.

The core says what happens in which order. What a replica consists of is in parts of its own, each with one concern:

- ``changes``: what it has to report to the progress core (``progress_changes.py``)
- ``outputs``: what lies behind the vertex (``output/``)
- ``callbacks``: the running of the user's code (``vertex/callbacks.py``)
- the vertex's context: what it may do then (``vertex/rights.py``)
- ``waiting``: batches and notifications that wait for their time (``vertex/waiting_for_time.py``)
- ``end_hold``: an EndVertex's right to send at the end (``vertex/end_hold.py``)
- ``input`` and the source: where records come from (``input/``)
- ``moves``: what moves with key-groups (``state_moves.py``)
- the cut: what a snapshot has of all these (``cut.py``)
- ``tables``: what others read of the vertex' state (``tables.py``)
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from rayad.actors.plane.on_demand import rows_of
from rayad.actors.replica.cut import ReplicaCut
from rayad.actors.replica.input.live_input import LiveInput
from rayad.actors.replica.input.pace import Pace
from rayad.actors.replica.input.source_life import SourceLife
from rayad.actors.replica.input.source_reader import SourceReader
from rayad.actors.replica.output.outputs import Outputs
from rayad.actors.replica.output.spilled_batches import OutgoingBound
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.replica.rest import PartRest, ResumedPart
from rayad.actors.replica.state_moves import StateMoves
from rayad.actors.replica.upstream import Gate
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.actors.replica.vertex.end_hold import EndHold
from rayad.actors.replica.vertex.rights import VertexRights
from rayad.actors.replica.vertex.waiting_for_time import WaitingForTime
from rayad.actors.replica.waiting_batches import Parked
from rayad.dataflow.logical_graph import NodeKind, PartitionKind
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.live import LiveState
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element
from rayad.dataflow.pacing import FREE, Ahead, paced
from rayad.dataflow.plan import Plan, PlanEdge, Stage
from rayad.dataflow.vertex import EndVertex, Vertex, begin, check_reentrancy
from rayad.progress import DataflowError, Notificator, SnapshotError, Timestamp, View, show


class PassThrough(Vertex):
    """The head of a stage that exists only because data must be exchanged there."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.send_by(0, batch, time)


def _hold(memory: MemoryBound, vertex: Vertex) -> None:
    if isinstance(vertex, KeyedVertex):
        memory.hold(vertex.states().values())


class Settling(Protocol):
    """A step of a change of layout at this replica (``migration.py``)."""

    @property
    def is_settled(self) -> bool: ...

    @property
    def awaits_state(self) -> bool: ...

    def coming(self) -> frozenset[int]:
        """The key-groups that are on their way here."""


class ReplicaCore:
    """State of one replica.

    Args:
        plan: the whole plan.
        stage: the stage.
        replica: which of its replicas, from 0.
        room: for "rebalance" edges: (edge, replica) -> how much room that channel has; the largest wins.
        gated: edges on which a batch waits until its time is complete (see :mod:`rayad.actors.replica.upstream`).
        clock: seconds, for :attr:`doing`; needed only where its start is read.
        moment: what :meth:`rayad.Vertex.now` gives; needed only by vertices that ask for it.
        parking: makes the place for batches that wait for their time.
        memory: keeps sorted runs of its state within a bound, and what it gathers before it sends; None: they stay in memory.
        outgoing: keeps what one call sends within a bound; None: it waits in memory.
        isolated, working: see :class:`Outputs`.
        ahead: how far inputs may run ahead.
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        replica: int,
        *,
        room: Callable[[int, int], int] | None = None,
        gated: frozenset[int] = frozenset(),
        clock: Callable[[], float] = lambda: 0.0,
        moment: Callable[[], dt.datetime] | None = None,
        parking: Callable[[], Parked] = Parked,
        memory: MemoryBound | None = None,
        outgoing: OutgoingBound | None = None,
        isolated: Callable[[Element], Element | None] | None = None,
        working: Callable[[str], None] | None = None,
        ahead: Ahead = FREE,
    ) -> None:
        self.plan = plan
        self.stage = stage
        self.name = stage.name
        self.replica = replica
        self.done_tokens: list[Any] = []
        self.migration: Settling | None = None
        """The step of a change of layout that is under way here, or the last one."""
        self.changes = changes = ProgressChanges(plan, stage)
        self.callbacks = callbacks = Callbacks(stage, replica, clock)
        gathered = GATHERED_BYTES_MAX if memory is None else min(GATHERED_BYTES_MAX, memory.gathered_bytes_max)
        self.outputs = outputs = Outputs(plan, stage, replica, changes.add, room, self._reenter, isolated, working, gathered, outgoing)
        self.waiting = waiting = WaitingForTime(stage, changes, gated, parking)
        self.end_hold = end_hold = EndHold(changes)
        is_input = stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)
        self.pace = pace = Pace(ahead.epochs if is_input and stage.id in paced(plan, ahead) else None)
        self.input = live_input = LiveInput(changes, pace)
        self._source = source = SourceLife(stage, replica, changes, callbacks, pace)
        self._rights = VertexRights(plan, stage, replica, callbacks=callbacks, outputs=outputs, waiting=waiting, moment=moment)
        self.moves = StateMoves(stage, changes, callbacks, self._rights, waiting, end_hold)
        self._cut = ReplicaCut(
            plan,
            stage,
            changes=changes,
            callbacks=callbacks,
            outputs=outputs,
            source=source,
            live_input=live_input,
            pace=pace,
            waiting=waiting,
            end_hold=end_hold,
        )
        self._edges = plan.edge_by_id
        self._memory = memory
        self._live: LiveState | None = None

    # -- life --------------------------------------------------------------------
    def start(self, resumed: ResumedPart | None = None, *, is_newcomer: bool = False) -> None:
        """Build the vertex or open the source; what it holds from the beginning, or from the cut of a snapshot, is in ``changes``.

        ``is_newcomer``: it is admitted to a running job, and gets all its rights from its siblings.
        """
        self.moves.has_groups = not is_newcomer
        if self.stage.kind is NodeKind.SOURCE:
            self._cut.resume_source(resumed)
        elif self.stage.kind is NodeKind.INPUT:
            self.input.begin()
            if resumed is not None:
                self._cut.resume_input(resumed)
        else:
            vertex = self._build_vertex()
            if isinstance(vertex, EndVertex):
                self._begin_hold(resumed, is_newcomer=is_newcomer)
            if resumed is not None:
                self._cut.resume_vertex(resumed, self.receive)

    def _build_vertex(self) -> Vertex:
        stage, callbacks = self.stage, self.callbacks
        vertex = callbacks.guard("__init__", PassThrough if stage.kind is NodeKind.EXCHANGE else stage.op)
        if not isinstance(vertex, Vertex):
            raise DataflowError(
                f"{stage.name!r} ({stage.where}) made {show(vertex, 60)}: a vertex must be an instance of a subclass of rd.Vertex"
            )
        callbacks.vertex = vertex
        if isinstance(vertex, KeyedVertex):
            self._live = vertex.live = LiveState(vertex, callbacks.epoch_now, callbacks.last_epoch)
        if self.waiting.gate is not None:
            self.waiting.gate.in_order = vertex.in_order
        callbacks.reentrancy = check_reentrancy(vertex.reentrancy, f"{stage.name!r} ({stage.where})")
        callbacks.guard("setup", partial(begin, vertex, self._rights))
        if self._memory is not None:
            callbacks.after = partial(_hold, self._memory, vertex)
        return vertex

    def _begin_hold(self, resumed: ResumedPart | None, *, is_newcomer: bool) -> None:
        stage = self.stage
        if stage.depth:
            raise DataflowError(
                f"{stage.name!r} ({stage.where}) is an EndVertex inside a loop: it keeps the right to send until its input ends, so "
                "the loop could "
                "never end; put it outside the loop"
            )
        if resumed is not None and resumed.rest.get("is_reopened"):
            raise SnapshotError(
                f"vertex {self.name!r} cannot resume: the job was complete, and the end of its input has completed all windows here; "
                "records that come now would give those windows another result. Resume from an earlier snapshot "
                "(rd.RunConfig(resume=number)), or begin afresh with resume='never'; to continue later, end a job by job.savepoint() "
                "and job.cancel()"
            )
        if resumed is not None:
            self.end_hold.begin(resumed.rest["hold"])
            self.end_hold.has_spoken = self.end_hold.time is None
        else:
            self.end_hold.begin(None if is_newcomer else Timestamp(0))

    def close(self) -> None:
        """Release what the user's code holds. Never raises."""
        self.waiting.close()
        self.outputs.close()
        for held in (self.vertex, self.source):
            if held is not None:
                try:
                    held.close()
                except Exception:  # it must not hide the job's own outcome
                    continue

    # -- snapshots ---------------------------------------------------------------
    def cut(self) -> PartRest:
        """Everything but the vertex's state, between two activations; what combiners keep back must have been flushed and sent."""
        return self._cut.cut()

    def roll_back(self, edges: frozenset[int], part: ResumedPart | None) -> None:
        """See :meth:`ReplicaCut.roll_back`."""
        self._cut.roll_back(edges, part)

    def stage_sinks(self) -> dict[int, Any]:
        """What every sink writer of this replica has staged, by sink id."""
        staged: dict[int, Any] = self.callbacks.guard("stage of a sink", self.outputs.sinks.stage)
        return staged

    def abort_sinks(self) -> None:
        """Throw away what was written."""
        self.outputs.sinks.abort()

    # -- changes of layout: see migration.py -----------------------------------
    def lay_out(self, plan: Plan) -> None:
        """Change to a plan of another layout; what combiners keep back must have been flushed and sent."""
        self.plan, self.stage = plan, plan.stage(self.stage.id)
        self._rights.parallelism = self.stage.parallelism
        self._edges = plan.edge_by_id
        self.changes.lay_out(plan)
        self.outputs.lay_out(plan)

    def gave(self) -> None:
        """Tell the vertex that all the state it gave has arrived."""
        self.moves.gave()

    def let_go(self) -> None:
        """Drop what a replica that retires still waits for: its state has moved."""
        self.moves.let_go()

    # -- batches -------------------------------------------------------------------
    def receive(self, edge_id: int, time: Timestamp, batch: Any, token: Any = None) -> None:
        """One activation: a batch has arrived. ``token`` comes back in ``done_tokens`` when it has been consumed."""
        vertex = self.callbacks.vertex
        assert vertex is not None
        if not self.moves.has_groups and self._edges[edge_id].routing is PartitionKind.BROADCAST:
            self.changes.on_edge(edge_id, time, -1)
        elif not ((vertex.in_order or self.waiting.gate is not None) and self.waiting.takes(vertex, edge_id, time, batch)):
            self._consume(edge_id, time, batch)
            self.changes.on_edge(edge_id, time, -1)
        if token is not None:
            self.done_tokens.append(token)

    def _consume(self, edge_id: int, time: Timestamp, batch: Any) -> None:
        if self.end_hold.time is not None:
            self.end_hold.consumed(time)
        items = rows_of(batch)
        self.outputs.counters.received_items[edge_id] += items
        self.callbacks.on_recv(self._edges[edge_id].port, batch, time, items)

    def _reenter(self, edge: PlanEdge, time: Timestamp, batch: Any) -> bool:
        """Hand a batch that comes back to this replica to its vertex at once, inside the callback that sends it, if re-entrancy allows.

        It needs no count of its own: the batch that the callback consumes stays counted until the callback ends, at a time that is not
        larger. Barriers, views and markers are taken between activations, so none can come in between. While key-groups move here, their
        records must wait for their state, so everything is queued; so is a batch whose turn has not come.
        """
        callbacks = self.callbacks
        if not callbacks.may_nest:
            return False
        assert callbacks.vertex is not None
        if self.migration is not None and not self.migration.is_settled:
            return False
        if callbacks.vertex.in_order and not self.waiting.is_in_turn(time):
            return False
        items = rows_of(batch)
        self.outputs.counters.sent_items[edge.id] += items
        self.outputs.counters.received_items[edge.id] += items
        callbacks.on_recv_nested(edge.port, batch, time, items)
        return True

    def count_waiting(self, edge_id: int, time: Timestamp, batches: int = 1) -> None:
        """See :meth:`ProgressChanges.count_waiting`."""
        self.changes.count_waiting(edge_id, time, batches)

    # -- views -----------------------------------------------------------------------
    def on_view(self, view: View) -> None:
        """The progress core has published a new view of this stage."""
        self.waiting.view = view
        for edge_id, time, batch, is_gated in self.waiting.ready(self.callbacks.vertex):
            self._consume(edge_id, time, batch)
            if is_gated:
                self.changes.at_vertex(time, -1)
            else:
                self.changes.on_edge(edge_id, time, -1)

    def notify(self) -> bool:
        """Run the notifications that are due; true if any ran. While state is on its way here there are none: what it holds of a time, and
        what was broadcast before, is part of what the vertex makes of the time."""
        waiting = self.waiting
        if waiting.view is None or (self.migration is not None and self.migration.awaits_state):
            return False
        ran = False
        vertex = self.callbacks.vertex
        if vertex is not None and len(waiting.notificator):
            for notification in waiting.due(vertex):
                ran = True
                self.callbacks.on_notify(notification.guarantee, notification.capability)
                waiting.done(notification)
        if self.end_hold.time is not None:
            assert isinstance(vertex, EndVertex)
            self.end_hold.follow(vertex, waiting.view, self.callbacks, is_waiting=not waiting.is_empty)
        return ran

    @property
    def wants_views(self) -> bool:
        """Whether it must be told of its input frontier even while it waits for no notification."""
        vertex, waiting = self.callbacks.vertex, self.waiting
        if vertex is None:
            return False
        is_followed = vertex.in_order or waiting.gate is not None or self.is_read
        return waiting.has_unseen or self.end_hold.time is not None or is_followed

    # -- those who read its state ------------------------------------------------
    @property
    def live(self) -> LiveState | None:
        """The state of the vertex, as others read it; None: it has no keyed state."""
        return self._live

    @property
    def sends_at_end(self) -> bool:
        """Whether the vertex still has something to do when its input ends."""
        return isinstance(self.vertex, EndVertex) and not self.end_hold.has_spoken

    @property
    def is_read(self) -> bool:
        """Whether somebody reads the state."""
        return self._live is not None and self._live.is_read

    def took(self, applied: int | None, *, has_state: bool) -> None:
        """A sibling has given what it had of some key-groups, and what it held was of this epoch.

        Args:
            applied: None: not known.
            has_state: whether state came with it; former values are in that.
        """
        self.callbacks.took(applied)
        if self.live is not None and not has_state:
            self.live.take({})

    def take_changes(self) -> list[tuple[int, Timestamp, int]]:
        """The accumulated progress, for one report; empty when nothing has changed."""
        return self.changes.take()

    # -- sources and live inputs ---------------------------------------------------------
    def source_step(self) -> bool | None:
        """Read one batch: true if there was something, false if nothing is there yet, None when the source is exhausted."""
        read = self._source.read()
        if not isinstance(read, tuple):
            return read
        self.emit_input(Timestamp.of(read[0], ()), read[1])
        return True

    def stop_source(self) -> None:
        """Stop reading; what has been read is finished."""
        self._source.stop()

    def emit_input(self, time: Timestamp, batch: Any) -> None:
        """Run what follows the source or live input on a batch of it."""
        items = batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        self.callbacks.on_input(self.outputs.emit, time, batch, items)

    def input_send(self, batch: Any) -> None:
        """Live input: records of the current epoch."""
        self.emit_input(self.input.send(), batch)

    def input_advance(self, epoch: int) -> None:
        """Live input: no more records before ``epoch``."""
        self.input.advance(epoch)

    def input_close(self, *, is_cut: bool = False) -> None:
        """Live input: no more records. ``is_cut``: the last epoch may be incomplete."""
        self.input.close(is_cut=is_cut)

    # -- to look at ------------------------------------------------------------------------
    @property
    def vertex(self) -> Vertex | None:
        """None: it reads a source or a live input."""
        return self.callbacks.vertex

    @property
    def source(self) -> SourceReader | None:
        """None: the source is over, or there is none."""
        return self._source.reader

    @property
    def is_paced(self) -> bool:
        """Whether it takes nothing now, since it is as many epochs ahead as it may be."""
        reader = self.source
        return self.input.is_held or (reader is not None and self.pace.holds(reader.epoch))

    @property
    def begun(self) -> int:
        """Of a source or live input: the last epoch of which it may have given something; -1: none."""
        return self._source.given if self.stage.kind is NodeKind.SOURCE else self.input.begun

    @property
    def view(self) -> View | None:
        """The newest view of this stage; None: none yet."""
        return self.waiting.view

    @property
    def notificator(self) -> Notificator:
        """The notifications that the vertex waits for."""
        return self.waiting.notificator

    @property
    def parked(self) -> Parked:
        """The batches that came before their turn."""
        return self.waiting.parked

    @property
    def gate(self) -> Gate | None:
        """The batches that wait for their time to be complete; None: none has to."""
        return self.waiting.gate

    @property
    def doing(self) -> tuple[str, Timestamp | None, float] | None:
        """The callback that runs, its time, and since when; None between activations. Any thread may read it."""
        return self.callbacks.doing

    @property
    def batches_in(self) -> int:
        """Batches consumed so far."""
        return self.callbacks.batches

    @property
    def records_in(self) -> int:
        """Records in them."""
        return self.callbacks.records

    @property
    def counted_before(self) -> tuple[int, int]:
        """These two counts, in the run that it resumes from."""
        return self.callbacks.counted_before

    @property
    def batches_out(self) -> int:
        """Batches for other replicas so far."""
        return self.outputs.outbox.batches_out

    @property
    def amounts_read(self) -> tuple[float, float]:
        """Of a source: how much has been read, and how much there is, in its own unit; (0, 0) where that is not known."""
        return self._source.amounts


__all__ = ["PassThrough", "ReplicaCore", "Settling"]
