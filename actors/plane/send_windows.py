"""What a replica has on its way out: a send window on each regular channel, a bounded queue before each socket of a feedback channel.

A regular channel sends while its window has room; what an activation produced beyond that waits here, and the replica starts no other
activation until it is gone. A feedback channel never blocks its replica. Its receiver takes everything off the socket and spills; while
the receiver is in one long activation, batches wait here: up to a share of the job's memory bound for spilling in the plane, the rest
on disk. FIFO per channel in either case.

Pure: the carrier of the frames is an argument (``carrier.py``), and both runtimes drive it. It spills to disk through
:class:`SpillingQueue` alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.credits import SendWindow
from rayad.actors.plane.on_demand import DemandPool
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.spilling_queue import SpillingQueue
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, PlanEdge
from rayad.progress import Timestamp

Channel = tuple[int, int]
"""An edge, and the replica of its target."""
_MARK = -1
_ON_DISK = (b"\0", b"\1")
"""The first byte of an item on disk: of a batch, of a mark (a barrier, or the marker of a change of layout)."""


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
        self.windows: dict[Channel, SendWindow] = {}
        """The windows of the regular channels."""
        self._waiting: dict[Channel, deque[tuple[Any, int]]] = {}  # each with its bytes, or _MARK for a mark, which needs no credit
        self._spilled: dict[Channel, SpillingQueue] = {}
        self._pools: dict[int, DemandPool] = {}
        self._full: set[int] = set()  # edges whose pool is full
        self._rows: dict[Channel, deque[int]] = {}  # records of each on-demand batch in flight; 0: not known
        self.joined: Callable[[int, Timestamp, int], None] = _nobody
        """Called when on-demand batches are joined into one: (edge, time, how many fewer there are now)."""
        self.sent: Callable[[int, int], None] = _nobody
        """Called when an on-demand batch is sent: (edge, bytes)."""
        self.held_up: Callable[[bool], None] = _nobody
        """Called with True when the replica becomes blocked, with False when it no longer is."""
        self.spilled_batches = 0
        self._replicas = {edge.id: plan.stage(edge.target).parallelism for edge in self._edges.values()}
        loops = 0
        for edge in self._edges.values():
            for replica in range(self._replicas[edge.id]):
                if edge.is_feedback:
                    loops += 1
                else:
                    self.windows[edge.id, replica] = SendWindow(window_of(edge, config), int(config.window_bytes))
            if edge.is_on_demand:
                self._pools[edge.id] = DemandPool(keeps_batches=edge.keeps_batches)
        self._feedback_bytes_max = max(carrier.socket_bytes, int(config.spill_memory_bytes) // max(1, loops))

    def open(self, stage: int, replica: int) -> None:
        """Open the channels to a replica that has been admitted."""
        for edge in self._edges.values():
            if edge.target == stage:
                self._rows.pop((edge.id, replica), None)
                if not edge.is_feedback:
                    self.windows[edge.id, replica] = SendWindow(window_of(edge, self._config), int(self._config.window_bytes))

    def configure(self, config: RunConfig) -> None:
        """Change the windows, and send what now has room."""
        self._config = config
        for channel, window in self.windows.items():
            window.resize(window_of(self._edges[channel[0]], config), int(config.window_bytes))
            self._send_waiting(channel, window)
        for edge in self._pools:
            self._serve(edge)

    def close_all_but(self, plan: Plan) -> None:
        """Close the channels to replicas that are not in this plan: they have ended, and nothing is in flight to them."""
        self.lay_out(plan)
        for channel in [one for one in self.windows if one[1] >= plan.stage(self._edges[one[0]].target).parallelism]:
            del self.windows[channel]
            self._rows.pop(channel, None)

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

    def room(self, edge: int, replica: int) -> int:
        """How many more batches a channel takes; negative when batches already wait."""
        channel = (edge, replica)
        window = self.windows.get(channel)
        return 0 if window is None else window.batches - window.in_flight_batches - len(self._waiting.get(channel, ()))

    def send(self, edge: int, replica: int, payload: Any) -> int:
        """Send an encoded batch now, or as soon as its channel has room. Gives its bytes."""
        size = self._carrier.size(payload)
        channel = (edge, replica)
        window = self.windows.get(channel)
        if window is None:
            self._send_feedback(channel, payload)
            return size
        waiting = self._waiting.get(channel)
        if waiting is None and window.may_send():
            self._transmit(channel, window, payload, size)
            return size
        if waiting is None:
            self._note_held_up()
            waiting = self._waiting[channel] = deque()
        waiting.append((payload, size))
        return size

    def _transmit(self, channel: Channel, window: SendWindow, payload: Any, size: int, rows: int = 0) -> None:
        window.on_send(size)
        edge, replica = channel
        if edge in self._pools:
            self._rows.setdefault(channel, deque()).append(rows)
        self._carrier.send(edge, replica, Kind.DATA, payload)

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
        return self._pools[edge].piece_rows(batch, self._replicas[edge])

    def offer(self, edge: int, time: Timestamp, batch: Any) -> None:
        """Send a batch to whichever receiver has room first."""
        self._pools[edge].push(time, batch)
        self._serve(edge)

    def _serve(self, edge: int) -> None:
        """Send what waits to the receivers with the most room, as far as there is room."""
        pool, receivers, windows = self._pools[edge], self._replicas[edge], self.windows
        free = [one for one in range(receivers) if (edge, one) not in self._waiting and windows[edge, one].may_send()]
        while len(pool) and free:
            replica = min(free, key=lambda one: windows[edge, one].in_flight_batches)
            piece = pool.pop()
            if piece.batches > 1:
                self.joined(edge, piece.time, piece.batches - 1)
            payload = self._carrier.encode(edge, replica, piece.time, piece.batch)
            size = self._carrier.size(payload)
            self._transmit((edge, replica), windows[edge, replica], payload, size, piece.rows)
            self.sent(edge, size)
            if not windows[edge, replica].may_send():
                free.remove(replica)
        if pool.is_full(receivers) is not (edge in self._full):
            if edge in self._full:
                self._full.remove(edge)
                self._note_free()
            else:
                self._note_held_up()
                self._full.add(edge)

    def _bind(self, edge: int) -> None:
        """Choose a receiver for everything that waits: it must be sent, or logged, before a barrier."""
        pool = self._pools[edge]
        for _ in range(len(pool)):
            time, batch = pool.pop_one()
            replica = min(range(self._replicas[edge]), key=lambda one: self._load(edge, one))
            self.sent(edge, self.send(edge, replica, self._carrier.encode(edge, replica, time, batch)))
        if edge in self._full:
            self._full.remove(edge)
            self._note_free()

    def _load(self, edge: int, replica: int) -> int:
        return self.windows[edge, replica].in_flight_batches + len(self._waiting.get((edge, replica), ()))

    def on_credit(self, edge: int, replica: int, batches: int, size_bytes: int, busy_s: float) -> None:
        """Take credit from a receiver, which has worked ``busy_s`` on what it grants back, and send what waits for it."""
        channel = (edge, replica)
        window = self.windows.get(channel)
        if window is None:
            return  # from a replica that has retired
        window.on_credit(batches, size_bytes)
        if edge in self._pools:
            rows = [self._rows[channel].popleft() for _ in range(batches)]
            if all(rows):
                self._pools[edge].learn(sum(rows), busy_s)
        self._send_waiting(channel, window)
        if edge in self._pools:
            self._serve(edge)

    def _send_waiting(self, channel: Channel, window: SendWindow) -> None:
        waiting = self._waiting.get(channel)
        if waiting is None:
            return
        while waiting and (waiting[0][1] == _MARK or window.may_send()):
            payload, size = waiting.popleft()
            if size == _MARK:
                self._carrier.send(*channel, Kind.BARRIER, payload)
            else:
                self._transmit(channel, window, payload, size)
        if not waiting:
            del self._waiting[channel]
            self._note_free()

    def send_mark(self, edge: int, replica: int, payload: Any, *, overtake: bool, binds: bool = True) -> None:
        """Send a barrier or marker behind everything sent on a channel; with ``overtake`` ahead of what waits here for credit.

        Without ``binds`` the on-demand batches that wait are sent behind it, perhaps to a receiver that this mark is not sent to.
        """
        if binds and edge in self._pools:
            self._bind(edge)
        channel = (edge, replica)
        waiting = self._waiting.get(channel)
        if waiting is not None and not overtake:
            waiting.append((payload, _MARK))
        elif channel in self._spilled:
            self._spilled[channel].push(_ON_DISK[True] + self._carrier.freeze(payload, is_mark=True))
        else:
            self._carrier.send(edge, replica, Kind.BARRIER, payload)

    def waiting_batches(self) -> list[tuple[int, int, bytes]]:
        """``(edge, replica, encoded batch)`` of all that waits for credit, in the order of each channel."""
        freeze = self._carrier.freeze
        return [
            (edge, replica, freeze(payload, is_mark=False))
            for (edge, replica), waiting in self._waiting.items()
            for payload, size in waiting
            if size != _MARK
        ]

    def _send_feedback(self, channel: Channel, payload: Any) -> None:
        if channel not in self._spilled:
            if self._carrier.queued_bytes(*channel) < self._feedback_bytes_max:
                self._carrier.send(*channel, Kind.DATA, payload)
                return
            self._spilled[channel] = SpillingQueue(0, self._directory)
        self.spilled_batches += 1
        self._spilled[channel].push(_ON_DISK[False] + self._carrier.freeze(payload, is_mark=False))

    def drain(self) -> None:
        """Send spilled feedback batches as far as their sockets take them."""
        for channel in list(self._spilled):
            queue = self._spilled[channel]
            while len(queue) and self._carrier.queued_bytes(*channel) < self._feedback_bytes_max:
                item = memoryview(queue.pop())
                is_mark = bool(item[0])
                payload = self._carrier.thaw(item[1:], is_mark=is_mark)
                self._carrier.send(*channel, Kind.BARRIER if is_mark else Kind.DATA, payload)
            if not len(queue):
                queue.close()
                del self._spilled[channel]

    def describe(self) -> list[str]:
        """What waits, for ``explain_stuck``."""
        waiting = self._waiting.items()
        lines = [f"{len(parts)} batches without credit on {self._edges[edge].name} to [{replica}]" for (edge, replica), parts in waiting]
        pools = [(self._edges[edge].name, len(pool)) for edge, pool in self._pools.items() if len(pool)]
        lines.extend(f"{batches} batches without credit on {name} to any replica" for name, batches in pools)
        for (edge, replica), queue in self._spilled.items():
            lines.append(f"{len(queue)} batches of {self._edges[edge].name} to [{replica}] wait on disk for its socket")
        return lines

    def without_credit(self) -> dict[tuple[int, int], int]:
        """How many batches wait for credit of a replica, by its stage and number; those that any of several may take count for each."""
        out: dict[tuple[int, int], int] = {}
        for (edge, replica), parts in self._waiting.items():
            who = (self._edges[edge].target, replica)
            out[who] = out.get(who, 0) + len(parts)
        for edge, replica in self.windows:
            pool = self._pools.get(edge)
            if pool is not None and len(pool):
                who = (self._edges[edge].target, replica)
                out[who] = out.get(who, 0) + len(pool)
        return out

    @property
    def disk_bytes(self) -> int:
        """What waits on disk."""
        return sum(queue.disk_bytes for queue in self._spilled.values())

    def close(self) -> None:
        """Give up the disk space."""
        for queue in self._spilled.values():
            queue.close()
