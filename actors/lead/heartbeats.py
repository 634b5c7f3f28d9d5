"""Who has not answered for too long. Pure: the shell asks, and says what it heard and when.

Invariant: silence counts only while the listener itself was running. A listener that was stopped for a minute has heard nobody for a
minute, which says nothing about the others: so at most two intervals count between two looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

INTERVAL_MAX_S = 5.0


class Heartbeats:
    """Questions and answers by name.

    Args:
        patience_s: who has not answered for longer counts as dead.

    >>> beats = Heartbeats(8.0)
    >>> beats.look({"a", "b"}, 0.0)
    ['a', 'b']
    >>> beats.on_answer("a")
    >>> [beats.look({"a", "b"}, now_s) for now_s in (2.0, 4.0, 6.0, 8.0)], beats.silent(), beats.silence_s("b")
    ([['a'], [], [], []], None, 8.0)
    >>> beats.look({"a", "b"}, 10.0), beats.silent(), beats.silence_s("a")
    ([], 'b', 8.0)
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.interval_s = min(INTERVAL_MAX_S, patience_s / 4)
        self._silence_s: dict[str, float] = {}
        """Of those that were asked and have not answered, since the question."""
        self._looked_s: float | None = None
        self._known: frozenset[str] = frozenset()

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for a look."""
        return self._looked_s is None or now_s - self._looked_s >= self.interval_s

    def look(self, names: Collection[str], now_s: float) -> list[str]:
        """Note who is there, and give those that are to be asked now. All others are forgotten."""
        passed_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, 2 * self.interval_s)
        self._looked_s = now_s
        self._known = frozenset(names)
        self.forget([name for name in self._silence_s if name not in self._known])
        for name in self._silence_s:
            self._silence_s[name] += passed_s
        asked = sorted(name for name in self._known if name not in self._silence_s)
        self._silence_s.update(dict.fromkeys(asked, 0.0))
        return asked

    def on_answer(self, name: str) -> None:
        """An answer has come."""
        self._silence_s.pop(name, None)

    def forget(self, names: Iterable[str]) -> None:
        """These have ended, or begin anew."""
        for name in names:
            self._silence_s.pop(name, None)

    def silence_s(self, name: str) -> float:
        """For how long one has not answered a question, as of the last look; 0 when nothing is asked of it."""
        return self._silence_s.get(name, 0.0)

    def silent(self) -> str | None:
        """The one that has been silent for longest, if that is longer than the patience."""
        longest = max(self._silence_s, key=self._silence_s.__getitem__, default=None)
        return longest if longest is not None and self._silence_s[longest] > self.patience_s else None

    def check_invariants(self) -> None:
        """Only those that are there can be silent."""
        assert self._silence_s.keys() <= self._known, (self._silence_s, self._known)
