"""How far a source or live input runs ahead of what is complete behind it.

A vertex of a collection puts aside what comes for an epoch until those before it are complete. Holding its channels back instead could
deadlock: behind a batch that it does not take may be one that it needs, of an input whose records share the channel. So whoever begins
epochs waits. See docs/design/collections.md, "Inputs that run ahead".
"""

from __future__ import annotations

from collections.abc import Iterable


class Pace:
    """The epochs that one replica has begun and that are not complete behind it.

    Args:
        ahead: how many of its epochs may be begun beyond the first that is not complete; None: any number.

    >>> pace = Pace(2)
    >>> pace.begins(0); pace.begins(4); pace.holds(4)
    False
    >>> pace.begins(7); pace.holds(7)
    True
    >>> pace.told(4, is_free=False); pace.holds(7), sorted(pace.begun)
    (False, [4, 7])
    """

    def __init__(self, ahead: int | None) -> None:
        self.begun: set[int] = set()
        """Empty where any number may be begun."""
        self._ahead = ahead
        self._is_free = False

    def begins(self, epoch: int) -> None:
        """It is in this epoch, or has given something of it."""
        if self._ahead is not None:
            self.begun.add(epoch)

    def resume(self, begun: Iterable[int]) -> None:
        """These had been begun at the cut of a snapshot."""
        if self._ahead is not None:
            self.begun.update(begun)

    def told(self, complete_before: int, *, is_free: bool) -> None:
        """What the progress actor says: all epochs before one are complete; ``is_free``: any number may be begun now."""
        self.begun = {epoch for epoch in self.begun if epoch >= complete_before}
        self._is_free = is_free

    def holds(self, epoch: int) -> bool:
        """Whether who is in this epoch may take nothing now: a live input, or a part of a source. That in the least epoch always may."""
        if self._ahead is None or len(self.begun) <= self._ahead or self._is_free:
            return False
        return sum(one < epoch for one in self.begun) >= self._ahead
