"""Where the barriers of snapshots stand on the input channels of one replica. Pure: it decides, the shell moves the data.

Source: asynchronous barrier snapshots (Carbone et al., 2015, 4.2 and 4.3), with two additions that
docs/design/snapshots.md argues for: a feedback
channel whose barrier comes before the replica's own capture is blocked until then, and an unaligned mode (Chandy and Lamport 1985) in which
the first barrier captures and channels are logged.

Invariant, per channel and snapshot: batches before the barrier are consumed before the capture or are in the log, never both; batches
behind it are consumed after the capture and are never in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rayad.progress import ProtocolError

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a barrier calls for, in this order.

    Args:
        dropped: the number of an unfinished older snapshot: forget its capture and log.
        capture: take the state now, forward the barrier, begin to log the channels for which :meth:`Alignment.logs` is true.
        complete: the state and the log of :attr:`Alignment.number` are all there.
    """

    dropped: int | None = None
    capture: bool = False
    complete: bool = False


NOTHING = Verdict()


class Alignment(Generic[C]):
    """The barriers of one replica.

    Args:
        regular: channels that a capture waits for (none for sources).
        feedback: channels from back-edges; they are never waited for.

    >>> alignment = Alignment(["left", "right"], ["back"])
    >>> alignment.on_barrier("left", 1), alignment.blocked("left"), alignment.blocked("right")
    (Verdict(dropped=None, capture=False, complete=False), True, False)
    >>> alignment.on_barrier("right", 1), alignment.logs("back"), alignment.blocked("left")
    (Verdict(dropped=None, capture=True, complete=False), True, False)
    >>> alignment.on_barrier("back", 1).complete
    True
    """

    def __init__(self, regular: Collection[C], feedback: Collection[C] = ()) -> None:
        self.regular = frozenset(regular)
        self.feedback = frozenset(feedback)
        if self.regular & self.feedback:
            raise ProtocolError(f"channels {sorted(map(str, self.regular & self.feedback))} are given both as regular and as feedback")
        self.number = 0
        """The newest snapshot that this replica knows of; 0: none."""
        self.captured = True
        """Whether its state has been taken."""
        self.void = 0
        """The newest snapshot that was given up; its barriers are still on their way."""
        self._missing: set[C] = set()

    @property
    def is_aligning(self) -> bool:
        """Whether a snapshot has begun here and the state is not yet taken."""
        return not self.captured

    @property
    def is_pending(self) -> bool:
        """Whether a snapshot has begun here and is not complete."""
        return not self.captured or bool(self._missing)

    def blocked(self, channel: C) -> bool:
        """Whether batches that arrive on a channel now must wait: its barrier has come, the capture has not been made."""
        return not self.captured and channel not in self._missing

    def logs(self, channel: C) -> bool:
        """Whether batches that arrive on a channel now belong into the log, besides being consumed."""
        return self.captured and channel in self._missing

    def missing(self) -> frozenset[C]:
        """The channels that have not yet brought the barrier, for ``explain_stuck``."""
        return frozenset(self._missing)

    def begin(self, number: int, *, unaligned: bool = False) -> Verdict:
        """The coordinator tells a replica without regular inputs that snapshot ``number`` begins."""
        if self.regular:
            raise ProtocolError(
                f"snapshot {number} was begun at a replica with {len(self.regular)} regular inputs: it comes with their barriers"
            )
        if number == self.number or self.is_old(number):
            return NOTHING
        return self._start(number, unaligned)

    def is_old(self, number: int) -> bool:
        """Whether barriers of a snapshot are to be ignored: a newer one has begun here, or it was given up."""
        return number < self.number or number <= self.void

    def on_barrier(self, channel: C, number: int, *, unaligned: bool = False) -> Verdict:
        """Barrier ``number`` has come: in order behind the batches before it, or, if it is ``unaligned``, on arrival.

        Raises ProtocolError when a channel brings a barrier twice, or is not one of this replica's.
        """
        if channel not in self.regular and channel not in self.feedback:
            raise ProtocolError(f"barrier {number} came on {channel!r}, which is no input of this replica")
        if self.is_old(number):
            return NOTHING
        verdict = NOTHING
        if number > self.number:
            verdict = self._start(number, unaligned)
        if channel not in self._missing:
            raise ProtocolError(f"barrier {number} came on {channel!r} twice")
        self._missing.discard(channel)
        return self._after(verdict, unaligned)

    def turn_unaligned(self) -> Verdict:
        """Alignment takes too long: capture now, and log what the channels bring before their barriers."""
        if self.captured:
            return NOTHING
        self.captured = True
        return Verdict(capture=True, complete=not self._missing)

    def give_up(self, number: int = 0) -> int | None:
        """Forget the pending snapshot: channels are free, nothing is logged. Gives its number; None when none was pending.

        ``number``: what the coordinator has given up; if it has not begun here, it never will. A newer one continues.
        """
        self.void = max(self.void, number)
        if number and self.number > number:
            return None
        if not self.is_pending:
            return None
        self.void = max(self.void, self.number)
        self.captured = True
        self._missing.clear()
        return self.number

    def _start(self, number: int, unaligned: bool) -> Verdict:
        dropped = self.give_up()
        self.number = number
        self.captured = False
        self._missing = set(self.regular | self.feedback)
        return self._after(Verdict(dropped=dropped), unaligned) if not self.regular else Verdict(dropped=dropped)

    def _after(self, verdict: Verdict, unaligned: bool) -> Verdict:
        capture = not self.captured and (unaligned or not (self.regular & self._missing))
        if capture:
            self.captured = True
        complete = self.captured and not self._missing and (capture or verdict is NOTHING or verdict.capture)
        return Verdict(verdict.dropped, verdict.capture or capture, complete or verdict.complete)


__all__ = ["Alignment", "Verdict"]
