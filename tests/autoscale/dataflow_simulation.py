"""A dataflow in steps of time: queues, rates, selectivities, loops, credit, replicas that take a while to start, noise. Pure and seeded.

It drives the real counters, so tests cover everything from counters to decisions. Records are a fluid (queues are floats,
counts are rounded down), and the replicas of a vertex are equal. In each step a vertex consumes the least of: the items that wait, the
items that its replicas can process, and the items for which the queues behind it have room. Feedback edges have no bound, as in the engine.
Vertices that share workers divide the time of those, downstream first, as workers do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rayad.autoscale import (
    BACKPRESSURED,
    BUSY,
    IDLE,
    AutoscalerCore,
    Decision,
    Policy,
    ReplicaCounters,
    ReplicaReading,
    ScalingGraph,
    Spread,
)
from rayad.autoscale.statistics import QUEUED

Figure = float | Callable[[float], float]
"""A constant, or a function of the time in seconds."""


def at(figure: Figure, now_s: float) -> float:
    return figure(now_s) if callable(figure) else figure


@dataclass(frozen=True, kw_only=True)
class Work:
    """One vertex: what a replica can do, and for a source what arrives.

    ``rate``: items a busy second of one replica. ``scaling``: what n replicas can do together, as a multiple of one (n where they do not
    disturb each other). ``arrivals``: items a second from outside; None: as much as it can read. ``overhead``: the share of time that goes
    to something which the counters take for back-pressure or idleness.
    """

    rate: Figure
    scaling: Callable[[int], float] = float
    arrivals: Figure | None = None
    knows_backlog: bool = False
    overhead: float = 0.0


@dataclass
class Replica:
    counters: ReplicaCounters
    totals: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(self, what: str, edge: int, items: float) -> int:
        self.totals[what, edge] = self.totals.get((what, edge), 0.0) + items
        return int(self.totals[what, edge] + 1e-6)


class SimulatedDataflow:
    """Steps through time; ``rescale`` takes effect after ``start_s``, and halts everything for ``halt_s`` (as MPR does)."""

    def __init__(
        self,
        graph: ScalingGraph,
        work: Mapping[str, Work],
        selectivity: Mapping[int, Figure],
        layout: Mapping[str, int],
        *,
        seed: int = 0,
        noise: float = 0.0,
        step_s: float = 0.05,
        buffer_items: float = 1000.0,
        start_s: float = 1.0,
        halt_s: float = 0.0,
    ) -> None:
        self.graph, self.work, self.selectivity = graph, work, selectivity
        self.layout = dict(layout)
        self.now_s = 0.0
        self.queues = {(name, spread): 0.0 for name in graph.by_name for spread in (Spread.DIVIDED, Spread.COPIED)}
        self.backlog = dict.fromkeys(graph.by_name, 0.0)
        self.produced = dict.fromkeys(graph.by_name, 0.0)
        self.consumed = dict.fromkeys(graph.by_name, 0.0)
        self.utilization = dict.fromkeys(graph.by_name, 0.0)
        self._random = random.Random(seed)
        self._noise, self._step_s, self._buffer = noise, step_s, buffer_items
        self._start_s, self._halt_s = start_s, halt_s
        self._coming: tuple[float, dict[str, int]] | None = None
        self._halted_until_s = 0.0
        self._left_s: list[float] = []  # of this step, by worker
        self.replicas = {name: [self._replica(name, i) for i in range(layout[name])] for name in graph.by_name}

    def _replica(self, name: str, number: int) -> Replica:
        inputs = [e.id for e in self.graph.incoming[name]]
        outputs = [e.id for e in self.graph.outgoing[name]]
        return Replica(ReplicaCounters(name, number, inputs=inputs, outputs=outputs, now_s=self.now_s))

    def rescale(self, changes: Mapping[str, int]) -> None:
        self._coming = (self.now_s + self._start_s, {**self.layout, **changes})
        self._halted_until_s = self.now_s + self._halt_s

    def readings(self) -> list[ReplicaReading]:
        out = []
        for name, replicas in self.replicas.items():
            waiting = int(sum(self.queues[name, spread] for spread in (Spread.DIVIDED, Spread.COPIED)) / len(replicas))
            backlog = int(self.backlog[name] / len(replicas)) if self.work[name].knows_backlog else None
            for replica in replicas:
                replica.counters.check_invariants()
                out.append(replica.counters.reading(self.now_s, queue_items=waiting, backlog_items=backlog))
        return out

    def step(self) -> dict[str, int] | None:
        """One step; gives the new layout when one takes effect."""
        halted = self.now_s < self._halted_until_s
        self._left_s = [self._step_s] * max((self.layout[name] for name in self.graph.sharing), default=0)
        names = [member for members in self.graph.components for member in members]
        for name in reversed(names) if self.graph.sharing else names:
            self._run(name, halted)
        self.now_s += self._step_s
        if self._coming is None or self.now_s < self._coming[0]:
            return None
        layout = self._coming[1]
        self._coming = None
        for name, count in layout.items():
            have = self.replicas[name]
            self.replicas[name] = [*have[:count], *(self._replica(name, i) for i in range(len(have), count))]
        self.layout = dict(layout)
        return layout

    def _noisy(self, value: float) -> float:
        return value * math.exp(self._random.gauss(0.0, self._noise)) if self._noise else value

    def _run(self, name: str, halted: bool) -> None:
        work, count, step_s = self.work[name], self.layout[name], self._step_s
        one = self._noisy(at(work.rate, self.now_s)) * work.scaling(count) / count
        usable_s = 0.0 if halted else step_s * (1.0 - work.overhead)
        is_shared = self.graph.by_name[name].shares
        if is_shared:
            usable_s = min(usable_s, *self._left_s[:count])
        each = one * usable_s
        is_source = not self.graph.incoming[name]
        if is_source:
            if work.arrivals is None:
                divided = each * count
            else:
                self.backlog[name] += self._noisy(at(work.arrivals, self.now_s)) * step_s
                divided = self.backlog[name]
            copied = 0.0
        else:
            divided, copied = self.queues[name, Spread.DIVIDED], self.queues[name, Spread.COPIED]
        load = divided / count + copied
        share = min(1.0, each / load) if load > 0.0 else 0.0
        allowed, is_blocked = self._room(name, (divided + copied) * share)
        share *= allowed
        self._consume(name, divided * share, copied * share, is_source)
        busy_s = min(usable_s, load * share / one) if one > 0.0 else 0.0
        rest = BACKPRESSURED if halted or is_blocked or (work.overhead and load * share >= each * 0.999) else IDLE
        if is_shared:
            self._left_s[:count] = [max(0.0, left_s - busy_s) for left_s in self._left_s[:count]]
            if rest == IDLE and share < 0.999 and load > 0.0:
                rest = QUEUED
        waits = (divided / count + copied) * (1.0 - share) / one
        latency_s = waits + (1.0 + self.utilization[name] / max(0.02, 1.0 - self.utilization[name])) / one
        self.utilization[name] += 0.02 * (busy_s / step_s - self.utilization[name])
        for replica in self.replicas[name]:
            replica.counters.turn_to(BUSY, self.now_s)
            replica.counters.turn_to(rest, self.now_s + busy_s)
            replica.counters.turn_to(rest, self.now_s + step_s)
            if share > 0.0 and not is_source:
                replica.counters.latency.add(latency_s)

    def _room(self, name: str, wanted: float) -> tuple[float, bool]:
        """What share of the wanted items may be consumed, so that what they become fits behind; and whether that is less than all."""
        allowed = 1.0
        for edge in self.graph.outgoing[name]:
            gives = wanted * at(self.selectivity[edge.id], self.now_s)
            if not edge.is_feedback and gives > 0.0:
                waiting = sum(self.queues[edge.target, spread] for spread in (Spread.DIVIDED, Spread.COPIED))
                allowed = min(allowed, max(0.0, self._buffer - waiting) / gives)
        return allowed, allowed < 1.0

    def _consume(self, name: str, divided: float, copied: float, is_source: bool) -> None:
        items, count, replicas = divided + copied, self.layout[name], self.replicas[name]
        self.consumed[name] += items
        if is_source:
            if self.work[name].arrivals is not None:
                self.backlog[name] -= items
            for replica in replicas:
                replica.counters.read_items = replica.add("read", -1, items / count)
        else:
            self.queues[name, Spread.DIVIDED] -= divided
            self.queues[name, Spread.COPIED] -= copied
            incoming = self.graph.incoming[name]
            shares = {e.id: self._share_of_input(name, e.id) for e in incoming}
            for edge in incoming:
                each = copied * shares[edge.id] if edge.spread is Spread.COPIED else divided * shares[edge.id] / count
                for replica in replicas:
                    replica.counters.received_items[edge.id] = replica.add("received", edge.id, each)
        for edge in self.graph.outgoing[name]:
            gives = items * self._noisy(at(self.selectivity[edge.id], self.now_s))
            self.produced[name] += gives
            spread = Spread.COPIED if edge.spread is Spread.COPIED else Spread.DIVIDED
            self.queues[edge.target, spread] += gives
            for replica in replicas:
                replica.counters.sent_items[edge.id] = replica.add("sent", edge.id, gives / count)
        if not self.graph.outgoing[name]:
            self.produced[name] += items
            for replica in replicas:
                replica.counters.written_items = replica.add("written", -1, items / count)

    def _share_of_input(self, name: str, edge: int) -> float:
        """Of what is consumed of one kind (divided or copied): equal parts of its edges, which is enough for a fluid."""
        kind = next(e.spread for e in self.graph.incoming[name] if e.id == edge) is Spread.COPIED
        return 1.0 / sum((e.spread is Spread.COPIED) is kind for e in self.graph.incoming[name])


@dataclass(frozen=True)
class Moment:
    """One round of the autoscaler."""

    now_s: float
    layout: Mapping[str, int]
    decision: Decision
    produced: Mapping[str, float]
    """Items a second since the round before."""


def run(
    dataflow: SimulatedDataflow, policy: Policy, *, until_s: float, interval_s: float = 2.0, window_s: float = 0.0, warm_up_s: float = 0.0
) -> tuple[list[Moment], AutoscalerCore]:
    """Run the dataflow with an autoscaler, as the runtime would."""
    autoscaler = AutoscalerCore(dataflow.graph, policy, dataflow.layout, dataflow.now_s, window_s=window_s, warm_up_s=warm_up_s)
    moments: list[Moment] = []
    before, next_s = dict(dataflow.produced), 0.0
    while dataflow.now_s < until_s:
        if dataflow.now_s >= next_s - 1e-9:
            decision = autoscaler.on_readings(dataflow.readings(), dataflow.now_s)
            autoscaler.journal.check_invariants()
            if decision.changes:
                dataflow.rescale(decision.changes)
            rates = {name: (total - before[name]) / interval_s for name, total in dataflow.produced.items()}
            moments.append(Moment(dataflow.now_s, dict(dataflow.layout), decision, rates))
            before, next_s = dict(dataflow.produced), next_s + interval_s
        layout = dataflow.step()
        if layout is not None:
            autoscaler.on_rescaled(layout, dataflow.now_s)
    return moments, autoscaler


def changes(moments: list[Moment]) -> list[Decision]:
    """The decisions that changed something."""
    return [moment.decision for moment in moments if moment.decision.changes]
