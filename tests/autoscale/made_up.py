"""Samples of made-up rates: a dataflow in its steady state, without simulating how it got there."""

from __future__ import annotations

from collections.abc import Mapping

from rayad.autoscale import JobSample, ReplicaSample, ScalingGraph, ScalingState, Spread, VertexSample, solve_rates

WINDOW_S = 10.0


def sample_of(
    graph: ScalingGraph,
    layout: Mapping[str, int],
    consumed: Mapping[str, float],
    true_rate: Mapping[str, float],
    selectivity: Mapping[int, float],
    *,
    queues: Mapping[str, int] | None = None,
    backpressured: Mapping[str, float] | None = None,
    since_s: float = 0.0,
) -> JobSample:
    """The window in which each vertex consumed so many items a second (of a broadcast one for all copies), at so many a busy second."""
    vertices = {}
    for name in graph.by_name:
        count = layout[name]
        rate, copies = consumed.get(name, 0.0), 0.0
        incoming = graph.incoming[name]
        arriving = {e.id: consumed.get(e.source, 0.0) * selectivity[e.id] for e in incoming}
        if incoming and sum(arriving.values()) > 0.0:
            copies = rate * sum(arriving[e.id] for e in incoming if e.spread is Spread.COPIED) / sum(arriving.values())
        each = (rate - copies) / count + copies
        busy = each / true_rate[name] if name in true_rate else 0.0
        assert busy <= 1.0 + 1e-9, f"{name} cannot consume {rate} a second with {count} replicas"
        held = min((backpressured or {}).get(name, 0.0), 1.0 - busy)
        sent = {e.id: (rate * selectivity[e.id] * WINDOW_S / count, 0) for e in graph.outgoing[name]}
        received = {
            e.id: (arriving[e.id] / max(1e-300, sum(arriving.values())) * rate * WINDOW_S / (1 if e.spread is Spread.COPIED else count), 0)
            for e in incoming
        }
        replica = {
            "busy_share": busy, "idle_share": 1.0 - busy - held, "backpressured_share": held, "items_in": each * WINDOW_S, "bytes_in": 0,
            "items_out": sum(items for items, _ in sent.values()), "bytes_out": 0, "sent": sent, "received": received,
            "queue_items": (queues or {}).get(name, 0) // count,
        }  # fmt: skip
        vertices[name] = VertexSample(
            name,
            tuple(ReplicaSample(name, i, since_s, since_s + WINDOW_S, **replica) for i in range(count)),  # type: ignore[arg-type]
        )
    return JobSample(since_s, since_s + WINDOW_S, vertices)


def steady_sample(
    graph: ScalingGraph,
    layout: Mapping[str, int],
    outside: Mapping[str, float],
    true_rate: Mapping[str, float],
    selectivity: Mapping[int, float],
    *,
    since_s: float = 0.0,
) -> JobSample:
    """The steady state under a load: all of it, or as much as the narrowest vertex lets through, with sources held back for the rest."""
    rates = solve_rates(graph, selectivity, outside).total
    through = min([1.0, *(layout[n] * true_rate[n] / rate for n, rate in rates.items() if rate > 0.0)])
    held = dict.fromkeys(outside, 1.0) if through < 1.0 else {}
    consumed = {name: through * rate for name, rate in rates.items()}
    return sample_of(graph, layout, consumed, true_rate, selectivity, backpressured=held, since_s=since_s)


def state_of(graph: ScalingGraph, layout: Mapping[str, int]) -> ScalingState:
    return ScalingState(graph, dict(layout), 0.0)
