"""One replica of a stage, as a pure state machine: batches, views and source ticks in; batches and progress changes out.

Both runtimes drive this same core; it touches no socket, clock, thread or actor. What it produces waits in ``outbox`` (batches
for other replicas) and ``changes`` (progress, accumulated); the shell sends the batches and then the changes as one report. The right to
send is checked here: a user's vertex cannot go back in time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from rayad.actors.plane.on_demand import rows_of
from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.rest import PartRest, ResumedPart, stored_maker, thaw
from rayad.actors.replica.routing import Outgoing, Outputs
from rayad.actors.replica.source_reader import SourceReader
from rayad.actors.replica.upstream import Gate
from rayad.actors.replica.user_errors import describe, raise_located
from rayad.actors.replica.waiting_batches import Parked
from rayad.dataflow.compiling.state_identity import of_class
from rayad.dataflow.logical_graph import NodeKind, PartitionKind
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import Plan, PlanEdge, Stage
from rayad.dataflow.records.batches import require_distinct
from rayad.dataflow.vertex import EndVertex, Vertex, VertexContext, begin, check_reentrancy
from rayad.progress import DataflowError, FlatReachability, Notificator, SnapshotError, Timestamp, View, show
from rayad.snapshots.identity import fits, spell

__all__ = ["Outgoing", "PassThrough", "ReplicaCore"]

Right = tuple[int, Timestamp]
"""A location of the progress graph and a time: a capability that is counted while it moves to a sibling."""


class PassThrough(Vertex):
    """The head of a stage that exists only because data must be exchanged there."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.send_by(0, batch, time)


class Settling(Protocol):
    """A step of a change of layout at this replica (``migration.py``)."""

    @property
    def is_settled(self) -> bool: ...

    @property
    def awaits_state(self) -> bool: ...


