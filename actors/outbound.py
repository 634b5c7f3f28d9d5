"""What a replica has on its way out: credits on regular channels, a bounded queue before each socket of a feedback channel.

A regular channel sends while its window has room; what an activation produced beyond that waits here, and the replica starts no other
activation until it is gone. A feedback channel never holds its replica up. Its receiver takes everything off the socket and spills;
should the receiver be in one long activation, the batches wait here, a share of the job's bound for spilling in the plane and the rest
on disk. FIFO per channel in either case.
"""

from __future__ import annotations

import struct
import time as clock
from collections import deque
from typing import Any

from rayad.actors.credits import SendWindow
from rayad.actors.plane import Plane
from rayad.actors.protocol import Kind, replica_name, unpack_credit
from rayad.actors.spill import SpillingQueue
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan

FEEDBACK_QUEUE_BYTES_MIN = 1 << 20
"""How much of a feedback channel may wait in the plane for its socket, at the least: what fits into a socket's buffer or two."""
_EDGE = struct.Struct("<II")
"""Before a batch on disk: the edge, and whether it is a barrier instead."""


def payload_bytes(parts: list[Any]) -> int:
    """Bytes of an encoded batch, as its receiver counts them."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


class MutableOutbound:
    """The sending side of one replica's channels to other replicas."""

    def __init__(self, plane: Plane, plan: Plan, stage: int, config: RunConfig) -> None:
        self._plane = plane
        self._directory = config.spill_directory
        self._config = config
        self._edges = {edge.id: edge for edge in plan.edges if edge.source == stage}
        self._windows: dict[tuple[int, str], SendWindow] = {}
        self._waiting: dict[tuple[int, str], deque[list[Any] | bytes]] = {}  # bytes: a barrier, which needs no credit
        self._spilled: dict[str, SpillingQueue] = {}
        self._peers: dict[tuple[int, int], str] = {}
        self._held_up_since_s = 0.0
        self.held_up_s = 0.0
        self.spilled_batches = 0
        for edge in self._edges.values():
            for replica in range(plan.stage(edge.target).parallelism):
                peer = self._peers[edge.id, replica] = replica_name(edge.target, replica)
                if not edge.is_feedback:
                    self._windows[edge.id, peer] = SendWindow(config.window_batches, int(config.window_bytes))
        loops = len(self._peers) - len(self._windows)
        self._feedback_bytes_max = max(FEEDBACK_QUEUE_BYTES_MIN, int(config.spill_memory_bytes) // max(1, loops))

    def open(self, peer: str, plan: Plan) -> None:
        """A replica has come: its channels are fresh."""
        for edge in self._edges.values():
            for replica in range(plan.stage(edge.target).parallelism):
                if replica_name(edge.target, replica) == peer:
                    self._peers[edge.id, replica] = peer
                    if not edge.is_feedback:
                        self._windows[edge.id, peer] = SendWindow(self._config.window_batches, int(self._config.window_bytes))

    def close_all_but(self, plan: Plan) -> None:
        """Replicas have gone that this plan does not have: nothing is on the way to them."""
        for edge, replica in [key for key in self._peers if key[1] >= plan.stage(self._edges[key[0]].target).parallelism]:
            self._windows.pop((edge, self._peers.pop((edge, replica))), None)

    @property
    def is_held_up(self) -> bool:
        """Whether something waits for credit: then no activation may start."""
        return bool(self._waiting)

    @property
    def is_spilled(self) -> bool:
        """Whether batches for a feedback wait on disk."""
        return bool(self._spilled)

    def peer(self, edge: int, replica: int) -> str:
        """The plane name of a replica of an edge's target."""
        return self._peers[edge, replica]

    def room(self, edge: int, replica: int) -> int:
        """How many batches more a channel takes; negative when some wait already."""
        key = (edge, self._peers[edge, replica])
        window = self._windows.get(key)
        return 0 if window is None else window.batches - window.in_flight_batches - len(self._waiting.get(key, ()))

    def send(self, edge: int, peer: str, parts: list[Any]) -> int:
        """Send an encoded batch now, or as soon as its channel has room. Gives its bytes."""
        size = payload_bytes(parts)
        key = (edge, peer)
        window = self._windows.get(key)
        if window is None:
            self._send_feedback(edge, peer, parts)
            return size
        waiting = self._waiting.get(key)
        if waiting is None and window.may_send():
            window.on_send(size)
            self._plane.send(peer, Kind.DATA, edge, parts)
            return size
        if waiting is None:
            if not self._waiting:
                self._held_up_since_s = clock.perf_counter()
            waiting = self._waiting[key] = deque()
        waiting.append(parts)
        return size

    def on_credit(self, edge: int, peer: str, payload: Any) -> None:
        """The receiver has granted credit: send what waits for it."""
        key = (edge, peer)
        window = self._windows.get(key)
        if window is None:
            return  # of a replica that has retired
        window.on_credit(*unpack_credit(payload))
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        while waiting and (window.may_send() or isinstance(waiting[0], bytes)):
            parts = waiting.popleft()
            if isinstance(parts, bytes):
                self._plane.send(peer, Kind.BARRIER, edge, parts)
                continue
            window.on_send(payload_bytes(parts))
            self._plane.send(peer, Kind.DATA, edge, parts)
        if not waiting:
            del self._waiting[key]
            if not self._waiting:
                self.held_up_s += clock.perf_counter() - self._held_up_since_s

    def send_barrier(self, edge: int, peer: str, payload: bytes, *, overtake: bool) -> None:
        """Send a barrier behind all that was sent on a channel; with ``overtake`` before what waits here for credit."""
        waiting = self._waiting.get((edge, peer))
        if waiting is not None and not overtake:
            waiting.append(payload)
        elif peer in self._spilled and self._edges[edge].is_feedback:
            self._spilled[peer].push(_EDGE.pack(edge, 1) + payload)
        else:
            self._plane.send(peer, Kind.BARRIER, edge, payload)

    def waiting_batches(self) -> list[tuple[int, str, bytes]]:
        """``(edge, peer, encoded batch)`` of all that waits for credit, in the order of each channel."""
        return [
            (edge, peer, b"".join(parts)) for (edge, peer), waiting in self._waiting.items() for parts in waiting if isinstance(parts, list)
        ]

    def _send_feedback(self, edge: int, peer: str, parts: list[Any]) -> None:
        if peer not in self._spilled:
            if self._plane.queued_bytes(peer) < self._feedback_bytes_max:
                self._plane.send(peer, Kind.DATA, edge, parts)
                return
            self._spilled[peer] = SpillingQueue(0, self._directory)
        self.spilled_batches += 1
        self._spilled[peer].push(b"".join([_EDGE.pack(edge, 0), *parts]))

    def drain(self) -> None:
        """Send spilled feedback batches as far as their sockets take them."""
        for peer in list(self._spilled):
            queue = self._spilled[peer]
            while len(queue) and self._plane.queued_bytes(peer) < self._feedback_bytes_max:
                item = memoryview(queue.pop())
                edge, is_barrier = _EDGE.unpack_from(item)
                self._plane.send(peer, Kind.BARRIER if is_barrier else Kind.DATA, edge, item[_EDGE.size :])
            if not len(queue):
                queue.close()
                del self._spilled[peer]

    def describe(self) -> list[str]:
        """What waits, for ``explain_stuck``."""
        waiting = self._waiting.items()
        lines = [f"{len(parts)} batches without credit on {self._edges[edge].name} to {peer}" for (edge, peer), parts in waiting]
        lines.extend(f"{len(queue)} batches of a feedback to {peer} wait on disk for its socket" for peer, queue in self._spilled.items())
        return lines

    def close(self) -> None:
        """Give up the disk space."""
        for queue in self._spilled.values():
            queue.close()
