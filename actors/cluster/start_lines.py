"""What is said of one long start, and when: no clock and no terminal, so that tests need neither."""

from __future__ import annotations

FIRST_S = 2.0
"""What is over before says nothing."""
CHANGED_S = 8.0
"""A line comes at the earliest so long after the one before, if what it says has changed;"""
SAME_S = 20.0
"""and after so long if not."""


class StartLines:
    """The lines of one wait. ``at_s`` is the time since it began, and never falls."""

    def __init__(self, what: str, first_s: float = FIRST_S) -> None:
        self._what = what
        self._first_s = first_s
        self._said: str | None = None
        self._said_at_s = 0.0

    def now(self, text: str, at_s: float) -> str:
        """What a spinner shows now."""
        return f"waiting for {self._what}, {at_s:.0f} s{': ' if text else ''}{text}"

    def due(self, text: str, at_s: float) -> str | None:
        """The line that a log gets now; None: nothing yet."""
        if self._said is None:
            if at_s < self._first_s:
                return None
        elif at_s - self._said_at_s < (SAME_S if text == self._said else CHANGED_S):
            return None
        self._said, self._said_at_s = text, at_s
        return self.now(text, at_s)

    def over(self, at_s: float) -> str | None:
        """The last line; None where the wait was too short for any."""
        return None if at_s < self._first_s else f"{self._what} took {at_s:.1f} s"


__all__ = ["CHANGED_S", "FIRST_S", "SAME_S", "StartLines"]
