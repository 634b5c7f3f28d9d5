"""Targets for latency and lag, on top of DS2: they choose the utilization of its replicas.

*Lag*: what waits in queues and outside is worked off in a given time; that is DS2 with ``catch_up_s``. *Latency*: the busier a replica is,
the longer a record waits there for others. For one server the wait grows like ``u / (1 - u)`` with its utilization u (Kingman's formula,
for any distributions). If the latency is L at utilization u, then the target T is met at u'::

    u' / (1 - u') = (T / L) * u / (1 - u)        u' = T u / (T u + L (1 - u))

It is a model of one busiest vertex, corrected by measuring again after each change: at L = T it gives u' = u.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rayad.autoscale.decisions import Decision, Hold, ScalingState
from rayad.autoscale.ds2 import DS2
from rayad.autoscale.samples import JobSample
from rayad.progress import ConfigError

UTILIZATION_LEAST, UTILIZATION_MOST = 0.1, 0.95


def lag_target(lag_s: float, catch_up_s: float, *, utilization: float = 0.8, down_margin: float = 0.1) -> DS2:
    """DS2 that lets queues hold ``lag_s`` seconds' worth of items at most and works off the rest within ``catch_up_s``."""
    return DS2(utilization=utilization, down_margin=down_margin, catch_up_s=catch_up_s, lag_s=lag_s)


def utilization_for(latency_s: float, target_s: float, utilization: float) -> float:
    """The utilization at which the latency is expected to be ``target_s``, when it is ``latency_s`` at ``utilization``.

    >>> round(utilization_for(1.0, 1.0, 0.8), 3), round(utilization_for(4.0, 1.0, 0.8), 3), round(utilization_for(0.25, 1.0, 0.5), 3)
    (0.8, 0.5, 0.8)
    """
    full = target_s * utilization
    return min(UTILIZATION_MOST, max(UTILIZATION_LEAST, full / (full + latency_s * (1.0 - utilization))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """Keeps a quantile of latency at a target by choosing DS2's utilization.

    Args:
        target_s: seconds.
        share: which quantile, 0 to 1.
        vertex: where latency is measured; the worst of all vertices by default.
        base: DS2 for everything else; its utilization holds until a latency was measured, and while something is overloaded.
        tolerance: a latency within this share around the target changes nothing.
    """

    target_s: float
    share: float = 0.99
    vertex: str | None = None
    base: DS2 = field(default_factory=lambda: DS2(utilization=0.8, down_margin=0.1))
    tolerance: float = 0.25

    def __post_init__(self) -> None:
        if not self.target_s > 0.0:
            raise ConfigError(f"LatencyTarget.target_s is {self.target_s!r}: it must be above 0")
        if not 0.0 < self.share <= 1.0:
            raise ConfigError(f"LatencyTarget.share is {self.share!r}: it must be above 0 and at most 1")

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """DS2's decision at the utilization that the latency calls for."""
        if self.vertex is not None and self.vertex not in state.graph.by_name:
            raise ConfigError(f"LatencyTarget.vertex is {self.vertex!r}: the vertices are {sorted(state.graph.by_name)}")
        chosen = [self.vertex] if self.vertex is not None else list(samples.vertices)
        measured = [samples.vertices[name].latency_s(self.share) for name in chosen if name in samples.vertices]
        latency_s = max((found for found in measured if found is not None), default=None)
        busiest = _busiest(samples, state)
        if latency_s is None or busiest <= 0.0:
            return self.base(samples, state, now_s)
        if busiest >= UTILIZATION_MOST:  # its queue grows without end: a latency measured now says nothing about a steady state
            return self.base(samples, state, now_s)
        note = f"{100 * self.share:g}% of latencies are below {latency_s:.4g} s, the target is {self.target_s:.4g} s"
        if abs(latency_s - self.target_s) <= self.tolerance * self.target_s:
            return Hold(reason=note, figures={"latency_s": latency_s}, wanted={n: state.layout[n] for n in state.graph.scalable})
        utilization = utilization_for(latency_s, self.target_s, busiest)
        decision = replace(self.base, utilization=utilization)(samples, state, now_s)
        figures = {**decision.figures, "latency_s": latency_s, "utilization": utilization}
        return replace(decision, reason=f"{note}, so {utilization:.3g} busy; {decision.reason}", figures=figures)


def _busiest(samples: JobSample, state: ScalingState) -> float:
    """The largest share of time in which processes are busy. In a worker what the vertices do there adds up."""
    graph = state.graph
    alone = [samples.vertices[name].busy_share for name in graph.scalable if name in samples.vertices and not graph.by_name[name].shares]
    together = sum(samples.vertices[name].busy_share for name in graph.sharing if name in samples.vertices)
    return max([*alone, together])
