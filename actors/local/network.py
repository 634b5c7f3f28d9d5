"""The replicas of a local job, the queues between them, and what can happen next.

Batches, barriers and markers are FIFO per channel, credits FIFO per channel the other way, reports FIFO per replica, views FIFO per
replica. Every non-empty queue is one event that can happen; which one does is drawn by the seed. What may be sent, what is granted and
what is spilled the parts that run on Ray decide (:class:`ChannelEnds`); here is only what carries their frames.
"""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from rayad.actors.job import describe_blockers
from rayad.actors.lead.diagnosis import Facts, diagnose, sentences, stamps_of
from rayad.actors.plane.batch_codec import batch_bytes
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.channel_ends import ChannelEnds
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.migration import Migration
from rayad.actors.replica.report import ReplicaReport, Waits
from rayad.actors.replica.rest import freeze, thaw
from rayad.actors.replica.upstream import gated_edges
from rayad.actors.replica.waiting_batches import Parked
from rayad.actors.store.input_log import InputLog
from rayad.dataflow.compiling.sharing import shared_steps
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan, Stage, sinks_of
from rayad.progress import InternalError, JobTracker, Timestamp, View

Where = tuple[int, int]
"""A stage and which of its replicas."""
ChannelId = tuple[int, int, int]
"""An edge, the sending replica, the receiving one."""

Entry = tuple[Timestamp | None, Any, int | None]
"""A batch with its time and its bytes, None where no credit is due for it; without a time a barrier or marker."""

HOLD_SHARE = 0.75
"""The chance that combiners of a replica may keep what they hold for now."""
WORK_S_MAX = 0.02
"""The longest working time that is drawn for a grant, for senders on demand; mostly it is far less."""


class Marker(NamedTuple):
    """Stands behind the last batch that a sender routed by the layout before ``step``; with step -1, behind its last batch of all."""

    step: int
    plan: Plan | None


class Ready:
    """A set with O(1) draw of a random element, in an order that only the seed decides."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.place: dict[Any, int] = {}

    def add(self, item: Any) -> None:
        if item not in self.place:
            self.place[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: Any) -> None:
        index = self.place.pop(item, None)
        if index is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[index] = last
            self.place[last] = index

    def again(self, events: Iterable[Any], channels: Mapping[ChannelId, Any]) -> None:
        """Events that were put aside can happen again; those of batches only where some still wait."""
        for event in sorted(events):
            if event[0] != "batch" or channels[event[1]]:
                self.add(event)


class DequeCarrier:
    """What carries the frames of one replica here: deques. Payloads are batches as they are, with an estimate of their bytes."""

    socket_bytes = 1
    """Here is no socket: what may wait to be carried on a feedback channel is the replica's share of ``spill_memory_bytes``."""

    def __init__(self, network: Network, at: Where) -> None:
        self._network = network
        self._at = at
        self.size: Callable[[Any], int] = itemgetter(2)

    def encode(self, edge: int, replica: int, time: Timestamp, batch: Any) -> Entry:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return time, batch, batch_bytes(batch)

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return frozen_mark(payload) if is_mark else freeze(payload[0], payload[1])

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        if is_mark:
            return self._network.thawed_mark(data)
        time, batch = thaw(bytes(data))
        return time, batch, batch_bytes(batch)

    def send(self, edge: int, replica: int, kind: int, payload: Any) -> None:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        channel = (edge, self._at[1], replica)
        if kind == Kind.DATA:
            self._network.put(channel, *payload)
        else:
            self._network.put(channel, None, payload)

    def grant(self, edge: int, replica: int, grant: Grant, busy_s: float) -> None:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        network = self._network
        channel = (edge, replica, self._at[1])
        if (network.edges[edge].source, replica) not in network.ends:
            return  # it has retired
        network.credits.setdefault(channel, deque()).append((grant, busy_s))
        network.ready.add(("credit", channel))

    def queued_bytes(self, edge: int, replica: int) -> int:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return self._network.carried.get((self._at, (self._network.edges[edge].target, replica)), 0)


