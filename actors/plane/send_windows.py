"""What a replica has on its way out: a send window on each regular channel, a bounded queue before each socket of a feedback channel.

A regular channel sends while its window has room; what an activation produced beyond that waits here, and the replica starts no other
activation until it is gone. A feedback channel never blocks its replica. Its receiver takes everything off the socket and spills; while
the receiver is in one long activation, batches wait here: up to a share of the job's memory bound for spilling in the plane, the rest
on disk. FIFO per channel in either case.

Pure: the carrier of the frames is an argument (``carrier.py``), and both runtimes drive it. It spills to disk through
:class:`SpillingQueue` alone.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.credits import SendWindow
from rayad.actors.plane.on_demand import DemandPool
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.plane.spilling_queue import SpillingQueue
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, PlanEdge
from rayad.progress import Timestamp

_EDGE = struct.Struct("<II")
"""Header of an item on disk: the edge, and whether it is a batch or a mark (a barrier, or the marker of a change of layout)."""
_MARK = -1


def window_of(edge: PlanEdge | None, config: RunConfig) -> int:
    """How many batches may be in flight on a channel of an edge; None: on the channel from the driver."""
    return config.window_batches if edge is None or edge.buffer is None else min(edge.buffer, config.window_batches)


def _nobody(*_: Any) -> None:
    """Nobody listens."""


class SendWindows:
    """The sending side of one replica's channels to other replicas.

    Args:
        carrier: what carries frames.
        plan, stage: the stage whose channels these are.
        config: the run's windows, and how much may wait in memory for a feedback channel.
    """

    def __init__(self, carrier: Carrier, plan: Plan, stage: int, config: RunConfig) -> None:
        self._carrier = carrier
        self._directory = config.spill_directory
        self._config = config
        self._edges = {edge.id: edge for edge in plan.edges_from(stage)}
        self.windows: dict[tuple[int, str], SendWindow] = {}
        """The windows of the regular channels, by edge and peer."""
        self._waiting: dict[tuple[int, str], deque[tuple[Any, int]]] = {}  # each with its bytes, or _MARK for a mark, which needs no credit
        self._spilled: dict[str, SpillingQueue] = {}
        self._peers: dict[tuple[int, int], str] = {}
        self._pools: dict[int, DemandPool] = {}
        self._full: set[int] = set()  # edges whose pool is full
        self._rows: dict[tuple[int, str], deque[int]] = {}  # records of each on-demand batch in flight; 0: not known
        self.joined: Callable[[int, Timestamp, int], None] = _nobody
        """Called when on-demand batches are joined into one: (edge, time, how many fewer there are now)."""
        self.sent: Callable[[int, int], None] = _nobody
        """Called when an on-demand batch is sent: (edge, bytes)."""
        self.held_up: Callable[[bool], None] = _nobody
        """Called with True when the replica becomes blocked, with False when it no longer is."""
        self.spilled_batches = 0
        self._replicas = {edge.id: plan.stage(edge.target).parallelism for edge in self._edges.values()}
        for edge in self._edges.values():
            for replica in range(self._replicas[edge.id]):
                peer = self._peers[edge.id, replica] = ReplicaId(edge.target, replica).plane_name
                if not edge.is_feedback:
                    self.windows[edge.id, peer] = SendWindow(window_of(edge, config), int(config.window_bytes))
            if edge.is_on_demand:
                self._pools[edge.id] = DemandPool(keeps_batches=edge.keeps_batches)
        loops = len(self._peers) - len(self.windows)
        self._feedback_bytes_max = max(carrier.socket_bytes, int(config.spill_memory_bytes) // max(1, loops))

    def open(self, peer: str, plan: Plan) -> None:
        """Open the channels to a replica that has been admitted."""
        for edge in self._edges.values():
            for replica in range(plan.stage(edge.target).parallelism):
                if ReplicaId(edge.target, replica).plane_name == peer:
                    self._peers[edge.id, replica] = peer
                    self._rows.pop((edge.id, peer), None)
                    if not edge.is_feedback:
                        self.windows[edge.id, peer] = SendWindow(window_of(edge, self._config), int(self._config.window_bytes))

    def configure(self, config: RunConfig) -> None:
        """Change the windows, and send what now has room."""
        self._config = config
        for (edge, peer), window in self.windows.items():
            window.resize(window_of(self._edges[edge], config), int(config.window_bytes))
            self._send_waiting((edge, peer), window)
        for edge in self._pools:
            self._serve(edge)

    def close_all_but(self, plan: Plan) -> None:
        """Close the channels to replicas that are not in this plan: they have ended, and nothing is in flight to them."""
        self.lay_out(plan)
        for edge, replica in [key for key in self._peers if key[1] >= plan.stage(self._edges[key[0]].target).parallelism]:
            peer = self._peers.pop((edge, replica))
            self.windows.pop((edge, peer), None)
            self._rows.pop((edge, peer), None)

    def lay_out(self, plan: Plan) -> None:
        """From now on send on-demand batches to the receivers of this plan."""
        self._replicas = {edge.id: plan.stage(edge.target).parallelism for edge in self._edges.values()}
        for edge in self._pools:
            self._serve(edge)

    @property
    def is_held_up(self) -> bool:
        """Whether something waits for credit: then no activation may start."""
        return bool(self._waiting or self._full)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here."""
        return not (self._waiting or self._spilled or any(len(pool) for pool in self._pools.values()))

    @property
    def is_spilled(self) -> bool:
        """Whether batches for a feedback wait on disk."""
        return bool(self._spilled)

    def peer(self, edge: int, replica: int) -> str:
        """The plane name of a replica of an edge's target."""
        return self._peers[edge, replica]

    def room(self, edge: int, replica: int) -> int:
        """How many more batches a channel takes; negative when batches already wait."""
        key = (edge, self._peers[edge, replica])
        window = self.windows.get(key)
        return 0 if window is None else window.batches - window.in_flight_batches - len(self._waiting.get(key, ()))

    def send(self, edge: int, peer: str, payload: Any) -> int:
        """Send an encoded batch now, or as soon as its channel has room. Gives its bytes."""
        size = self._carrier.size(payload)
        key = (edge, peer)
        window = self.windows.get(key)
        if window is None:
            self._send_feedback(edge, peer, payload)
            return size
        waiting = self._waiting.get(key)
        if waiting is None and window.may_send():
            self._transmit(key, window, payload, size)
            return size
        if waiting is None:
            self._note_held_up()
            waiting = self._waiting[key] = deque()
        waiting.append((payload, size))
        return size

    def _transmit(self, key: tuple[int, str], window: SendWindow, payload: Any, size: int, rows: int = 0) -> None:
        window.on_send(size)
        edge, peer = key
        if edge in self._pools:
            self._rows.setdefault(key, deque()).append(rows)
        self._carrier.send(peer, Kind.DATA, edge, payload)

    def _note_held_up(self) -> None:
        """Report that the replica becomes blocked, if it was not."""
        if not self.is_held_up:
            self.held_up(True)

    def _note_free(self) -> None:
        """Report that the replica is no longer blocked, if nothing else waits."""
        if not self.is_held_up:
            self.held_up(False)

    # -- on demand: see on_demand.py -------------------------------------------------------
    def piece_rows(self, edge: int, batch: Any) -> int:
        """The number of records in each piece into which an on-demand batch is to be cut."""
        return self._pools[edge].piece_rows(batch, len(self._receivers(edge)))

    def offer(self, edge: int, time: Timestamp, batch: Any) -> None:
        """Send a batch to whichever receiver has room first."""
        self._pools[edge].push(time, batch)
        self._serve(edge)

    def _receivers(self, edge: int) -> list[str]:
        return [self._peers[edge, replica] for replica in range(self._replicas[edge])]

    def _serve(self, edge: int) -> None:
        """Send what waits to the receivers with the most room, as far as there is room."""
        pool, receivers = self._pools[edge], self._receivers(edge)
        free = [peer for peer in receivers if (edge, peer) not in self._waiting and self.windows[edge, peer].may_send()]
        while len(pool) and free:
            peer = min(free, key=lambda peer: self.windows[edge, peer].in_flight_batches)
            piece = pool.pop()
            if piece.batches > 1:
                self.joined(edge, piece.time, piece.batches - 1)
            payload = self._carrier.encode(piece.time, piece.batch)
            size = self._carrier.size(payload)
            self._transmit((edge, peer), self.windows[edge, peer], payload, size, piece.rows)
            self.sent(edge, size)
            if not self.windows[edge, peer].may_send():
                free.remove(peer)
        if pool.is_full(len(receivers)) is not (edge in self._full):
            if edge in self._full:
                self._full.remove(edge)
                self._note_free()
            else:
                self._note_held_up()
                self._full.add(edge)

    def _bind(self, edge: int) -> None:
        """Choose a receiver for everything that waits: it must be sent, or logged, before a barrier."""
        pool, receivers = self._pools[edge], self._receivers(edge)
        for _ in range(len(pool)):
            time, batch = pool.pop_one()
            peer = min(receivers, key=lambda peer: self._load(edge, peer))
            self.sent(edge, self.send(edge, peer, self._carrier.encode(time, batch)))
        if edge in self._full:
            self._full.remove(edge)
            self._note_free()

    def _load(self, edge: int, peer: str) -> int:
        return self.windows[edge, peer].in_flight_batches + len(self._waiting.get((edge, peer), ()))

    def on_credit(self, edge: int, peer: str, batches: int, size_bytes: int, busy_s: float) -> None:
        """Take credit from a receiver, which has worked ``busy_s`` on what it grants back, and send what waits for it."""
        key = (edge, peer)
        window = self.windows.get(key)
        if window is None:
            return  # from a replica that has retired
        window.on_credit(batches, size_bytes)
        if edge in self._pools:
            rows = [self._rows[key].popleft() for _ in range(batches)]
            if all(rows):
                self._pools[edge].learn(sum(rows), busy_s)
        self._send_waiting(key, window)
        if edge in self._pools:
            self._serve(edge)

    def _send_waiting(self, key: tuple[int, str], window: SendWindow) -> None:
        edge, peer = key
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        while waiting and (waiting[0][1] == _MARK or window.may_send()):
            payload, size = waiting.popleft()
            if size == _MARK:
                self._carrier.send(peer, Kind.BARRIER, edge, payload)
            else:
                self._transmit(key, window, payload, size)
        if not waiting:
            del self._waiting[key]
            self._note_free()

    def send_mark(self, edge: int, peer: str, payload: Any, *, overtake: bool, binds: bool = True) -> None:
        """Send a barrier or marker behind everything sent on a channel; with ``overtake`` ahead of what waits here for credit.

        Without ``binds`` the on-demand batches that wait are sent behind it, perhaps to a receiver that this mark is not sent to.
        """
        if binds and edge in self._pools:
            self._bind(edge)
        waiting = self._waiting.get((edge, peer))
        if waiting is not None and not overtake:
            waiting.append((payload, _MARK))
        elif peer in self._spilled and self._edges[edge].is_feedback:
            self._spilled[peer].push(_EDGE.pack(edge, 1) + self._carrier.freeze(payload, is_mark=True))
        else:
            self._carrier.send(peer, Kind.BARRIER, edge, payload)

    def waiting_batches(self) -> list[tuple[int, str, bytes]]:
        """``(edge, peer, encoded batch)`` of all that waits for credit, in the order of each channel."""
        freeze = self._carrier.freeze
        return [
            (edge, peer, freeze(payload, is_mark=False))
            for (edge, peer), waiting in self._waiting.items()
            for payload, size in waiting
            if size != _MARK
        ]

    def _send_feedback(self, edge: int, peer: str, payload: Any) -> None:
        if peer not in self._spilled:
            if self._carrier.queued_bytes(peer) < self._feedback_bytes_max:
                self._carrier.send(peer, Kind.DATA, edge, payload)
                return
            self._spilled[peer] = SpillingQueue(0, self._directory)
        self.spilled_batches += 1
        self._spilled[peer].push(_EDGE.pack(edge, 0) + self._carrier.freeze(payload, is_mark=False))

    def drain(self) -> None:
        """Send spilled feedback batches as far as their sockets take them."""
        for peer in list(self._spilled):
            queue = self._spilled[peer]
            while len(queue) and self._carrier.queued_bytes(peer) < self._feedback_bytes_max:
                item = memoryview(queue.pop())
                edge, is_mark = _EDGE.unpack_from(item)
                payload = self._carrier.thaw(item[_EDGE.size :], is_mark=bool(is_mark))
                self._carrier.send(peer, Kind.BARRIER if is_mark else Kind.DATA, edge, payload)
            if not len(queue):
                queue.close()
                del self._spilled[peer]

    def describe(self) -> list[str]:
        """What waits, for ``explain_stuck``."""
        waiting = self._waiting.items()
        lines = [f"{len(parts)} batches without credit on {self._edges[edge].name} to {peer}" for (edge, peer), parts in waiting]
        pools = [(self._edges[edge].name, len(pool)) for edge, pool in self._pools.items() if len(pool)]
        lines.extend(f"{batches} batches without credit on {name} to any replica" for name, batches in pools)
        lines.extend(f"{len(queue)} batches of a feedback to {peer} wait on disk for its socket" for peer, queue in self._spilled.items())
        return lines

    def without_credit(self) -> dict[str, int]:
        """How many batches wait for credit of a peer; those that any of several may take count for each."""
        out: dict[str, int] = {}
        for (_, peer), parts in self._waiting.items():
            out[peer] = out.get(peer, 0) + len(parts)
        for edge, peer in self.windows:
            pool = self._pools.get(edge)
            if pool is not None and len(pool):
                out[peer] = out.get(peer, 0) + len(pool)
        return out

    @property
    def disk_bytes(self) -> int:
        """What waits on disk."""
        return sum(queue.disk_bytes for queue in self._spilled.values())

    def close(self) -> None:
        """Give up the disk space."""
        for queue in self._spilled.values():
            queue.close()
