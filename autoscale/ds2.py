"""DS2: the replicas of all vertices in one decision, from true rates (Kalavri et al., *Three steps is all you need*, OSDI 2018).

For each vertex: the items a second that it must consume so that the sources are never back-pressured (`rates`), divided by what one replica
can consume in a busy second, rounded up. The example of the authors' implementation: a source of 100/s; op1 consumes 50/s and gives 8 items
for each; op2 consumes 100/s. op1 needs 100 / 50 = 2 replicas; with 2 it gives 800/s, so op2 needs 8. Both numbers are known at once,
although op2 has never seen more than 400/s, since there was one replica of op1.

Beyond the paper: loops (its sweep needs an acyclic graph), broadcast edges, unevenly divided key-groups, a margin against flapping, the
time to work off what has queued up, and vertices that share workers. In a worker one processor does the work of a replica of each: what
the vertices need there adds up, in processors, and that many workers is what each of them gets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rayad.autoscale.decisions import Decision, Expected, Hold, ScalingState, decision_for
from rayad.autoscale.rates import RequiredRates, solve_rates
from rayad.autoscale.samples import JobSample, VertexSample
from rayad.autoscale.scaling_graph import EdgeView, ScalingGraph, Spread, VertexView
from rayad.progress import ConfigError

ROUNDING = 1e-3
"""Replicas are enough if their capacity is too low by less than this share: counters and clocks are not more exact."""
UNEVEN_MOST = 1.05
"""How much fuller than the mean the fullest replica may be, since key-groups cannot be split; above that, more replicas are taken."""
CORRECTION_MOST = 4.0
TRACE_PER_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DS2:
    """The policy. Without arguments it is the paper's arithmetic; for running jobs give it room (``utilization``, ``down_margin``).

    Args:
        source_rates: items a second that sources must be able to read, by name; others are measured (:func:`source_rate`).
        utilization: the share of time for which replicas may be busy. The paper's scaling factor f is ``1 / utilization - 1``.
        down_margin: replicas are taken away only if the rest would stay this share below ``utilization``: noise causes no flapping.
        catch_up_s: within this time all queues are worked off, those outside the job too; None: queues are ignored, as in the paper.
        lag_s: a queue of at most this many seconds' worth of items is not worked off.
        target_rate_ratio: if no vertex needs more replicas by the model, yet a source must read more than this many times what it reads,
            then the model errs: all rates are multiplied by that shortfall (the paper's target-rate-ratio). Infinite: never.
        amplifying: how to size a loop that gives back more items than it gets, and all vertices behind it: ``"hold"``: they keep their
            replicas; ``"arrivals"``: enough replicas for what arrives there now.
    """

    source_rates: Mapping[str, float] = field(default_factory=dict)
    utilization: float = 1.0
    down_margin: float = 0.0
    catch_up_s: float | None = None
    lag_s: float = 0.0
    target_rate_ratio: float = math.inf
    amplifying: Literal["hold", "arrivals"] = "hold"

    def __post_init__(self) -> None:
        if not 0.0 < self.utilization <= 1.0:
            raise ConfigError(f"DS2.utilization is {self.utilization!r}: it must be above 0 and at most 1")
        if not 0.0 <= self.down_margin < 1.0:
            raise ConfigError(f"DS2.down_margin is {self.down_margin!r}: it must be at least 0 and below 1")
        if self.catch_up_s is not None and not self.catch_up_s > 0.0:
            raise ConfigError(f"DS2.catch_up_s is {self.catch_up_s!r}: it must be above 0, or None")
        if not self.lag_s >= 0.0:
            raise ConfigError(f"DS2.lag_s is {self.lag_s!r}: it must be at least 0")
        if not self.target_rate_ratio >= 1.0:
            raise ConfigError(f"DS2.target_rate_ratio is {self.target_rate_ratio!r}: it must be at least 1")
        if self.amplifying not in ("hold", "arrivals"):
            raise ConfigError(f"DS2.amplifying is {self.amplifying!r}: it must be 'hold' or 'arrivals'")

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """One decision for all vertices."""
        missing = [name for name in state.graph.by_name if name not in samples.vertices]
        if missing:
            return Hold(reason=f"nothing was measured of {', '.join(missing)}")
        model = _Model.of(self, samples, state)
        correction = next((found for r in reversed(state.history) if (found := r.decision.correction) is not None), 1.0)
        why = "as found before"
        target = model.target(correction)
        shortfall, behind = model.shortfall()
        if shortfall > self.target_rate_ratio and not any(target[name] > state.layout[name] for name in target):
            correction = min(CORRECTION_MOST, correction * shortfall)
            why = f"because {behind!r} must read {shortfall:.3g} times what it reads, though by the model every vertex has enough replicas"
            target = model.target(correction)
        figures = model.figures() | ({"correction": correction} if correction != 1.0 else {})
        reason = model.reason(target) + (f"; times {correction:.3g}, {why}" if correction != 1.0 else "")
        expected = model.expected(target, correction)
        decision = Hold(reason=reason, figures=figures, wanted=target, expected=expected, correction=correction)
        return decision_for(state.layout, target, decision)


def source_rate(sample: VertexSample) -> float:
    """Items a second that a source has to read, as far as can be measured.

    If the source knows its backlog (a Kafka lag): what it reads plus the growth of the backlog. Otherwise what it reads per second of the
    time in which it is not back-pressured: its true output rate if it never waits for input, the rate of arrival if it does.
    """
    growth = sample.backlog_growth_per_s
    if growth is not None:
        return max(0.0, sample.observed_rate + growth)
    free = sample.unhindered_rate
    return sample.observed_rate if free is None else free


def replicas_needed(vertex: VertexView, required: float, copied: float, true_rate: float, utilization: float) -> int:
    """The fewest replicas that keep up, not bounded by ``most``.

    Args:
        required: items a second for all replicas together, a broadcast counted once.
        copied: how many of these reach each replica.
        true_rate: items that one replica consumes a busy second.
        utilization: how busy a replica may be.

    >>> replicas_needed(VertexView("op2"), 800.0, 0.0, 100.0, 1.0), replicas_needed(VertexView("op2"), 800.0, 0.0, 100.0, 0.75)
    (8, 11)
    >>> replicas_needed(VertexView("join"), 450.0, 50.0, 100.0, 1.0)             # 400/s are divided by what 50/s leave: 8 replicas
    8
    >>> replicas_needed(VertexView("count", key_groups=256), 9950.0, 0.0, 100.0, 1.0)  # of 100 replicas some would own 3 groups, some 2
    128
    """
    room = true_rate * utilization - copied
    if room <= 0.0:
        return vertex.most
    exact = max(0.0, required - copied) / room
    replicas = max(1, math.ceil(exact * (1.0 - ROUNDING)))
    if vertex.key_groups is None or replicas >= vertex.key_groups:
        return replicas
    fullest = max(1, math.floor(vertex.key_groups / exact * UNEVEN_MOST)) if exact > 1.0 else vertex.key_groups
    return max(replicas, math.ceil(vertex.key_groups / fullest))


@dataclass(frozen=True, slots=True)
class _Model:
    """The samples as rates and capacities of one graph."""

    policy: DS2
    state: ScalingState
    samples: JobSample
    sources: Mapping[str, float]
    rates: RequiredRates
    capacity: Mapping[str, float]
    """By vertex, items that one replica consumes a busy second."""
    selectivity: Mapping[int, float]
    unmeasured: frozenset[str]
    """Vertices that have never consumed anything, and those behind them: they may need more than the measured rates say."""

    @classmethod
    def of(cls, policy: DS2, samples: JobSample, state: ScalingState) -> _Model:
        graph, vertices = state.graph, samples.vertices
        unknown = set(policy.source_rates) - {v.name for v in graph.vertices if v.is_source}
        if unknown:
            raise ConfigError(f"DS2.source_rates names {sorted(unknown)}, which are no sources of this dataflow")
        sources = {v.name: policy.source_rates.get(v.name, source_rate(vertices[v.name])) for v in graph.vertices if v.is_source}
        before = _remembered(state)
        logical = {name: _logical_items_in(samples, graph, name) for name in graph.by_name}
        selectivity: dict[int, float] = {}
        for edge in graph.edges:
            if logical[edge.source] > 0:
                selectivity[edge.id] = samples.sent(edge.source, edge.id) / logical[edge.source]
            elif (found := before.get(_selectivity_figure(edge))) is not None:
                selectivity[edge.id] = found
        capacity: dict[str, float] = {}
        for name in graph.by_name:
            true_rate = vertices[name].true_rate_per_replica
            true_rate = before.get(_capacity_figure(name)) if true_rate is None else true_rate
            if true_rate is not None:
                capacity[name] = true_rate
        rates = solve_rates(graph, selectivity, _outside(policy, samples, graph, sources))
        unmeasured = graph.behind({name for name in graph.by_name if name not in capacity and logical[name] == 0})
        if policy.amplifying == "arrivals" and rates.undetermined:
            arrivals = {name: _arrivals(samples, graph, name) for name in rates.undetermined}
            rates = replace(rates, total={**rates.total, **arrivals}, copied={**rates.copied, **dict.fromkeys(arrivals, 0.0)})
        return cls(policy, state, samples, sources, rates, capacity, selectivity, unmeasured)

    def target(self, correction: float) -> dict[str, int]:
        """Replicas by vertex that may be scaled and whose need is known."""
        out = {}
        graph = self.state.graph
        workers = self._workers(correction) if self.workers_now else None
        for name in graph.scalable:
            if name not in self.rates.total:
                continue
            now = self.state.layout[name]
            vertex = graph.by_name[name]
            if vertex.shares:
                out[name] = vertex.clamp(now if workers is None else workers)
            else:
                out[name] = vertex.clamp(self._of(vertex, now, correction) if name in self.capacity else now)
        return out

    def load(self, correction: float = 1.0) -> float:
        """Processors that the vertices in workers need together, as far as they were measured."""
        return correction * sum(self.rates.total[name] / self.capacity[name] for name in self._measured)

    @property
    def _measured(self) -> list[str]:
        """The vertices in workers whose need is known."""
        return [name for name in self.state.graph.sharing if name in self.capacity and name in self.rates.total]

    @property
    def workers_now(self) -> int:
        """How many workers hold something that may be scaled; 0: there is nothing."""
        graph = self.state.graph
        return max((self.state.layout[name] for name in graph.scalable if graph.by_name[name].shares), default=0)

    def _workers(self, correction: float) -> int | None:
        """How many workers the vertices need that live in workers: the arithmetic of one vertex whose items are busy seconds. None: each
        keeps what it has, since it is not known that fewer are enough."""
        graph, now, policy = self.state.graph, self.workers_now, self.policy
        vertices = [graph.by_name[name] for name in graph.sharing]
        groups = [vertex.key_groups for vertex in vertices if vertex.key_groups is not None]
        one = VertexView("workers", most=max(vertex.most for vertex in vertices), key_groups=min(groups, default=None))
        measured = self._measured
        copied = correction * sum(self.rates.copied[name] / self.capacity[name] for name in measured)
        load = self.load(correction)
        needed = replicas_needed(one, load, copied, 1.0, policy.utilization)
        if needed >= now:
            return needed
        if len(measured) < len(vertices) or self.unmeasured & set(graph.sharing):
            return None
        observed = sum(self.samples.vertices[name].observed_rate / self.capacity[name] for name in measured)
        with_margin = replicas_needed(one, load, copied, 1.0, policy.utilization * (1.0 - policy.down_margin))
        return min(now, max(with_margin, replicas_needed(one, observed, 0.0, 1.0, 1.0)))

    def expected(self, target: Mapping[str, int], correction: float) -> dict[str, Expected]:
        """By vertex whose capacity is known. In workers each vertex gets the same part of what it needs."""
        out, load = {}, self.load(correction)
        for name, rate in self.capacity.items():
            if name in target:
                shares = self.state.graph.by_name[name].shares and load > 0.0
                total = self.rates.total[name]
                out[name] = Expected(total, correction * total * target[name] / load if shares else rate * target[name])
        return out

    def _of(self, vertex: VertexView, now: int, correction: float) -> int:
        name, room = vertex.name, self.policy.utilization
        rate, copied = correction * self.rates.total[name], correction * self.rates.copied[name]
        needed = replicas_needed(vertex, rate, copied, self.capacity[name], room)
        if needed >= now:
            return needed
        if name in self.unmeasured:
            return now
        # Going down: with the margin, and not below the present rate: a queue or a loop may still be full of earlier items.
        observed = self.samples.vertices[name].observed_rate
        with_margin = replicas_needed(vertex, rate, copied, self.capacity[name], room * (1.0 - self.policy.down_margin))
        under_way = replicas_needed(vertex, observed, 0.0, self.capacity[name], 1.0)
        return min(now, max(with_margin, under_way))

    def shortfall(self) -> tuple[float, str | None]:
        """The largest ratio of what a source must read to what it read, and which source."""
        worst, which = 1.0, None
        for name, required in self.sources.items():
            read = self.samples.vertices[name].observed_rate
            if read > 0.0 and required / read > worst:
                worst, which = required / read, name
        return worst, which

    def figures(self) -> dict[str, float]:
        """What the decision rests on."""
        out = {f"{name}.source_per_s": rate for name, rate in self.sources.items()}
        for name, rate in self.rates.total.items():
            if name not in self.sources:
                out[f"{name}.required_per_s"] = rate
        out |= {_capacity_figure(name): rate for name, rate in self.capacity.items()}
        edges = {edge.id: edge for edge in self.state.graph.edges}
        out |= {_selectivity_figure(edges[number]): value for number, value in self.selectivity.items()}
        if self.state.graph.sharing:
            out["workers.load"] = self.load()
        return out | {f"{'+'.join(members)}.gain": gain for members, gain in self.rates.gains.items()}

    def reason(self, target: Mapping[str, int]) -> str:
        """In words: the vertices that change, loops that amplify, what was not measured."""
        layout, graph = self.state.layout, self.state.graph
        parts = [
            f"{name} needs {self.rates.total[name]:.6g}/s, one replica can do {self.capacity[name]:.6g}/s: {layout[name]} -> {count}"
            for name, count in target.items()
            if count != layout[name] and name in self.capacity and not graph.by_name[name].shares
        ]
        if graph.sharing and any(count != layout[name] for name, count in target.items() if graph.by_name[name].shares):
            workers = max(target[name] for name in target if graph.by_name[name].shares)
            parts.append(f"what shares workers needs {self.load():.3g} processors: {self.workers_now} -> {workers} workers")
        for members in self.rates.amplifying:
            held = sorted(self.rates.undetermined & graph.behind(members))
            then = "sized for what arrives now" if self.policy.amplifying == "arrivals" else "left as they are"
            parts.append(
                f"the loop of {', '.join(members)} amplifies: {self.rates.gains[members]:.4g} items come back for one, "
                f"no number of replicas is enough; {', '.join(held)} {then}"
            )
        unmeasured = sorted(self.unmeasured & set(graph.scalable))
        if unmeasured:
            parts.append(f"no replicas are taken from {', '.join(unmeasured)}: a vertex there or upstream has never consumed anything")
        return "; ".join(parts) or "every vertex has what it needs"


def _capacity_figure(name: str) -> str:
    return f"{name}.true_per_s_and_replica"


def _selectivity_figure(edge: EdgeView) -> str:
    return f"{edge.source}->{edge.target}#{edge.id}.selectivity"


def _remembered(state: ScalingState) -> Mapping[str, float]:
    """The figures of the last decision that had measured a vertex: they stand in for what this sample could not measure."""
    measured = (r.decision.figures for r in reversed(state.history) if any(_capacity_figure(n) in r.decision.figures for n in state.layout))
    return next(measured, {})


def _logical_items_in(samples: JobSample, graph: ScalingGraph, name: str) -> float:
    """Items consumed; all copies of a broadcast item count as one."""
    vertex = samples.vertices[name]
    copies = sum(samples.received(name, e.id) for e in graph.incoming[name] if e.spread is Spread.COPIED)
    return vertex.items_in - copies + copies / max(1, vertex.parallelism)


def _arrivals(samples: JobSample, graph: ScalingGraph, name: str) -> float:
    """Items a second that were sent to the vertex in the window."""
    return sum(samples.sent(e.source, e.id) for e in graph.incoming[name]) / samples.duration_s if samples.duration_s > 0 else 0.0


def _outside(policy: DS2, samples: JobSample, graph: ScalingGraph, sources: Mapping[str, float]) -> dict[str, float]:
    """Items a second that arrive from outside. While a queue is worked off, its items count as arriving at the vertex where they wait.

    A loop in which items go round gets a trace of input: a loop that amplifies must be noticed even when nothing new enters it.
    """
    out = dict(sources)
    for members in graph.loops:
        out |= {name: out.get(name, 0.0) + TRACE_PER_S for name in members if samples.vertices[name].items_in > 0}
    if policy.catch_up_s is None:
        return out
    for name in graph.by_name:
        sample = samples.vertices[name]
        waiting = sample.queue_items + (sample.backlog_items or 0)
        allowed = policy.lag_s * sample.observed_rate
        out[name] = out.get(name, 0.0) + max(0.0, waiting - allowed) / policy.catch_up_s
    return out
