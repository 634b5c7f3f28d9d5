"""The ends of a replica's channels, with checks: feedback keeps its order, through memory and disk at both ends, credits bind, and
nothing that was produced before a barrier goes behind it. Sockets take what waits for them at any moment, as real ones do."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rayad.actors.plane.batch_codec import batch_time
from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.feedback_queue import FeedbackEntry, FeedbackQueue
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.send_windows import SendWindows
from rayad.actors.replica.channel_ends import ChannelEnds
from rayad.actors.worker.payloads import Handed
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import Timestamp

TAKEN_SHARE = 0.3
"""How often a socket has taken all that waited for it, of the times it is asked."""


def _in_turn(expected: deque[Any], come: Any, where: str) -> None:
    wanted = expected.popleft()
    if wanted != come:
        raise AssertionError(f"{where}: {come} has overtaken {wanted}")


def when(payload: Any) -> Timestamp:
    """The time of a batch, as it is or encoded."""
    return payload.time if type(payload) is Handed else batch_time(b"".join(payload))


class WatchedQueue(FeedbackQueue):
    """A queue that checks that items come out in the order in which they were pushed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._expected: deque[Any] = deque()

    def push(self, edge: int, source: int, time: Timestamp, batch: Any, size_bytes: int | None = None) -> None:
        self._expected.append((edge, source, time))
        super().push(edge, source, time, batch, size_bytes)

    def push_mark(self, edge: int, source: int, mark: bytes) -> None:
        self._expected.append((edge, source, None))
        super().push_mark(edge, source, mark)

    def push_encoded(self, edge: int, source: int, payload: Any) -> None:
        self._expected.append((edge, source, batch_time(payload)))
        super().push_encoded(edge, source, payload)

    def pop(self) -> FeedbackEntry:
        is_again = self._first is not None  # it was blocked
        entry = super().pop()
        if not is_again:
            _in_turn(self._expected, entry[:3], "a queue of feedbacks")
        return entry


class WatchedWindows(SendWindows):
    """Send windows that check that batches leave on feedback channels in the order in which they were sent, on each of them,
    and that no batch waits for any receiver when a barrier has been sent: it would be before the cut and in no log."""

    def __init__(self, carrier: Carrier, plan: Plan, stage: int, config: RunConfig) -> None:
        self._expected: dict[tuple[int, int], deque[Any]] = {}
        super().__init__(carrier, plan, stage, config)

    def send(self, edge: int, replica: int, payload: Any) -> int:
        if (edge, replica) not in self.windows:
            self._expected.setdefault((edge, replica), deque()).append((Kind.DATA, when(payload)))
        return super().send(edge, replica, payload)

    def send_mark(self, edge: int, replica: int, payload: Any, *, overtake: bool, binds: bool = True) -> None:
        if (edge, replica) not in self.windows:
            self._expected.setdefault((edge, replica), deque()).append((Kind.BARRIER, bytes(payload)))
        super().send_mark(edge, replica, payload, overtake=overtake, binds=binds)
        pool = self._pools.get(edge)
        if binds and pool is not None and len(pool):
            raise AssertionError(f"{len(pool)} batches on edge {edge} go behind a barrier that was sent after them")

    def leaves(self, edge: int, replica: int, kind: int, payload: Any) -> None:
        """Check a batch that is given to the carrier."""
        if (edge, replica) not in self.windows:
            come = (kind, when(payload) if kind == Kind.DATA else bytes(payload))
            _in_turn(self._expected[edge, replica], come, f"feedbacks on edge {edge} to {replica}")


class WatchedEnds(ChannelEnds):
    """The class of a replica's ends, with these checks.

    Args:
        chance: draws what the sockets have taken.
    """

    def __init__(self, chance: random.Random, carrier: Any, plan: Plan, stage: int, replica: int, config: RunConfig) -> None:
        super().__init__(carrier, plan, stage, replica, config)
        self.feedback = WatchedQueue(self.feedback.memory_bytes_max, config.spill_directory)
        self.sender = sender = WatchedWindows(carrier, plan, stage, config)
        send, queued_bytes = carrier.send, carrier.queued_bytes

        def watched(edge: int, replica: int, kind: int, payload: Any) -> None:
            sender.leaves(edge, replica, kind, payload)
            send(edge, replica, kind, payload)

        def left(edge: int, replica: int) -> int:
            waiting: int = queued_bytes(edge, replica)
            return 0 if waiting and chance.random() < TAKEN_SHARE else waiting

        carrier.send, carrier.queued_bytes = watched, left


@contextmanager
def watched_activations() -> Iterator[None]:
    """No activation starts while something waits for credit, on any channel but feedback."""
    activate = ReplicaHost._activate

    def watched(self: ReplicaHost) -> bool:
        sender = self.place.sender
        if any(waiting for channel, waiting in sender._waiting.items() if channel in sender.windows):
            raise AssertionError(f"{self.name} goes on while batches wait for credit")
        return activate(self)

    with patch.object(ReplicaHost, "_activate", watched):
        yield


__all__ = ["WatchedEnds"]
