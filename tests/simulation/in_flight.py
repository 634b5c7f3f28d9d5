"""What senders count as in flight is somewhere: on its way, waiting at its receiver, consumed and not granted,
or granted on its way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rayad.actors.local.local_job import LocalJob
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.protocol import Kind, unpack_credit
from rayad.actors.worker.payloads import Ended, credit_of
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.snapshots.barrier import Barrier

Channel = tuple[int, int, int]
"""An edge, the sending replica, the receiving one."""


def check_in_flight(job: LocalJob) -> None:
    """Raise AssertionError unless it is, and is no more than the window and one batch."""
    hosts = {host.place.at: host for host in job.runtime.processes.hosts()}
    sizes: dict[Channel, list[int]] = {}
    back: dict[Channel, list[Grant]] = {}
    for channel, kind, payload in _on_the_way(job):
        if kind == Kind.DATA:
            sizes.setdefault(channel, []).append(credit_of(payload))
        elif kind == Kind.CREDIT:
            batches, size, _ = unpack_credit(payload)
            back.setdefault(channel, []).append(Grant(batches, size))
    edges = job.plan.edge_by_id
    for host in hosts.values():
        if host.is_finished:
            continue  # nothing is taken there any more
        for (edge, replica), window in host.place.sender.windows.items():
            window.check_invariants()
            receiver = hosts.get((edges[edge].target, replica))  # type: ignore[call-overload]
            if receiver is None:
                continue  # not there yet, or not any more
            channel = (edge, host.place.replica, replica)
            waiting = [*_waiting(receiver, channel), *sizes.get(channel, ())]
            known = _sum(waiting, _consumed(receiver, channel), back.get(channel, []))
            who = f"{edges[edge].name} {host.name}->[{replica}]"
            if known != window.in_flight:
                raise AssertionError(f"{who}: the sender counts {window.in_flight} in flight, but there is {known}")
            if len(waiting) > window.batches or sum(waiting[:-1]) >= window.bytes:
                raise AssertionError(f"{who}: batches of {waiting} bytes are on their way, {window}")


def _on_the_way(job: LocalJob) -> Iterator[tuple[Channel, int, Any]]:
    processes, edges = job.runtime.processes, job.plan.edge_by_id
    places = processes.places
    for (source, target), waiting in processes.bus.ways.items():
        expected = processes.bus.links[target].expected.get(source, 0)
        for frame in waiting:
            if frame.incarnation >= expected and frame.kind in (Kind.DATA, Kind.CREDIT) and source[0] in "vw":
                edge, is_back = edges[frame.channel], frame.kind == Kind.CREDIT
                ends = (target, source) if is_back else (source, target)
                channel = (edge.id, places.replica_at(ends[0], edge.source), places.replica_at(ends[1], edge.target))
                yield channel, frame.kind, frame.payload  # type: ignore[misc]
    for worker in processes.workers.values():
        for to, kind, edge_id, replica, payload in worker.handed_over:
            mine = to.place.replica  # type: ignore[attr-defined]
            yield ((edge_id, mine, replica) if kind == Kind.CREDIT else (edge_id, replica, mine)), kind, payload


def _waiting(receiver: ReplicaHost, channel: Channel) -> list[int]:
    """The batches that have arrived."""
    arrived = receiver.arrived
    mine = [payload for edge, source, payload in (*arrived.held, *arrived.regular) if (edge, source) == channel[:2]]
    return [credit_of(payload) for payload in mine if not isinstance(payload, (Barrier, Ended))]


def _consumed(receiver: ReplicaHost, channel: Channel) -> list[Grant]:
    """What has been consumed, or is held by a change of layout, and is not granted."""
    tokens = list(receiver.core.done_tokens)
    migration = receiver.rescale.migration
    if migration is not None:
        tokens += migration.held_tokens()
    tokens += [entry[3] for entry in receiver.rescale.released if entry[3] is not None]
    window = receiver.place.granting.windows.get(channel[:2])
    found = [Grant(1, size) for edge, source, size in tokens if (edge, source) == channel[:2]]
    return [*found, Grant(window.consumed_batches, window.consumed_bytes)] if window is not None else found


def _sum(waiting: list[int], consumed: list[Grant], back: list[Grant]) -> Grant:
    grants = [*(Grant(1, size) for size in waiting), *consumed, *back]
    return Grant(sum(grant.batches for grant in grants), sum(grant.bytes for grant in grants))


__all__ = ["check_in_flight"]