def frozen_mark(mark: Any) -> bytes:
    """A barrier or marker as bytes; of a marker's plan the layout."""
    return pickle.dumps((mark.step, mark.plan and mark.plan.layout) if isinstance(mark, Marker) else mark)


class HeldUp(set[Where]):
    """Replicas that have something waiting for credit: they start no activation. It counts for how many steps."""

    def __init__(self, steps: Callable[[], int]) -> None:
        super().__init__()
        self.began = steps()
        self._steps = steps
        self._since: dict[Where, int] = {}
        self._before: dict[Where, int] = {}

    def begin(self, at: Where) -> None:
        """A replica is held up from now on."""
        self.add(at)
        self._since.setdefault(at, self._steps())

    def end(self, at: Where) -> None:
        """A replica is not held up any more."""
        self.discard(at)
        since = self._since.pop(at, None)
        if since is not None:
            self._before[at] = self._before.get(at, 0) + self._steps() - since

    def steps_of(self, at: Where) -> int:
        """For how many steps a replica has been held up so far."""
        since = self._since.get(at)
        return self._before.get(at, 0) + (self._steps() - since if since is not None else 0)


@dataclass(slots=True)
class Retired:
    """What replicas that have retired leave in a job: how many, steps of changes so far, batches consumed by stage,
    and without snapshots what they have staged."""

    count: int = 0
    steps: int = 0
    batches: dict[int, int] = field(default_factory=dict)
    staged: list[tuple[int, Any]] = field(default_factory=list)


