"""The replicas of a local job, the queues between them, and what can happen next.

Batches are FIFO per channel, reports FIFO per replica, views FIFO per replica. Every non-empty queue is one event that can happen; which
one does is drawn by the seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rayad.actors.job import describe_blockers
from rayad.actors.plane.on_demand import rows_of
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.rest import thaw
from rayad.actors.replica.upstream import gated_edges
from rayad.actors.store.input_log import InputLog
from rayad.dataflow.compiling.sharing import shared_steps
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan, Stage
from rayad.progress import JobTracker, Timestamp, View

Where = tuple[int, int]
"""A stage and which of its replicas."""
ChannelId = tuple[int, int, int]
"""An edge, the sending replica, the receiving one."""

HOLD_SHARE = 0.75
"""How often a replica whose combiners hold something is not made to give it out at once."""
CUT_SHARE = 0.3
"""How often a batch on demand is cut."""


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
        """Events that were put aside can happen again; of batches only where some are still waiting."""
        for event in sorted(events):
            if event[0] != "batch" or channels[event[1]]:
                self.add(event)


class HeldUp(dict[Where, set[Any]]):
    """Events of replicas that are held up, until there is room; it counts for how many steps they are."""

    def __init__(self, steps: Callable[[], int]) -> None:
        super().__init__()
        self.began = steps()
        self._steps = steps
        self._since: dict[Where, int] = {}
        self._before: dict[Where, int] = {}

    def setdefault(self, at: Where, default: set[Any]) -> set[Any]:
        """As of a dict; the replica is held up from now on."""
        self._since.setdefault(at, self._steps())
        return super().setdefault(at, default)

    def pop(self, at: Where, *default: Any) -> Any:
        """As of a dict; the replica is free."""
        since = self._since.pop(at, None)
        if since is not None:
            self._before[at] = self._before.get(at, 0) + self._steps() - since
        return super().pop(at, *default)

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
    """

    def __init__(self, plan: Plan, config: RunConfig, chance: random.Random, *, check_records: bool = True) -> None:
        self.plan = plan
        self.config = config
        self.random = chance
        self.steps = 0
        self.edges = plan.edge_by_id
        self.edge_ids = {name: edge for edge, name in edge_names(plan).items()}
        self.window = config.window_batches
        self.gated = gated_edges(plan) if config.failures.recovery == "upstream" else frozenset[int]()
        self.input_log: dict[Where, InputLog] = {}
        self.retired = Retired()
        self.moved_out: Callable[[Where], None] | None = None
        """Called when a replica's batches and report so far are in their queues; a change of layout sets it."""
        self.cores: dict[Where, ReplicaCore] = {}
        self._shared = shared_steps(plan) if check_records else {}
        self.clear()

    def clear(self) -> None:
        """Nothing is on its way, and nobody there."""
        self.tracker = JobTracker(self.plan.progress)
        self.cores = {}
        self.channels: dict[ChannelId, deque[tuple[Timestamp | None, Any]]] = {}
        self.reports: dict[Where, deque[Any]] = {}
        self.views: dict[Where, deque[View]] = {}
        self.queued: dict[Where, int] = {}
        """Batches that wait on regular channels out of a replica."""
        self.blocked = HeldUp(lambda: self.steps)
        self.aligning: dict[Where, set[Any]] = {}
        """Events behind barriers that have not come on all channels."""
        self.subscribed: set[Where] = set()
        self.ready = Ready()
        self.moved_out = None

    # -- replicas --------------------------------------------------------------------------------------
    def new_core(self, stage: Stage, replica: int, plan: Plan | None = None) -> ReplicaCore:
        """A replica that is not started yet, with its queues; ``plan``: in another layout than the job has now."""
        at = (stage.id, replica)

        def room(edge: int, target: int) -> int:
            waiting = self.channels.get((edge, replica, target))
            return -len(waiting) if waiting is not None else 0

        core = self.cores[at] = ReplicaCore(plan or self.plan, stage, replica, room=room, gated=self.gated)
        core.outputs.watch_records(self._shared.get(stage.id, {}))
        core.outputs.piece_rows = pieces_by_chance(self.random)
        core.outputs.batch_rows = self.config.batch_rows
        self.reports.setdefault(at, deque()).clear()
        self.views.setdefault(at, deque()).clear()
        return core

    def begin(self, at: Where) -> None:
        """A replica that has been started may read."""
        core = self.cores[at]
        if core.source is not None:
            self.ready.add(("source", at))
        if core.stage.kind is NodeKind.INPUT:
            log = self.input_log.setdefault(at, InputLog(core.input_frames))
            log.rewind(core.input_frames)
            if log.waits:
                self.ready.add(("input", at))

    def refill(self, at: Where, log: Iterable[tuple[str, int, bytes]]) -> None:
        """Batches that were in flight towards a replica are so again."""
        for name, source, data in log:
            edge = self.edges[self.edge_ids[name]]
            time, batch = thaw(data)
            self.cores[at].count_waiting(edge.id, time)
            self.put((edge.id, source % self.plan.stage(edge.source).parallelism, at[1]), time, batch)  # a source may have fewer now

    def refill_outbox(self, at: Where, outbox: Iterable[tuple[str, int, bytes]]) -> None:
        """Batches that waited at a replica for credit do so again."""
        for name, target, data in outbox:
            self.refill((self.edges[self.edge_ids[name]].target, target), [(name, at[1], data)])

    def configure(self, config: RunConfig) -> None:
        """Windows and sizes of batches change; what was held up by a smaller window may move."""
        self.config = config
        self.window = config.window_batches
        for core in self.cores.values():
            core.outputs.batch_rows = config.batch_rows
        for at in [at for at in self.blocked if self.queued.get(at, 0) < self.window]:
            for event in sorted(self.blocked.pop(at)):
                self.ready.add(event)

    # -- channels --------------------------------------------------------------------------------------
    def put(self, channel: ChannelId, time: Timestamp | None, batch: Any) -> None:
        """A batch, or without a time a barrier or marker, is on its way."""
        waiting = self.channels.get(channel)
        if waiting is None:
            waiting = self.channels[channel] = deque()
        waiting.append((time, batch))
        self.ready.add(("batch", channel))
        edge = self.edges[channel[0]]
        if time is not None and not edge.is_feedback:
            at = (edge.source, channel[1])
            self.queued[at] = self.queued.get(at, 0) + 1

    def held_up(self, at: Where, event: Any) -> bool:
        """Whether a replica has too much waiting on its way out; the event is put aside until there is room."""
        if self.queued.get(at, 0) < self.window:
            return False
        self.ready.discard(event)
        self.blocked.setdefault(at, set()).add(event)
        return True

    def release(self, source: Where) -> None:
        """A batch of a replica has been consumed."""
        self.queued[source] -= 1
        if self.queued[source] < self.window:
            self.ready.again(self.blocked.pop(source, ()), self.channels)

    def align(self, at: Where, event: Any) -> None:
        """The event waits for a barrier on the other channels."""
        self.ready.discard(event)
        self.aligning.setdefault(at, set()).add(event)

    def unblock(self, at: Where) -> None:
        """The replica has captured: what waited behind its barriers may be consumed."""
        self.ready.again(self.aligning.pop(at, ()), self.channels)

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
        core = self.cores[at]
        core.outputs.flush()
        for outgoing in core.outputs.take():
            self.put((outgoing.edge, at[1], outgoing.replica), outgoing.time, outgoing.batch)
        core.done_tokens.clear()
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
        core.input_frames = log.taken
        if kind == "send":
            core.input_send(value)
        elif kind == "advance":
            core.input_advance(value)
        else:
            core.input_close()
        self.after(at)
        return True

    # -- what it tells ---------------------------------------------------------------------------------
    def open_inputs(self) -> list[str]:
        """The live inputs that are not closed."""
        return [name for name, stage in self.plan.inputs.items() if self.cores[stage, 0].input_epoch is not None]

    def explain(self) -> str:
        """Why nothing moves."""
        describe = self.plan.progress.describe_location
        parts = []
        for (stage, replica), core in self.cores.items():
            for notification in core.notificator.pending():
                time = notification.guarantee
                blockers = [(describe(loc), t, n) for loc, t, n in self.tracker.blockers(stage, time)]
                parts.append(describe_blockers(f"{core.name}[{replica}]", time, blockers))
        held = {channel: len(waiting) for channel, waiting in self.channels.items() if waiting}
        parts.extend(f"{count} batches wait on {self.edges[c[0]].name} {c[1]}->{c[2]}" for c, count in held.items())
        parts.extend(f"input {name!r} is open" for name in self.open_inputs())
        return "\n".join(parts) or "nothing is waiting"

    def close(self) -> None:
        """Release what the users' code holds."""
        for core in self.cores.values():
            core.close()


def pieces_by_chance(chance: random.Random) -> Callable[[int, Any], int]:
    """For edges on demand: here nothing takes time by which batches could be cut, so the seed says into what."""

    def rows(_edge: int, batch: Any) -> int:
        most = rows_of(batch)
        return chance.randint(1, most) if most > 1 and chance.random() < CUT_SHARE else most

    return rows
