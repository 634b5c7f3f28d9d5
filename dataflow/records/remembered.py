"""What was worked out for keys, in bounded memory."""

from __future__ import annotations

from typing import Any, TypeVar

V = TypeVar("V")
_SMALL, _LARGE = frozenset({int, float, bool, str, type(None)}), 64


class Remembered(dict[Any, V]):
    """Answers by key, which it keeps alive; when it is full, all of them are forgotten.

    >>> answers = Remembered[int]()
    >>> answers.keep("a", 1), answers.get("a"), answers.get("b")
    (1, 1, None)
    """

    ENTRIES_MAX = 1 << 20
    """Of numbers and short texts; of larger keys, such as whole records, a 64th."""
    __slots__ = ("_room",)

    def __init__(self) -> None:
        super().__init__()
        self._room = self.ENTRIES_MAX

    def keep(self, key: Any, answer: V) -> V:
        """Remember the answer, if there is room for it; gives it."""
        if self._room > 0:
            self[key] = answer
            self._room -= 1 if type(key) in _SMALL and (type(key) is not str or len(key) < _LARGE) else _LARGE
        return answer

    def make_room(self) -> None:
        """Before further answers are kept: forget all if it is full."""
        if self._room <= 0:
            self.forget()

    def forget(self) -> None:
        """All of them."""
        self.clear()
        self._room = self.ENTRIES_MAX


__all__ = ["Remembered"]
