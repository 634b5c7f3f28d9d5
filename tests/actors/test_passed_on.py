"""What a replica passes on to the new owner of its key-groups, of what waits in its queues."""

from __future__ import annotations

import random

from rayad.actors.lead.layouts import prepared, target
from rayad.actors.local.bus import VirtualClock
from rayad.actors.plane.batch_codec import encode_batch
from rayad.progress import Timestamp
from tests.actors.one_worker import worker_of_two


def test_what_was_restored_is_passed_on_before_what_has_arrived() -> None:
    """So rare that seeds do not find it: a step of a change reaches a replica that has not consumed yet what was in flight at the cut."""
    made = worker_of_two(VirtualClock(random.Random(0)))
    _, counts = made.plan.stages
    (edge,) = made.plan.edges_into(counts.id)
    host, wanted = made.hosts[counts.id], {counts.id: 2}
    restored, arrived = (b"".join(encode_batch(Timestamp(0), [(n, word) for n in range(20)])) for word in ("restored", "arrived"))
    host.place.core.count_waiting(edge.id, Timestamp(0))
    host.arrived.restored.append((edge.id, restored))
    host.arrived.regular.append((edge.id, 0, arrived))
    before = made.plan.laid_out(prepared(made.plan, wanted))
    host.rescale.prepare(1, before.layout, (), {}, {}, frozenset(wanted))
    host.rescale.relayout(1, target(before, wanted))
    passed_on = [transfer.batch for _, transfer in host.rescale.migration.outgoing if transfer.kind == "batch"]
    assert [{word for _, word in batch} for batch in passed_on] == [{"restored"}, {"arrived"}]
