"""What the replicas of the local runtime have counted, as readings: the clock counts the job's steps.

Items are those of the shared core. A replica is busy in each step that is its own, back-pressured while it is held up, idle otherwise. As
one step is one event somewhere, shares of time tell who does most of the events, not who takes longest. Bytes are those that windows go by,
estimates. Queues are exact, but that what came round a loop counts as one item for each batch.
"""

from __future__ import annotations

from dataclasses import replace

from rayad.actors.local.network import Network, Where
from rayad.actors.plane.batch_codec import batch_len
from rayad.actors.process.size_estimate import estimate_bytes
from rayad.autoscale.statistics import BACKPRESSURED, BUSY, IDLE, ReplicaReading
from rayad.dataflow.logical_graph import NodeKind


def readings_of(network: Network) -> list[ReplicaReading]:
    """A reading of every replica, cumulative since the job began or resumed from a snapshot."""
    began = network.stuck.began
    total = network.steps - began
    waiting: dict[Where, int] = {}
    batches_waiting: dict[Where, int] = {}
    for (edge, _, replica), batches in network.channels.items():
        at = (network.edges[edge].target, replica)
        waiting[at] = waiting.get(at, 0) + sum(batch_len(batch) for time, batch, _ in batches if time is not None)
        batches_waiting[at] = batches_waiting.get(at, 0) + sum(time is not None for time, _, _ in batches)
    for at, ends in network.ends.items():
        waiting[at] = waiting.get(at, 0) + len(ends.feedback)
        batches_waiting[at] = batches_waiting.get(at, 0) + len(ends.feedback)
    out = []
    for at, core in network.cores.items():
        counters = core.outputs.counters
        held = min(total, network.stuck.steps_of(at))
        seconds = [0.0, 0.0, 0.0]
        seconds[BACKPRESSURED] = float(held)
        seconds[BUSY] = float(min(total - held, core.batches_in - core.counted_before[0]))
        seconds[IDLE] = total - seconds[BUSY] - seconds[BACKPRESSURED]
        reading = counters.reading(
            0.0,
            queue_items=waiting.get(at, 0),
            queue_batches=batches_waiting.get(at, 0),
            state_bytes=estimate_bytes(core.vertex) if core.vertex is not None else 0,
        )
        is_start = core.stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)
        out.append(
            replace(
                reading,
                started_s=float(began),
                now_s=float(network.steps),
                busy_s=seconds[BUSY],
                idle_s=seconds[IDLE],
                backpressured_s=seconds[BACKPRESSURED],
                read=(core.records_in - core.counted_before[1], 0) if is_start else (0, 0),
            )
        )
    return out