class ReplicaCore(VertexContext):
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
        isolated, working: see :class:`Outputs`.
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
        isolated: Callable[[Element], Element | None] | None = None,
        working: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._moment = moment or super().now
        self.doing: tuple[str, Timestamp | None, float] | None = None
        """The callback that runs, its time, and since when; None between activations. Any thread may read it."""
        self.plan = plan
        self.stage = stage
        self.name = stage.name
        self.replica = replica
        self.parallelism = stage.parallelism
        self.key_groups = plan.key_groups
        self.changes: dict[tuple[int, Timestamp], int] = {}
        self.done_tokens: list[Any] = []
        self.parked = parking()
        self.view = View((), ()) if not stage.inputs else None
        self.batches_in = self.records_in = 0
        self.counted_before = (0, 0)  # the two counts above, in the run that it resumes from
        self.migration: Settling | None = None
        self.has_groups = True
        """Whether it has key-groups, or they are on their way to it. A newcomer has none at first, and hears nothing that is broadcast: all
        of it is in the state that it is to take, or is passed on to it behind that."""
        """The step of a change of layout that is under way here, or the last one."""
        self.nested = 0
        """How many calls of the vertex's on_recv are now nested inside another of its callbacks."""
        self.reentered = 0
        """How many batches have been handed to the vertex inside a callback, instead of going through a queue."""
        self._reentrancy = 0
        self._broken: Exception | None = None  # what failed in a nested call
        self.outputs = Outputs(plan, stage, replica, self.change, room, self._reenter, isolated, working)
        self._edges = plan.edge_by_id
        self._now: Timestamp | None = None
        self.notificator = Notificator()
        self.gate = Gate(gated, parking()) if gated and stage.inputs else None
        self._waits_unseen = False  # waits for a notification without capability, which the progress core does not count
        self._reachability: FlatReachability | None = None
        self.vertex: Vertex | None = None
        self.source: SourceReader | None = None
        self._amounts_read = (0.0, 0.0)  # of a source that has ended
        self.input_epoch: int | None = None
        self.furthest = 0
        """The epoch in which a source or live input that is over has ended."""
        self._ended: tuple[tuple[int, Timestamp, int], ...] = ()  # to be reported
        self.input_frames = self.input_sends = 0
        self.input_note: str | None = None
        self.input_before: int | None = 0
        """All epochs of a live input before this one have arrived in full; None: its feeder has closed it, so all have."""
        self.hold: Timestamp | None = None
        self._has_spoken = False  # an EndVertex, when its input ended
        self._latest: Timestamp | None = None  # the last of the times consumed, while there is a hold
        self._rights: tuple[Timestamp, ...] = ()  # the rights that came with state, while that is taken up

    # -- life --------------------------------------------------------------------
    def start(self, resumed: ResumedPart | None = None, *, is_newcomer: bool = False) -> None:
        """Build the vertex or open the source; what it holds from the beginning, or from the cut of a snapshot, is in ``changes``.

        ``is_newcomer``: it is admitted to a running job, and gets all its rights from its siblings.
        """
        stage = self.stage
        self.has_groups = not is_newcomer
        if stage.kind is NodeKind.SOURCE:
            if resumed is None or resumed.rest["source"] is not None:
                self.source = self.guard("open", partial(self._open_source, resumed.rest["source"] if resumed else None))
            if self.source is None or self.source.epoch:
                self.change(stage.notify_location, Timestamp(0), -1)  # the progress graph begins with every source at epoch 0
                if self.source is not None:
                    self.change(stage.notify_location, Timestamp(self.source.epoch), 1)
            if resumed is not None:
                self.furthest = resumed.rest.get("furthest", 0)
                self._resume_counts(resumed.rest)
            if self.source is None:
                self._end_input(self.furthest)
            return
        if stage.kind is NodeKind.INPUT:
            self.input_epoch = 0
            if resumed is not None:
                self._resume_input(resumed.rest)
            return
        make = PassThrough if stage.kind is NodeKind.EXCHANGE else stage.op
        vertex = self.guard("__init__", make)
        if not isinstance(vertex, Vertex):
            raise DataflowError(
                f"{stage.name!r} ({stage.where}) made {show(vertex, 60)}: a vertex must be an instance of a subclass of rd.Vertex"
            )
        self.vertex = vertex
        if self.gate is not None:
            self.gate.in_order = vertex.in_order
        self._reentrancy = check_reentrancy(vertex.reentrancy, f"{stage.name!r} ({stage.where})")
        self.guard("setup", partial(begin, vertex, self))
        if isinstance(vertex, EndVertex):
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
            self.hold = resumed.rest["hold"] if resumed is not None else None if is_newcomer else Timestamp(0)
            self._has_spoken = resumed is not None and self.hold is None
            if self.hold is not None:
                self.change(stage.capability_location, self.hold, 1)
        if resumed is not None:
            self._resume_vertex(vertex, resumed)

    # -- snapshots ---------------------------------------------------------------
    # Everything restored counts as if it had just been received or asked for: so the progress core is rebuilt from the parts
    # (docs/design/snapshots.md, 3).
    def cut(self) -> PartRest:
        """Everything but the vertex's state, between two activations; what combiners keep back must have been flushed and sent."""
        names = edge_names(self.plan)
        return PartRest(
            source=self.source.position() if self.source is not None else None,
            input_epoch=self.input_epoch,
            input_frames=self.input_frames,
            input_sends=self.input_sends,
            input_note=self.input_note,
            input_before=self.input_before,
            notifications=[(n.guarantee, n.capability) for n in self.notificator.pending()],
            furthest=max(self.furthest, self.source.furthest if self.source is not None else 0),
            hold=self.hold,
            latest=self._latest,
            gated=[(names[edge], data) for edge, data in (self.gate.waiting.frozen() if self.gate is not None else ())],
            passed=list(self.gate.passed) if self.gate is not None else [],
            parked=[(names[edge], data) for edge, data in self.parked.frozen()],
            counts=(self.batches_in, self.records_in, self.outputs.batches_out),
            vertex=of_class(type(self.vertex)) if self.vertex is not None else None,
            maker=self._maker,
        )

    @cached_property
    def _maker(self) -> bytes | None:
        """How the vertex is made, for reading its state without the program (:mod:`rayad.actors.saved_state`)."""
        return stored_maker(self.stage.op) if isinstance(self.vertex, KeyedVertex) else None

    def _resume_vertex(self, vertex: Vertex, resumed: ResumedPart) -> None:
        """Restore state, notifications, and batches that wait. Raises SnapshotError when the state is that of another class."""
        rest = resumed.rest
        before, now = rest.get("vertex"), of_class(type(vertex))
        if not fits(before, now):
            raise SnapshotError(
                f"vertex {self.name!r} cannot resume: what it keeps in the snapshot is that of {spell(before)}, and the dataflow makes "
                f"{spell(now)}; run the dataflow that the snapshot was taken of, or begin afresh with resume='never'"
            )
        for i, state in enumerate(resumed.states):
            self.guard("restore", partial(vertex.restore if i == 0 else vertex.restore_changes, state))
        for guarantee, capability in rest["notifications"]:
            if capability is None:
                self._waits_unseen = True
            if self.notificator.request(guarantee, capability):
                self._hold_back(guarantee, capability, 1)
        self._latest = rest["latest"]
        ids = {name: edge for edge, name in edge_names(self.plan).items()}
        for name, data in rest["parked"]:
            time, batch = thaw(data)
            self.parked.add(time, ids[name], batch)
            self.count_waiting(ids[name], time)
        if self.gate is not None:
            self.gate.passed = list(rest["passed"])
        for name, data in rest["gated"]:
            time, batch = thaw(data)
            self.count_waiting(ids[name], time)
            self.receive(ids[name], time, batch)
        self._resume_counts(rest)

    def _resume_input(self, rest: Mapping[str, Any]) -> None:
        """Restore the position of a live input."""
        self.input_frames, self.input_sends = rest["input_frames"], rest["input_sends"]
        self.input_note = rest.get("input_note")
        if rest["input_epoch"] is None:
            self.input_advance(rest.get("furthest", 0))
            self.input_close()
        elif rest["input_epoch"]:
            self.input_advance(rest["input_epoch"])
        self.input_before = rest["input_epoch"] if rest["input_epoch"] is not None else rest.get("input_before")
        self._resume_counts(rest)

    def _resume_counts(self, rest: Mapping[str, Any]) -> None:
        """Restore the counts for statistics."""
        self.batches_in, self.records_in, self.outputs.batches_out = rest["counts"]
        self.counted_before = (self.batches_in, self.records_in)

    def roll_back(self, edges: frozenset[int], part: ResumedPart | None) -> None:
        """The senders on these edges resume from a snapshot; ``part`` is this replica's part of it. What this replica has consumed stays.

        What they sent and still waits here is dropped; what was in flight to this replica at the cut, which they will not send again, is
        taken from the part.
        """
        assert self.gate is not None
        for time in self.gate.rolled_back(edges, self.view.input_frontier if self.view is not None else None):
            self.change(self.stage.notify_location, time, -1)
        if part is None:
            return
        ids = {name: edge for edge, name in edge_names(self.plan).items()}
        waiting = [*part.rest["gated"], *((name, data) for name, _, data in part.rest["log"])]
        for edge, data in ((ids[name], data) for name, data in waiting):
            time, batch = thaw(data)
            if edge in edges and not self.gate.repeats(time):
                self.gate.hold(edge, time, batch)
                self.change(self.stage.notify_location, time, 1)

    # -- changes of layout: see migration.py -----------------------------------
    def lay_out(self, plan: Plan) -> None:
        """Change to a plan of another layout; what combiners keep back must have been flushed and sent."""
        self.plan, self.stage = plan, plan.stage(self.stage.id)
        self.parallelism = self.stage.parallelism
        self._edges = plan.edge_by_id
        self.outputs.lay_out(plan)

    def give(self, groups: frozenset[int]) -> Any:
        """Take the state of some key-groups out of the vertex; None: there is none, or an EndVertex has sent at the end what it makes of
        it, which a sibling must not do again."""
        if not groups or self.stage.kind is not NodeKind.VERTEX or self.vertex is None:
            return None
        if self._has_spoken:
            return None
        return self.guard("give", partial(self.vertex.give, groups))

    def rights_along(self) -> tuple[Right, ...]:
        """The rights of the pending notifications, which move with state: counted once more from now on."""
        stage = self.stage
        rights = []
        for notification in self.notificator.pending():
            capability = notification.capability
            if capability is not None:
                location = stage.notify_location if capability == notification.guarantee else stage.capability_location
                rights.append((location, capability))
                self.change(location, capability, 1)
        return tuple(rights)

    def hold_along(self) -> tuple[Timestamp | None, Timestamp | None]:
        """What moves with key-groups, also where nothing has come for them: an EndVertex's right to send at the end, counted once more from
        now on, and the last time at which it consumed something. A new replica has no such right of its own."""
        if self.hold is not None:
            self.change(self.stage.capability_location, self.hold, 1)
        return self.hold, self._latest

    def take(self, state: Any, rights: Sequence[Right]) -> None:
        """Take up state from a sibling. Its rights are counted already, and are replaced by what the vertex asks for here."""
        assert self.vertex is not None
        self._rights = tuple(time for _, time in rights)
        self.guard("take", partial(self.vertex.take, state))
        self._rights = ()
        for location, time in rights:
            self.change(location, time, -1)

    def take_hold(self, hold: Timestamp, latest: Timestamp | None) -> None:
        """Take up an EndVertex's right to send at the end, which is counted already; a replica that has one keeps its own. One that has
        sent already will again, what comes with the right: it forgets what it had."""
        assert self.vertex is not None
        if self._has_spoken:
            self.guard("give", partial(self.vertex.give, frozenset(range(self.key_groups))))
            self._has_spoken = False
        if self.hold is None:
            self.hold = hold
        else:
            self.change(self.stage.capability_location, hold, -1)
        if latest is not None and (self._latest is None or self._latest < latest):
            self._latest = latest

    def gave(self) -> None:
        """Tell the vertex that all the state it gave has arrived."""
        if self.vertex is not None:
            self.guard("gave", self.vertex.gave)

    def let_go(self) -> None:
        """Drop the pending notifications and the right to send at the end of a replica that retires: its state has moved."""
        for notification in self.notificator.pending():
            self._hold_back(notification.guarantee, notification.capability, -1)
        self.notificator = Notificator()
        if self.hold is not None:
            self.change(self.stage.capability_location, self.hold, -1)
            self.hold = None

    def count_waiting(self, edge_id: int, time: Timestamp, batches: int = 1) -> None:
        """Count restored batches that wait on an edge as if they had just been sent; a negative number counts batches that were joined."""
        self.change(*self.counted(edge_id, time), batches)

    @property
    def wants_views(self) -> bool:
        """Whether it must be told of its input frontier even while it waits for no notification."""
        if self.vertex is None:
            return False
        return self._waits_unseen or self.hold is not None or self.vertex.in_order or self.gate is not None

    def _open_source(self, position: Any) -> SourceReader:
        mine = self.stage.parts[self.replica :: self.stage.parallelism]
        return SourceReader(self.stage.op, mine, self.stage.name, self.stage.where, position)

    def close(self) -> None:
        """Release what the user's code holds. Never raises."""
        self.parked.close()
        self.outputs.close()
        if self.gate is not None:
            self.gate.waiting.close()
        for release in (self.vertex.close if self.vertex else None, self.source.close if self.source else None):
            if release is not None:
                try:
                    release()
                except Exception:  # it must not hide the job's own outcome
                    continue

    def stage_sinks(self) -> dict[int, Any]:
        """What every sink writer of this replica has staged, by sink id."""
        self.doing = ("stage of a sink", None, self._clock())
        staged = self.outputs.stage_sinks()
        self.doing = None
        return staged

    def abort_sinks(self) -> None:
        """Throw away what was written."""
        self.outputs.abort_sinks()

    @property
    def batches_out(self) -> int:
        """Batches for other replicas so far."""
        return self.outputs.batches_out

    # -- input ---------------------------------------------------------------------
    def receive(self, edge_id: int, time: Timestamp, batch: Any, token: Any = None) -> None:
        """One activation: a batch has arrived. ``token`` comes back in ``done_tokens`` when it has been consumed."""
        vertex = self.vertex
        assert vertex is not None
        if not self.has_groups and self._edges[edge_id].routing is PartitionKind.BROADCAST:
            self.change(*self.counted(edge_id, time), -1)
            if token is not None:
                self.done_tokens.append(token)
            return
        if self.gate is not None and edge_id in self.gate.edges:
            self._gate_in(edge_id, time, batch)
            if token is not None:
                self.done_tokens.append(token)
            return
        if vertex.in_order and not self._in_turn(time):
            self.parked.add(time, edge_id, vertex.on_park(batch))
            if token is not None:
                self.done_tokens.append(token)
            return
        self._consume(edge_id, time, batch, token)

    def _gate_in(self, edge_id: int, time: Timestamp, batch: Any) -> None:
        """Count the batch as pending work of this vertex at its time, no longer as input, so that the input frontier can pass it."""
        assert self.gate is not None
        self.change(*self.counted(edge_id, time), -1)
        if not self.gate.repeats(time):
            self.gate.hold(edge_id, time, batch)
            self.change(self.stage.notify_location, time, 1)

    def counted(self, edge_id: int, time: Timestamp) -> tuple[int, Timestamp]:
        edge = self._edges[edge_id]
        return edge.count_location, time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth)

    def _consume(self, edge_id: int, time: Timestamp, batch: Any, token: Any, *, gated: bool = False) -> None:
        edge = self._edges[edge_id]
        self._now = time
        vertex = self.vertex
        assert vertex is not None
        if self.hold is not None and (self._latest is None or self._latest < time):
            self._latest = time
        items = rows_of(batch)
        self.batches_in, self.records_in = self.batches_in + 1, self.records_in + items
        self.outputs.counters.received_items[edge_id] += items
        self.doing = ("on_recv", time, self._clock())
        try:
            vertex.on_recv(edge.port, batch, time)
        except Exception as error:
            self._fail(f"on_recv (input {edge.port}, {describe(batch)})", time, error)
        self._raise_broken()
        self._now = self.doing = None
        if gated:
            self.change(self.stage.notify_location, time, -1)
        else:
            self.change(*self.counted(edge_id, time), -1)
        if token is not None:
            self.done_tokens.append(token)

    def _reenter(self, edge: PlanEdge, time: Timestamp, batch: Any) -> bool:
        """Hand a batch that comes back to this replica to its vertex at once, inside the callback that sends it, if re-entrancy allows.

        It needs no count of its own: the batch that the callback consumes stays counted until the callback ends, at a time that is not
        larger. Barriers, views and markers are taken between activations, so none can come in between. While key-groups move here, their
        records must wait for their state, so everything is queued; so is a batch whose turn has not come.
        """
        vertex = self.vertex
        if self.nested >= self._reentrancy or self._now is None:
            return False
        assert vertex is not None
        if self.migration is not None and not self.migration.is_settled:
            return False
        if vertex.in_order and not self._in_turn(time):
            return False
        items = rows_of(batch)
        self.batches_in, self.records_in, self.reentered = self.batches_in + 1, self.records_in + items, self.reentered + 1
        self.outputs.counters.sent_items[edge.id] += items
        self.outputs.counters.received_items[edge.id] += items
        outer, self._now = self._now, time
        before, self.doing = self.doing, ("on_recv", time, self._clock())
        self.nested += 1
        try:
            vertex.on_recv(edge.port, batch.copy() if isinstance(batch, list) else batch, time)
        except Exception as error:
            try:
                self._fail(f"on_recv (input {edge.port}, {describe(batch)})", time, error)
            except Exception as located:
                self._broken = located
                raise
        finally:
            self.nested -= 1
            self._now, self.doing = outer, before
        return True

    def _raise_broken(self) -> None:
        """Raise the error of a nested call: it ends the activation, even if the vertex caught it."""
        if self._broken is not None:
            raise self._broken

    def _in_turn(self, time: Timestamp) -> bool:
        """Whether no lexicographically smaller time can still arrive."""
        if self.view is None:
            return False
        mark = time.sort_key()
        if self.gate is not None and (first := self.gate.waiting.first()) is not None and first.sort_key() < mark:
            return False
        return all(f.sort_key() >= mark for f in self.view.input_frontier)

    def on_view(self, view: View) -> None:
        """The progress core has published a new view of this stage."""
        self.view = view
        if self.gate is not None:
            assert self.vertex is not None
            in_turn = self._in_turn if self.vertex.in_order else None
            for edge_id, time, batch in self.gate.release(view.input_frontier, in_turn):
                self._consume(edge_id, time, batch, None, gated=True)
        while (first := self.parked.first()) is not None and self._in_turn(first):
            for edge_id, batch in self.parked.take(first):
                self._consume(edge_id, first, batch, None)

    def notify(self) -> bool:
        """Run the notifications that are due; true if any ran. While state is on its way here there are none: what it holds of a time, and
        what was broadcast before, is part of what the vertex makes of the time."""
        if self.view is None or (self.migration is not None and self.migration.awaits_state):
            return False
        ran = False
        vertex = self.vertex
        if vertex is not None and len(self.notificator):
            if vertex.waits_for_siblings or self.stage.depth:
                due = self.notificator.deliverable(self.view, sequential=vertex.sequential)
            else:
                due = self.notificator.next_by_input(self.view)
            for notification in due:
                ran = True
                time, capability = notification.guarantee, notification.capability
                self._now = capability
                self.doing = ("on_notify", time, self._clock())
                try:
                    vertex.on_notify(time)
                except Exception as error:
                    self._fail("on_notify", time, error)
                self._raise_broken()
                self._now = self.doing = None
                self._hold_back(time, capability, -1)
        if self.hold is not None:
            self._move_hold()
        return ran

    def _move_hold(self) -> None:
        """Move an EndVertex's right to send up to the input frontier; when the input has ended, call on_end and drop the right."""
        assert self.view is not None
        assert self.hold is not None
        assert isinstance(self.vertex, EndVertex)
        frontier = self.view.input_frontier
        if frontier:
            front = min(frontier, key=Timestamp.sort_key)
            if self.hold < front:
                self._call_end("on_advance", self.vertex.on_advance, self.hold)
                self.change(self.stage.capability_location, self.hold, -1)
                self.change(self.stage.capability_location, front, 1)
                self.hold = front
            return
        if len(self.notificator) or len(self.parked) or (self.gate is not None and len(self.gate.waiting)):
            return
        # Which frontiers were seen depends on timing; the time at which the inputs ended and the last time consumed do not.
        ends = [time for time in (self._latest, self.view.end) if time is not None and self.hold < time]
        last = max(ends, key=Timestamp.sort_key, default=self.hold)
        self._call_end("on_end", self.vertex.on_end, last)
        self.change(self.stage.capability_location, self.hold, -1)
        self.hold, self._has_spoken = None, True

    def _call_end(self, name: str, callback: Callable[[Timestamp], None], time: Timestamp) -> None:
        """Let an EndVertex use its right to send at ``time``."""
        self._now = time
        self.doing = (name, time, self._clock())
        try:
            callback(time)
        except Exception as error:
            self._fail(name, time, error)
        self._now = self.doing = None

    # -- sources -----------------------------------------------------------------------
    def source_step(self) -> bool | None:
        """Read one batch: true if there was something, false if nothing is there yet, None when the source is exhausted."""
        source = self.source
        if source is None:
            return None
        before = source.epoch
        read = self.guard("next_batch", source.next)
        if source.epoch != before or source.exhausted:
            self.change(self.stage.notify_location, Timestamp(before), -1)
            if not source.exhausted:
                self.change(self.stage.notify_location, Timestamp(source.epoch), 1)
        if source.exhausted:
            self._amounts_read = source.amounts()
            self._end_input(source.furthest)
            self.guard("close", source.close)
            self.source = None
            return None
        if read is None:
            return source.epoch != before
        epoch, batch = read
        self._emit_from_source(Timestamp.of(epoch, ()), batch)
        return True

    def stop_source(self) -> None:
        """Stop reading; what has been read is finished."""
        if self.source is not None:
            self.change(self.stage.notify_location, Timestamp(self.source.epoch), -1)
            self._amounts_read = self.source.amounts()
            self._end_input(self.source.furthest)
            self.guard("close", self.source.close)
            self.source = None

    @property
    def amounts_read(self) -> tuple[float, float]:
        """Of a source: how much has been read, and how much there is, in its own unit; (0, 0) where that is not known."""
        return self.source.amounts() if self.source is not None else self._amounts_read

    def _end_input(self, epoch: int) -> None:
        """A source or live input is over: it gave nothing after this epoch."""
        self.furthest = max(self.furthest, epoch)
        self._ended = ((self.stage.notify_location, Timestamp(self.furthest), 0),)

    def _emit_from_source(self, time: Timestamp, batch: Any) -> None:
        self.batches_in += 1
        self.records_in += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        self._now = time
        self.doing = ("what follows the input", time, self._clock())
        self.outputs.emit(0, time, batch)
        self._now = self.doing = None

    def input_send(self, batch: Any) -> None:
        """Live input: records of the current epoch."""
        assert self.input_epoch is not None
        self.input_sends += 1
        self._emit_from_source(Timestamp(self.input_epoch), batch)

    def input_advance(self, epoch: int) -> None:
        """Live input: no more records before ``epoch``."""
        assert self.input_epoch is not None
        self.change(self.stage.notify_location, Timestamp(self.input_epoch), -1)
        self.change(self.stage.notify_location, Timestamp(epoch), 1)
        self.input_epoch = self.input_before = epoch

    def input_close(self, *, is_cut: bool = False) -> None:
        """Live input: no more records. ``is_cut``: the last epoch may be incomplete."""
        if self.input_epoch is not None:
            if not is_cut:
                self.input_before = None
            self.change(self.stage.notify_location, Timestamp(self.input_epoch), -1)
            self._end_input(self.input_epoch)
            self.input_epoch = None

    # -- what a vertex may do ------------------------------------------------------------
    def now(self) -> dt.datetime:
        """See :meth:`rayad.Vertex.now`."""
        return self._moment()

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """See :meth:`rayad.Vertex.send_by`."""
        if self._now is None or not _comparable(time, self.stage.depth) or not self._now <= time:
            self._refuse(f"send_by({edge}, ..., {time})", time)
        if not (isinstance(edge, int) and 0 <= edge < len(self.outputs)):
            raise self._misuse(
                f"send_by({show(edge)}, ...)",
                f": it has {len(self.outputs)} outputs, numbered from 0; give outputs= to flow.vertex for more",
            )
        if isinstance(batch, list):
            batch = batch.copy()  # the vertex may change its own list later; what was sent must not change
        elif not isinstance(batch, pa.RecordBatch):
            if isinstance(batch, (str, bytes, dict, pa.Table)) or not hasattr(batch, "__iter__"):
                raise self._misuse(
                    f"send_by({edge}, {show(batch, 60)}, {time})",
                    ": a batch is a list of records or a pyarrow.RecordBatch; for one record, [record]",
                )
            batch = list(batch)
        else:
            require_distinct(batch.schema, f"a batch that {self.name!r} ({self.stage.where}) sends")
        self.outputs.emit(edge, time, batch)

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See :meth:`rayad.Vertex.notify_at`."""
        depth = self.stage.depth
        if not _comparable(time, depth):
            self._refuse(f"notify_at({show(time, 60)})", time)
        if capability is not None:
            if not self._may_wait_for(time):
                self._refuse(f"notify_at({time})", time)
            if not _comparable(capability, depth) or not self._may_act_at(capability):
                self._refuse(f"notify_at({time}, capability={capability}), by its capability,", capability)
        if capability is None:
            self._waits_unseen = True
        elif not time <= capability:
            self._check_not_waiting_for_itself(time, capability)
        if self.notificator.request(time, capability):
            self._hold_back(time, capability, 1)

    def _may_act_at(self, time: Timestamp) -> bool:
        """Whether the vertex may send at a time: at or beyond the time being handled, or at or beyond a right that came with state."""
        if self._now is not None:
            return self._now <= time
        return any(right <= time for right in self._rights)

    def _may_wait_for(self, time: Timestamp) -> bool:
        """Whether a notification at a time may be asked for: while state is taken up, at any time, if a right came with it."""
        return self._now <= time if self._now is not None else bool(self._rights)

    def _check_not_waiting_for_itself(self, time: Timestamp, capability: Timestamp) -> None:
        """Refuse a capability at which a send could come round the loop to a time before the notification: it would wait for itself."""
        if self._reachability is None:
            self._reachability = FlatReachability(self.plan.progress)
        if self._reachability.blocks_itself(self.stage.id, time, capability):
            raise self._misuse(
                f"notify_at({time}, capability={capability})",
                ": what it may send at its capability could come round the loop to before the time that it waits for, so it would wait "
                "for itself for ever; use a capability at or beyond that time, or None",
            )

    def _hold_back(self, time: Timestamp, capability: Timestamp | None, delta: int) -> None:
        if capability is None:
            return
        stage = self.stage
        self.change(stage.notify_location if capability == time else stage.capability_location, capability, delta)

    def _refuse(self, what: str, time: Any) -> NoReturn:
        if not _comparable(time, self.stage.depth):
            raise self._misuse(what, f": a time here is a Timestamp with {self.stage.depth} loop counters, this is {show(time, 60)}")
        if self._now is None:
            raise self._misuse(
                what, ": there is no right to send or ask now; do it in on_recv, or in an on_notify that was asked for with a capability"
            )
        raise self._misuse(what, f" goes back in time: {self._now} is being handled; use a time at or beyond it")

    def _misuse(self, what: str, rule: str) -> DataflowError:
        return DataflowError(f"{what} from {self.name!r}[{self.replica}] ({self.stage.where}){rule}", located=True)

    # -- progress ----------------------------------------------------------------------------
    def change(self, location: int, time: Timestamp, delta: int) -> None:
        key = (location, time)
        changes = self.changes
        total = changes.get(key, 0) + delta
        if total:
            changes[key] = total
        else:
            changes.pop(key, None)

    def take_changes(self) -> list[tuple[int, Timestamp, int]]:
        """The accumulated progress, for one report; empty when nothing has changed."""
        if not self.changes and not self._ended:
            return []
        out = [(location, time, delta) for (location, time), delta in self.changes.items()]
        out += self._ended
        self._ended = ()
        self.changes.clear()
        return out

    # -- errors ------------------------------------------------------------------------------
    def guard(self, what: str, call: Callable[[], Any]) -> Any:
        self.doing = (what, None, self._clock())
        try:
            return call()
        except Exception as error:
            self._fail(what, None, error)
        finally:
            self.doing = None

    def _fail(self, what: str, time: Timestamp | None, error: Exception) -> NoReturn:
        at = f" at {time}" if time is not None else ""
        raise_located(f"{self.name!r}[{self.replica}] ({self.stage.where}) failed in {what}{at}", error)


def _comparable(time: Any, depth: int) -> bool:
    return isinstance(time, Timestamp) and len(time[1]) == depth
