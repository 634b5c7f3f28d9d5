"""The long calls of a job's actors, as the coordinator's own thread waits for them.

One writer: only that thread changes the table. A change of layout, which another thread drives, posts which calls begin and which are to be
forgotten; the coordinator's thread applies these posts before each look and after each wait. What is posted before an actor is killed is so
applied before the end of its call is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Any


class LongCalls:
    """Calls under way, by reference: whose, and its second result.

    >>> calls = LongCalls()
    >>> calls.post("ref", "v1.0", "staged"); calls.names()
    set()
    >>> calls.take_over(); calls.names(), calls.ended("ref"), calls.ended("ref")
    ({'v1.0'}, ('v1.0', 'staged'), None)
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, tuple[str, Any]] = {}
        self._posted: deque[tuple[Hashable, str, Any] | frozenset[str]] = deque()

    # -- any thread ------------------------------------------------------------------------------------
    def post(self, ref: Hashable, name: str, second: Any) -> None:
        """A call has begun."""
        self._posted.append((ref, name, second))

    def forget(self, names: Collection[str]) -> None:
        """Nobody waits for these any more; to be posted before their actors are ended."""
        self._posted.append(frozenset(names))

    # -- the coordinator's thread -----------------------------------------------------------------------
    def take_over(self) -> None:
        """Apply what has been posted, in order."""
        while self._posted:
            posted = self._posted.popleft()
            if isinstance(posted, frozenset):
                for ref in [ref for ref, (name, _) in self._calls.items() if name in posted]:
                    del self._calls[ref]
            else:
                ref, name, second = posted
                self._calls[ref] = (name, second)

    def clear(self) -> None:
        """All begins anew."""
        self._posted.clear()
        self._calls.clear()

    def refs(self) -> list[Any]:
        """The calls to wait for."""
        return list(self._calls)

    def names(self) -> set[str]:
        """Whose calls are under way."""
        return {name for name, _ in self._calls.values()}

    def ended(self, ref: Hashable) -> tuple[str, Any] | None:
        """A call has ended: whose it was, and its second result; None when nobody waits for it any more."""
        self.take_over()
        return self._calls.pop(ref, None)

    def __bool__(self) -> bool:
        return bool(self._calls) or bool(self._posted)
