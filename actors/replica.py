"""One replica of a stage, as a pure state machine: batches, views and source ticks in; batches and progress changes out.

Both runtimes drive this same core; it touches no socket, clock, thread or actor. What it produces waits in ``outbox`` (batches
for other replicas) and ``changes`` (progress, accumulated); the shell sends the batches and then the changes as one report. The right to
send is checked here: nothing a user's vertex does can go back in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.actors.sources import MutableSourceReader
from rayad.dataflow.columnar import keyed_columns, to_rows
from rayad.dataflow.graph import NodeKind, PartitionKind
from rayad.dataflow.hashing import MutableRouter
from rayad.dataflow.operators.keyed import PAIRS, require_columns
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, PlanEdge, ShiftStep, Stage, Step
from rayad.dataflow.sink import SinkWriter
from rayad.dataflow.vertex import EndVertex, Vertex, VertexContext
from rayad.progress import DataflowError, MutableNotificator, RayadError, Timestamp, View

Emit = Callable[[Timestamp, Any], None]


class Outgoing(NamedTuple):
    """A batch on its way to one replica of an edge's target."""

    edge: int
    replica: int
    time: Timestamp
    batch: Any


class PassThrough(Vertex):
    """The head of a stage that exists only because data must be exchanged there."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.send_by(0, batch, time)


class ReplicaCore(VertexContext):
    """State of one replica.

    Args:
        plan: the whole plan.
        stage: the stage.
        replica: which of its replicas, from 0.
        room: for "rebalance" edges: (edge, replica) -> how much room that channel has; the largest wins.
    """

    def __init__(self, plan: Plan, stage: Stage, replica: int, *, room: Callable[[int, int], int] | None = None) -> None:
        self.plan = plan
        self.stage = stage
        self.name = stage.name
        self.replica = replica
        self.parallelism = stage.parallelism
        self.key_groups = plan.key_groups
        self.outbox: list[Outgoing] = []
        self.changes: dict[tuple[int, Timestamp], int] = {}
        self.done_tokens: list[Any] = []
        self.parked: dict[Timestamp, deque[tuple[int, Any, Any]]] = {}
        self.view = View((), ()) if not stage.inputs else None
        self.batches_in = self.records_in = self.batches_out = 0
        self._room = room
        self._turn: dict[int, int] = {}
        self._edges = {edge.id: edge for edge in plan.edges}
        self._writers: dict[int, SinkWriter] = {}
        self._sinks = {sink.id: sink for sink in plan.sinks}
        self._emitters = [[self._compile(step) for step in steps] for steps in stage.outputs]
        self._now: Timestamp | None = None
        self._acting = ""
        self.notificator = MutableNotificator()
        self.vertex: Vertex | None = None
        self.source: MutableSourceReader | None = None
        self.input_epoch: int | None = None
        self.hold: Timestamp | None = None

    # -- life --------------------------------------------------------------------
    def start(self) -> None:
        """Build the vertex or open the source; what it holds from the beginning is in ``changes``."""
        stage = self.stage
        if stage.kind is NodeKind.SOURCE:
            self.source = self._guard("open", self._open_source)
            return
        if stage.kind is NodeKind.INPUT:
            self.input_epoch = 0
            return
        make = PassThrough if stage.kind is NodeKind.EXCHANGE else stage.op
        vertex = self._guard("__init__", make)
        if not isinstance(vertex, Vertex):
            raise DataflowError(f"{stage.name!r} ({stage.where}) made {vertex!r:.60}: a vertex must be an instance of a subclass of rd.Vertex")
        self.vertex = vertex
        vertex._context = self
        self._guard("setup", vertex.setup)
        if isinstance(vertex, EndVertex):
            self.hold = Timestamp(0)
            self._change(stage.capability_location, self.hold, 1)

    @property
    def wants_views(self) -> bool:
        """Whether it must be told of its input frontier even while it waits for no notification."""
        return self.hold is not None or (self.vertex is not None and self.vertex.in_order)

    def _open_source(self) -> MutableSourceReader:
        mine = self.stage.parts[self.replica :: self.stage.parallelism]
        return MutableSourceReader(self.stage.op, mine, self.stage.name, self.stage.where)

    def close(self) -> None:
        """Release what the user's code holds. Never raises."""
        for release in (self.vertex.close if self.vertex else None, self.source.close if self.source else None):
            if release is not None:
                try:
                    release()
                except Exception:  # the job's own outcome matters more
                    continue

    def stage_sinks(self) -> dict[int, Any]:
        """What every sink writer of this replica has staged, by sink id."""
        return {sink: self._guard(f"sink {self._sinks[sink].key!r}", writer.stage) for sink, writer in self._writers.items()}

    def abort_sinks(self) -> None:
        """Throw away what was written."""
        for writer in self._writers.values():
            try:
                writer.abort()
            except Exception:
                continue

    # -- input ---------------------------------------------------------------------
    def receive(self, edge_id: int, time: Timestamp, batch: Any, token: Any = None) -> None:
        """One activation: a batch has arrived. ``token`` comes back in ``done_tokens`` when it has been consumed."""
        vertex = self.vertex
        assert vertex is not None
        if vertex.in_order and not self._in_turn(time):
            self.parked.setdefault(time, deque()).append((edge_id, batch, token))
            return
        self._consume(edge_id, time, batch, token)

    def _consume(self, edge_id: int, time: Timestamp, batch: Any, token: Any) -> None:
        edge = self._edges[edge_id]
        self._now = time
        vertex = self.vertex
        assert vertex is not None
        self.batches_in += 1
        self.records_in += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        try:
            vertex.on_recv(edge.port, batch, time)
        except Exception as error:
            raise self._failed("on_recv", time, error) from error
        self._now = None
        counted = time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth)
        self._change(edge.count_location, counted, -1)
        if token is not None:
            self.done_tokens.append(token)

    def _in_turn(self, time: Timestamp) -> bool:
        """Whether no lexicographically smaller time can still arrive."""
        if self.view is None:
            return False
        mark = time.sort_key()
        return all(f.sort_key() >= mark for f in self.view.input_frontier)

    def on_view(self, view: View) -> None:
        """The progress core has published a new view of this stage."""
        self.view = view
        for time in sorted(self.parked, key=Timestamp.sort_key):
            if not self._in_turn(time):
                break
            for edge_id, batch, token in self.parked.pop(time):
                self._consume(edge_id, time, batch, token)

    def notify(self) -> bool:
        """Run the notifications that are due; true if any ran."""
        if self.view is None:
            return False
        ran = False
        vertex = self.vertex
        if vertex is not None and len(self.notificator):
            due = self.notificator.deliverable(self.view, sequential=vertex.sequential)
            for notification in due:
                ran = True
                time, capability = notification.guarantee, notification.capability
                self._now = capability
                try:
                    vertex.on_notify(time)
                except Exception as error:
                    raise self._failed("on_notify", time, error) from error
                self._now = None
                self._hold_back(time, capability, -1)
        if self.hold is not None:
            self._move_hold()
        return ran

    def _move_hold(self) -> None:
        """Keep the right to send at the input frontier; at its end, the last word."""
        assert self.view is not None and self.hold is not None and isinstance(self.vertex, EndVertex)
        frontier = self.view.input_frontier
        if frontier:
            front = min(frontier, key=Timestamp.sort_key)
            if self.hold < front:
                self._change(self.stage.capability_location, self.hold, -1)
                self._change(self.stage.capability_location, front, 1)
                self.hold = front
            return
        if len(self.notificator) or self.parked:
            return
        self._now = self.hold
        try:
            self.vertex.on_end(self.hold)
        except Exception as error:
            raise self._failed("on_end", self.hold, error) from error
        self._now = None
        self._change(self.stage.capability_location, self.hold, -1)
        self.hold = None

    # -- sources -----------------------------------------------------------------------
    def source_step(self) -> bool | None:
        """Read one batch: true if there was something, false if nothing is there yet, None when the source is exhausted."""
        source = self.source
        if source is None:
            return None
        before = source.epoch
        read = self._guard("next_batch", source.next)
        if source.epoch != before or source.exhausted:
            self._change(self.stage.notify_location, Timestamp(before), -1)
            if not source.exhausted:
                self._change(self.stage.notify_location, Timestamp(source.epoch), 1)
        if source.exhausted:
            self._guard("close", source.close)
            self.source = None
            return None
        if read is None:
            return source.epoch != before
        epoch, batch = read
        self._emit_from_source(Timestamp.of(epoch, ()), batch)
        return True

    def stop_source(self) -> None:
        """Read no more: what has been read is finished."""
        if self.source is not None:
            self._change(self.stage.notify_location, Timestamp(self.source.epoch), -1)
            self._guard("close", self.source.close)
            self.source = None

    def _emit_from_source(self, time: Timestamp, batch: Any) -> None:
        self.batches_in += 1
        self.records_in += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
        self._now = time
        self.emit(0, time, batch)
        self._now = None

    def input_send(self, batch: Any) -> None:
        """Live input: records of the current epoch."""
        assert self.input_epoch is not None
        self._emit_from_source(Timestamp(self.input_epoch), batch)

    def input_advance(self, epoch: int) -> None:
        """Live input: no more records before ``epoch``."""
        assert self.input_epoch is not None
        self._change(self.stage.notify_location, Timestamp(self.input_epoch), -1)
        self._change(self.stage.notify_location, Timestamp(epoch), 1)
        self.input_epoch = epoch

    def input_close(self) -> None:
        """Live input: no more records."""
        if self.input_epoch is not None:
            self._change(self.stage.notify_location, Timestamp(self.input_epoch), -1)
            self.input_epoch = None

    # -- what a vertex may do ------------------------------------------------------------
    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """See :meth:`rayad.Vertex.send_by`."""
        if self._now is None or not self._now <= time:
            self._refuse(f"send_by({edge}, ..., {time})", time)
        if not 0 <= edge < len(self._emitters):
            raise DataflowError(
                f"send_by({edge}, ...) from {self.name!r}[{self.replica}] ({self.stage.where}): it has {len(self._emitters)} outputs, numbered from 0; "
                "give outputs= to flow.vertex"
            )
        if not isinstance(batch, (list, pa.RecordBatch)):
            if isinstance(batch, (str, bytes, dict)) or not hasattr(batch, "__iter__"):
                raise DataflowError(
                    f"send_by({edge}, {batch!r:.60}, {time}) from {self.name!r}[{self.replica}]: a batch is a list of records or a RecordBatch; for one "
                    "record, [record]"
                )
            batch = list(batch)
        self.emit(edge, time, batch)

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See :meth:`rayad.Vertex.notify_at`."""
        for what, value in (("", time), (" with that capability", capability)):
            if value is not None and (self._now is None or not self._now <= value) and not (what == "" and capability is None):
                self._refuse(f"notify_at({time}, capability={capability}){what}", value)
        if not isinstance(time, Timestamp) or len(time[1]) != self.stage.depth:
            raise DataflowError(f"notify_at({time!r}) from {self.name!r}[{self.replica}]: a time here is a Timestamp with {self.stage.depth} loop counters")
        if self.notificator.request(time, capability):
            self._hold_back(time, capability, 1)

    def _hold_back(self, time: Timestamp, capability: Timestamp | None, delta: int) -> None:
        if capability is None:
            return
        stage = self.stage
        self._change(stage.notify_location if capability == time else stage.capability_location, capability, delta)

    def _refuse(self, what: str, time: Any) -> None:
        if not isinstance(time, Timestamp) or len(time[1]) != self.stage.depth:
            raise DataflowError(
                f"{what} from {self.name!r}[{self.replica}] ({self.stage.where}): a time here is a Timestamp with {self.stage.depth} loop counters"
            )
        if self._now is None:
            raise DataflowError(
                f"{what} from {self.name!r}[{self.replica}] ({self.stage.where}): there is no right to send or ask now; do it in on_recv, or in an on_notify "
                "that was asked for with a capability"
            )
        raise DataflowError(
            f"{what} from {self.name!r}[{self.replica}] ({self.stage.where}) goes back in time: {self._now} is being handled; use a time at or beyond it"
        )

    # -- output ----------------------------------------------------------------------------
    def emit(self, port: int, time: Timestamp, batch: Any) -> None:
        """Run the fused steps behind an output and put what leaves into the outbox."""
        if (batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)) == 0:
            return
        for run in self._emitters[port]:
            run(time, batch)

    def _change(self, location: int, time: Timestamp, delta: int) -> None:
        key = (location, time)
        changes = self.changes
        total = changes.get(key, 0) + delta
        if total:
            changes[key] = total
        else:
            changes.pop(key, None)

    def take_changes(self) -> list[tuple[int, Timestamp, int]]:
        """The accumulated progress, for one report; empty when nothing has changed."""
        if not self.changes:
            return []
        out = [(location, time, delta) for (location, time), delta in self.changes.items()]
        self.changes.clear()
        return out

    def _compile(self, step: Step) -> Emit:
        if isinstance(step, ApplyStep):
            return self._compile_apply(step)
        if isinstance(step, ShiftStep):
            return self._compile_shift(step)
        if isinstance(step, EdgeStep):
            return self._compile_edge(self._edges[step.edge])
        return self._compile_sink(step.sink)

    def _compile_apply(self, step: ApplyStep) -> Emit:
        apply, children = step.element.apply, [self._compile(child) for child in step.children]

        def run(time: Timestamp, batch: Any) -> None:
            try:
                out = apply(batch)
            except Exception as error:
                raise self._step_failed(step, time, batch, error) from error
            if out.num_rows if isinstance(out, pa.RecordBatch) else len(out):
                for child in children:
                    child(time, out)

        return run

    def _compile_shift(self, step: ShiftStep) -> Emit:
        children, kind, bound = [self._compile(child) for child in step.children], step.kind, step.max_rounds

        def run(time: Timestamp, batch: Any) -> None:
            if kind == "enter":
                moved = Timestamp.of(time[0], (*time[1], 0))
            elif kind == "leave":
                moved = Timestamp.of(time[0], time[1][:-1])
            else:
                following = time[1][-1] + 1
                if bound is not None and following >= bound:
                    return
                moved = Timestamp.of(time[0], (*time[1][:-1], following))
            for child in children:
                child(moved, batch)

        return run

    def _compile_sink(self, sink_id: int) -> Emit:
        sink = self._sinks[sink_id]
        writer = self._writers[sink_id] = self._guard(f"sink {sink.key!r}", lambda: sink.sink.open(self.replica, self.parallelism))

        def run(time: Timestamp, batch: Any) -> None:
            try:
                writer.write(time, batch)
            except Exception as error:
                raise self._failed(f"sink {sink.key!r} ({sink.where})", time, error) from error

        return run

    def _compile_edge(self, edge: PlanEdge) -> Emit:
        replicas = self.plan.stage(edge.target).parallelism
        push = self._push
        kind = edge.partition
        if kind is PartitionKind.KEYS:
            return self._compile_keys(edge, replicas)
        if kind is PartitionKind.BROADCAST:

            def everyone(time: Timestamp, batch: Any) -> None:
                for replica in range(replicas):
                    push(edge, replica, time, batch)

            return everyone
        if kind is PartitionKind.REBALANCE and replicas > 1:

            def emptiest(time: Timestamp, batch: Any) -> None:
                push(edge, self._most_room(edge.id, replicas), time, batch)

            return emptiest
        target = self.replica if kind is PartitionKind.FORWARD else 0

        def straight(time: Timestamp, batch: Any) -> None:
            push(edge, target, time, batch)

        return straight

    def _compile_keys(self, edge: PlanEdge, replicas: int) -> Emit:
        assert edge.key is not None
        router = MutableRouter(replicas, self.key_groups)
        selector, push = edge.key, self._push
        row_key = selector.row_key()
        pairs = selector is PAIRS or selector == PAIRS

        def keys(time: Timestamp, batch: Any) -> None:
            if isinstance(batch, pa.RecordBatch):
                leading = keyed_columns(batch.schema) if pairs else None
                columns = batch.schema.names[:leading] if leading else list(selector.columns)
                if columns:
                    try:
                        require_columns(batch, tuple(columns))
                        parts: list[Any] = router.split_columns(batch, columns)
                    except Exception as error:
                        raise self._failed(f"key_by before {edge.name.split('->')[-1]!r}", time, error) from error
                    for replica, part in enumerate(parts):
                        if part.num_rows:
                            push(edge, replica, time, part)
                    return
                batch = to_rows(batch)
            try:
                parts = router.split_rows(batch, row_key)
            except Exception as error:
                raise self._failed(f"key_by before {edge.name.split('->')[-1]!r}", time, error) from error
            for replica, part in enumerate(parts):
                if part:
                    push(edge, replica, time, part)

        return keys

    def _push(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        self.batches_out += 1
        self.outbox.append(Outgoing(edge.id, replica, time, batch))
        counted = time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth)
        self._change(edge.count_location, counted, 1)

    def _most_room(self, edge: int, replicas: int) -> int:
        start = self._turn.get(edge, self.replica)
        self._turn[edge] = start + 1
        if self._room is None:
            return start % replicas
        room = self._room
        return max(((start + i) % replicas for i in range(replicas)), key=lambda replica: room(edge, replica))

    # -- errors ------------------------------------------------------------------------------
    def _guard(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise self._failed(what, None, error) from error

    def _failed(self, what: str, time: Timestamp | None, error: Exception) -> RayadError:
        at = f" at {time}" if time is not None else ""
        place = f"{self.name!r}[{self.replica}] ({self.stage.where}) failed in {what}{at}"
        if isinstance(error, RayadError):
            if self.name in str(error):
                return error
            return type(error)(f"{place}: {error}")
        return DataflowError(f"{place}: {type(error).__name__}: {error}")

    def _step_failed(self, step: ApplyStep, time: Timestamp, batch: Any, error: Exception) -> RayadError:
        if isinstance(error, RayadError):
            return error if step.name in str(error) else type(error)(f"{step.name!r} ({step.where}) failed at {time}: {error}")
        try:
            culprit = step.element.culprit(batch)
        except Exception:
            culprit = None
        record = f" on record {culprit!r:.120}" if culprit is not None else ""
        return DataflowError(f"{step.name!r}[{self.replica}] ({step.where}) failed at {time}{record}: {type(error).__name__}: {error}")