class Network:
    """Of one local job.

    Args:
        plan: the dataflow, in the layout that it is asked for; later in the one that it has.
        config: of the run.
        chance: the seeded generator.
        check_records: whether batches that several functions see are watched for changes.
        moment: what the vertices' clock says.
    """

    def __init__(
        self,
        plan: Plan,
        config: RunConfig,
        chance: random.Random,
        *,
        check_records: bool = True,
        moment: Callable[[], dt.datetime] | None = None,
    ) -> None:
        self._moment = moment
        self.plan = plan
        self.config = config
        self.random = chance
        self.steps = 0
        self.edges = plan.edge_by_id
        self.edge_ids = {name: edge for edge, name in edge_names(plan).items()}
        self.gated = gated_edges(plan) if config.failures.recovery == "upstream" else frozenset[int]()
        self.input_log: dict[Where, InputLog] = {}
        self.saves_wanted: list[tuple[str, int]] = []
        """Live inputs that have consumed what somebody wants in a snapshot, with the epoch."""
        self.retired = Retired()
        self.moved_out: Callable[[Where], None] | None = None
        """Called when a replica's batches and report so far are in their queues; a change of layout sets it."""
        self.cores: dict[Where, ReplicaCore] = {}
        self.ends: dict[Where, ChannelEnds] = {}
        self._shared = shared_steps(plan) if check_records else {}
        self._in_loops = {edge.target for edge in plan.edges if edge.is_feedback}
        self._is_configured = False
        self._has_demand = any(edge.is_on_demand for edge in plan.edges)
        self.clear()

    def clear(self) -> None:
        """Nothing is on its way, and nobody there."""
        self.tracker = JobTracker(self.plan.progress)
        self.cores = {}
        for ends in self.ends.values():
            ends.close()
        self.ends = {}
        self.channels: dict[ChannelId, deque[Entry]] = {}
        self.credits: dict[ChannelId, deque[tuple[Grant, float]]] = {}
        """On their way back, by the channel of the batches."""
        self.carried: dict[tuple[Where, Where], int] = {}
        """Bytes on feedback channels, by sender and receiver."""
        self.reports: dict[Where, deque[Any]] = {}
        self.views: dict[Where, deque[View]] = {}
        self.stuck = HeldUp(lambda: self.steps)
        self.blocked: dict[Where, set[Any]] = {}
        """Events of replicas that are held up, until there is credit."""
        self.aligning: dict[Where, set[Any]] = {}
        """Events behind barriers that have not come on all channels."""
        self.subscribed: set[Where] = set()
        self.ready = Ready()
        self.moved_out = None

    # -- replicas --------------------------------------------------------------------------------------
    def new_core(self, stage: Stage, replica: int, plan: Plan | None = None) -> ReplicaCore:
        """A replica that is not started yet, with its queues; ``plan``: in another layout than the job has now."""
        at = (stage.id, replica)
        self.release(at)
        ends = self.ends[at] = ChannelEnds(DequeCarrier(self, at), plan or self.plan, stage.id, replica, self.config)
        ends.sender.held_up = partial(self._on_held_up, at)
        parking = partial(Parked, int(self.config.spill_memory_bytes), partial(SpillFile, self.config.spill_directory))
        options: dict[str, Any] = {"gated": self.gated, "parking": parking, "moment": self._moment}
        core = self.cores[at] = ReplicaCore(plan or self.plan, stage, replica, room=ends.sender.room, **options)
        ends.attach(core)
        core.outputs.watch_records(self._shared.get(stage.id, {}))
        core.outputs.outbox.batch_rows = self.config.batch_rows
        self.reports.setdefault(at, deque()).clear()
        self.views.setdefault(at, deque()).clear()
        return core

    def release(self, at: Where) -> None:
        """A replica is gone, with what waited at its ends of channels."""
        ends = self.ends.pop(at, None)
        if ends is not None:
            ends.close()
        self.stuck.end(at)
        for way in [way for way in self.carried if way[0] == at]:
            del self.carried[way]

    def begin(self, at: Where) -> None:
        """A replica that has been started may read."""
        core = self.cores[at]
        if core.source is not None:
            self.ready.add(("source", at))
        if core.stage.kind is NodeKind.INPUT:
            log = self.input_log.setdefault(at, InputLog(core.input.frames))
            log.rewind(core.input.frames)
            if log.waits:
                self.ready.add(("input", at))

    def refill(self, at: Where, log: Iterable[tuple[str, int, bytes]]) -> None:
        """Put batches that were in flight towards a replica back on their way."""
        for name, source, data in log:
            edge = self.edges[self.edge_ids[name]]
            time, batch = thaw(data)
            self.cores[at].count_waiting(edge.id, time)
            if edge.is_feedback:
                self.ends[at].feedback.push_encoded(edge.id, source, data)
                self.ready.add(("loop", at))
            else:  # a source may have fewer replicas now
                self.put((edge.id, source % self.plan.stage(edge.source).parallelism, at[1]), time, batch)

    def refill_outbox(self, at: Where, outbox: Iterable[tuple[str, int, bytes]]) -> None:
        """Send batches that had waited at a replica for credit, or let them wait again."""
        sender = self.ends[at].sender
        for name, target, data in outbox:
            edge = self.edge_ids[name]
            time, batch = thaw(data)
            self.cores[at].count_waiting(edge, time)
            sender.send(edge, target, (time, batch, batch_bytes(batch)))

    def configure(self, config: RunConfig) -> None:
        """Windows and sizes of batches change; what was held up by a smaller window may move."""
        before, self.config = self.config, config
        self._is_configured = True
        for core in self.cores.values():
            core.outputs.outbox.batch_rows = config.batch_rows
        for turn in ("first", "senders", "last"):
            for ends in self.ends.values():
                ends.configure(before, config, turn)
        for at, core in self.cores.items():
            if core.changes:
                self.after(at)

    # -- channels --------------------------------------------------------------------------------------
    def put(self, channel: ChannelId, time: Timestamp | None, batch: Any, size_bytes: int | None = None) -> None:
        """A batch, or without a time a barrier or marker, is on its way; without a size no credit is due for it."""
        waiting = self.channels.get(channel)
        if waiting is None:
            waiting = self.channels[channel] = deque()
        waiting.append((time, batch, size_bytes))
        self.ready.add(("batch", channel))
        edge = self.edges[channel[0]]
        if edge.is_feedback:
            way = (edge.source, channel[1]), (edge.target, channel[2])
            self.carried[way] = self.carried.get(way, 0) + (size_bytes or 0)
        elif time is None:
            if isinstance(batch, Marker):
                if batch.step >= 0:
                    self.ready.add(("arrive", channel))
            elif batch.unaligned:
                self.ready.add(("overtake", channel))

    def send_mark(self, at: Where, edge: int, target: int, mark: Any, *, overtake: bool = False, binds: bool = True) -> None:
        """A replica sends a barrier or marker, perhaps to itself."""
        ends = self.ends[at]
        ends.send_mark(edge, target, mark, overtake=overtake, binds=binds)
        if at[0] in self._in_loops and ends.feedback.has_next():
            self.ready.add(("loop", at))

    def thawed_mark(self, data: bytes | memoryview) -> Any:
        """The inverse of :func:`frozen_mark`."""
        mark = pickle.loads(data)
        if isinstance(mark, tuple) and len(mark) == 2:
            return Marker(mark[0], self.plan.laid_out(mark[1]) if mark[1] is not None else None)
        return mark

    def take(self, channel: ChannelId) -> Entry:
        """The next of a channel."""
        waiting = self.channels[channel]
        entry = waiting.popleft()
        if not waiting:
            self.ready.discard(("batch", channel))
        return entry

    def token(self, channel: ChannelId, size_bytes: int | None) -> tuple[int, int, int] | None:
        """The token by which a batch is granted when it has been consumed."""
        return None if size_bytes is None else (channel[0], channel[1], size_bytes)

    def arrive(self, channel: ChannelId) -> None:
        """The next of a feedback channel reaches its receiver, which takes any amount."""
        edge = self.edges[channel[0]]
        source, at = (edge.source, channel[1]), (edge.target, channel[2])
        time, batch, size_bytes = self.take(channel)
        ends = self.ends[at]
        if time is None:
            ends.feedback.push_mark(edge.id, channel[1], frozen_mark(batch))
        else:
            ends.feedback.push(edge.id, channel[1], time, batch, size_bytes)
        self.ready.add(("loop", at))
        if size_bytes:
            self.carried[source, at] -= size_bytes
            self.cores[at].outputs.counters.received_bytes[edge.id] += size_bytes
        if self.ends[source].sender.is_spilled:
            self.ready.add(("drain", source))

    def drain(self, at: Where) -> None:
        """What a replica has on disk for a feedback channel leaves, as far as there is room."""
        self.ready.discard(("drain", at))
        self.ends[at].sender.drain()

    def deliver_credit(self, channel: ChannelId) -> None:
        """The next credit for what was sent on a channel reaches its sender."""
        waiting = self.credits[channel]
        grant, busy_s = waiting.popleft()
        if not waiting:
            self.ready.discard(("credit", channel))
        edge = self.edges[channel[0]]
        at = (edge.source, channel[1])
        self.ends[at].sender.on_credit(edge.id, channel[2], grant.batches, grant.bytes, busy_s)
        if self.cores[at].changes:  # what was joined on its way out
            self.after(at)

    def held_up(self, at: Where, event: Any) -> bool:
        """Whether a replica waits for credit; the event is put aside until it has some."""
        if at not in self.stuck:
            return False
        self.ready.discard(event)
        self.blocked.setdefault(at, set()).add(event)
        return True

    def _on_held_up(self, at: Where, is_held_up: bool) -> None:
        if is_held_up:
            self.stuck.begin(at)
        else:
            self.stuck.end(at)
            self.ready.again(self.blocked.pop(at, ()), self.channels)

    def align(self, at: Where, event: Any) -> None:
        """The event waits for a barrier on the other channels."""
        self.ready.discard(event)
        self.aligning.setdefault(at, set()).add(event)

    def unblock(self, at: Where) -> None:
        """The replica has captured: what waited behind its barriers may be consumed."""
        self.ready.again(self.aligning.pop(at, ()), self.channels)
        feedback = self.ends[at].feedback
        feedback.unblock()
        if feedback.has_next():
            self.ready.add(("loop", at))

    # -- activations -----------------------------------------------------------------------------------
    def after(self, at: Where) -> None:
        """Deliver due notifications, then move what the replica produced into the queues; combiners may hold back, as the seed says."""
        core = self.cores[at]
        while core.notify():
            pass
        if core.outputs.holding and self.random.random() < HOLD_SHARE:
            self.ready.add(("flush", at))
        else:
            self.move_out(at)

    def move_out(self, at: Where) -> None:
        """What a replica has produced goes into the queues, and what changed with it into its next report."""
        core, ends = self.cores[at], self.ends[at]
        core.outputs.flush()
        if core.outputs.outbox:
            ends.send_out()
            if at[0] in self._in_loops and ends.feedback.has_next():
                self.ready.add(("loop", at))
        if core.done_tokens:
            worked_s = 0.0
            if self._has_demand:
                ends.grants.begin(0.0)
                worked_s = WORK_S_MAX * self.random.random() ** 16
            ends.grant(worked_s)
        if self.subscribe(at):
            self.publish()
        report = core.take_changes()
        if report:
            self.reports[at].append(report)
            self.ready.add(("report", at))
        if self.moved_out is not None:
            self.moved_out(at)

    def subscribe(self, at: Where) -> bool:
        """Whether a replica wants views, and has had none yet."""
        if not self.cores[at].wants_views or at in self.subscribed:
            return False
        self.subscribed.add(at)
        self.tracker.subscribe(at[0])
        return True

    def publish(self) -> None:
        """Send the views that have changed."""
        for node, view in self.tracker.views().items():
            stage = self.plan.stage(node)
            for replica in range(stage.parallelism if stage.inputs else 0):
                self.views[node, replica].append(view)
                self.ready.add(("view", (node, replica)))

    def deliver_view(self, at: Where) -> None:
        """The next view reaches its replica."""
        waiting = self.views[at]
        view = waiting.popleft()
        if not waiting:
            self.ready.discard(("view", at))
        self.cores[at].on_view(view)
        self.after(at)

    def take_report(self, at: Where) -> Any:
        """The next report of a replica."""
        waiting = self.reports[at]
        report = waiting.popleft()
        if not waiting:
            self.ready.discard(("report", at))
        return report

    def read_source(self, at: Where, *, stops: bool) -> bool:
        """The source of a replica is read, or stopped; False when it is held up."""
        event = ("source", at)
        if self.held_up(at, event):
            return False
        if stops:
            self.cores[at].stop_source()
            self.ready.discard(event)
        elif self.cores[at].source_step() is None:
            self.ready.discard(event)
        self.after(at)
        return True

    def feed(self, at: Where, *, keeps: bool) -> bool:
        """The next item of a live input; False when its replica is held up. ``keeps``: it may have to be sent again."""
        event = ("input", at)
        if self.held_up(at, event):
            return False
        log = self.input_log[at]
        kind, value = log.next()
        if not log.waits:
            self.ready.discard(event)
        if not keeps:
            log.trim(log.taken)
        core = self.cores[at]
        core.input.frames = log.taken
        if kind == "send":
            core.input_send(value)
        elif kind == "advance":
            core.input_advance(value)
        elif kind == "note":
            core.input.note = value
        elif kind == "save":
            self.saves_wanted.append((core.stage.name, value))
        else:
            core.input_close()
        self.after(at)
        return True

    # -- what it tells ---------------------------------------------------------------------------------
    def open_inputs(self) -> list[str]:
        """The live inputs that are not closed."""
        return [name for name, stage in self.plan.inputs.items() if self.cores[stage, 0].input.epoch is not None]

    def explain(self) -> str:
        """Why nothing moves."""
        describe = self.plan.progress.describe_location
        parts = [sentences(diagnose(self._facts()), "is not known to wait for anything")]
        for (stage, replica), core in self.cores.items():
            for notification in core.notificator.pending():
                time = notification.guarantee
                blockers = [(describe(loc), t, n) for loc, t, n in self.tracker.blockers(stage, time)]
                parts.append(describe_blockers(f"{core.name}[{replica}]", time, blockers))
        for channel, waiting in self.channels.items():
            if waiting:
                parts.append(f"{len(waiting)} batches wait on {self.edges[channel[0]].name} {channel[1]}->{channel[2]}")
        for at, ends in self.ends.items():
            parts.extend(f"{self.cores[at].name}[{at[1]}]: {line}" for line in ends.sender.describe())
            if len(ends.feedback):
                parts.append(f"{self.cores[at].name}[{at[1]}]: {len(ends.feedback)} batches that came round a loop")
        parts.extend(f"input {name!r} is open" for name in self.open_inputs())
        return "\n".join(parts)

    def _facts(self) -> Facts:
        """What a diagnosis is made from."""
        queued: dict[Where, int] = {}
        for (edge, _, replica), waiting in self.channels.items():
            at = (self.edges[edge].target, replica)
            queued[at] = queued.get(at, 0) + len(waiting)
        reports = {}
        for at, core in self.cores.items():
            ends = self.ends[at]
            mine = sinks_of(core.stage.steps)
            reports[core.name, at[1]] = ReplicaReport(
                core.name,
                at[1],
                records_in=core.records_in,
                title=self.plan.called(at[0]),
                sinks=tuple(sink.key for sink in self.plan.sinks if sink.id in mine),
                set_aside=core.outputs.bad_records(),
                waits=Waits(
                    queued=queued.get(at, 0),
                    looped=len(ends.feedback),
                    notifications=tuple(one.guarantee for one in core.notificator.pending()),
                    no_credit=tuple(
                        ((self.plan.stage(stage).name, replica), batches)
                        for (stage, replica), batches in ends.sender.without_credit().items()
                    ),
                    input_epoch=core.input.epoch,
                ),
            )
        return Facts(reports, stamps_of(self.tracker, self.plan))

    def check_invariants(self) -> None:
        """Raise InternalError unless what senders count as in flight is somewhere, and is no more than the window and one batch."""
        for at, ends in self.ends.items():
            if ends.sender.is_held_up is not (at in self.stuck):
                raise InternalError(f"{ends.name} waits for credit: {ends.sender.is_held_up}, but is held up: {at in self.stuck}")
            for (edge, replica), window in ends.sender.windows.items():
                window.check_invariants()
                if (self.edges[edge].target, replica) not in self.ends:
                    continue  # not there yet, or not any more
                sizes, known = self._in_flight((edge, at[1], replica))
                who = f"{self.edges[edge].name} {ends.name}->[{replica}]"
                if known != window.in_flight:
                    raise InternalError(f"{who}: the sender counts {window.in_flight} in flight, but there is {known}")
                if not self._is_configured and (len(sizes) > window.batches or sum(sizes[:-1]) >= window.bytes):
                    raise InternalError(f"{who}: batches of {sizes} bytes are on their way, {window}")

    def _in_flight(self, channel: ChannelId) -> tuple[list[int], Grant]:
        """The bytes of the batches on a channel that need credit; and all that is not granted back yet, consumed and held-back batches
        included."""
        edge = self.edges[channel[0]]
        source, at = channel[1], (edge.target, channel[2])
        sizes = [size for _, _, size in self.channels.get(channel, ()) if size is not None]
        back = [grant for grant, _ in self.credits.get(channel, ())]
        tokens = list(self.cores[at].done_tokens)
        migration = self.cores[at].migration
        if isinstance(migration, Migration):
            tokens += migration.held_tokens()
        tokens = [token for token in tokens if token[:2] == (edge.id, source)]
        window = self.ends[at].grants.windows.get((edge.id, source))
        consumed = Grant(window.consumed_batches, window.consumed_bytes) if window is not None else Grant(0, 0)
        return sizes, Grant(
            len(sizes) + len(tokens) + consumed.batches + sum(grant.batches for grant in back),
            sum(sizes) + sum(size for _, _, size in tokens) + consumed.bytes + sum(grant.bytes for grant in back),
        )

    def close(self) -> None:
        """Release what the users' code holds."""
        for core in self.cores.values():
            core.close()
        for ends in self.ends.values():
            ends.close()
