"""State in a dict from key to value as snapshots hold it where that is cheap: keys and values apart, by position.

A dict keeps its order, and the keys of running totals are not removed one by one. So each key is pickled once, when it is new, and the
values are one list: of a million numbers that takes about 12 ms, in the replica itself. Pickling the dict takes a forked copy of the
process, and each page that one of the two then writes is copied by the kernel, which took ten times as long. Other values are for the
copy, as ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection
from itertools import chain, islice
from typing import Any, NamedTuple

from rayad.dataflow.operators.state.stored_columns import Unchanging, out_of_band
from rayad.dataflow.operators.state.touched_keys import TouchedKeys

PLAIN = frozenset({int, float, bool, type(None)})
"""Values that are pickled in a few nanoseconds each."""
PLAIN_KEYS = PLAIN | {str, bytes}
INLINE_ITEMS_MAX = 1 << 21
"""State of more values is not pickled in the replica; a row that waits for its time to be complete counts for two."""
NEW_KEYS_MAX = 1 << 18
"""So many keys are pickled at one snapshot; where more are new, it takes several until they all are."""
FEW_ROWS = 1 << 17
"""So many plain keys and values are pickled as a dict in about 5 ms."""
TOUCHED_MAX = 1 << 16
"""Where more keys may have been touched, or an eighth of all, writing every value takes less time than finding out which."""
PIECE_KEYS_MIN = 1 << 14
"""Keys that are pickled together; the last piece may have fewer, and is then made again with the next new keys."""
SAMPLE = 32


def plain_and_few(state: dict[Any, Any], most: int) -> bool:
    """Whether a dict has at most so many items, values that are numbers, and keys that are numbers or strings, going by the first and the
    last.

    >>> plain_and_few({"a": 1, "b": None}, 2), plain_and_few({"a": 1, "b": (2,)}, 2), plain_and_few({"a": 1, "b": 2}, 1)
    (True, False, False)
    """
    if len(state) > most:
        return False
    some = chain(islice(state.items(), SAMPLE), islice(reversed(state.items()), SAMPLE))
    return all(type(value) in PLAIN and (type(key) in PLAIN_KEYS or _is_plain_tuple(key)) for key, value in some)


def _is_plain_tuple(key: Any) -> bool:
    return type(key) is tuple and all(type(part) in PLAIN_KEYS for part in key)


class Piece(NamedTuple):
    """The keys at positions ``first`` to ``last`` (exclusive), as a pickled list."""

    first: int
    last: int
    data: Any


class ByPosition(NamedTuple):
    """Pieces with at least the keys that are new, and all values in the order of the keys."""

    pieces: Unchanging
    values: list[Any]


class StoredRows:
    """What snapshots know of a dict that its vertex changes, in which no key is ever removed: which keys were touched, which are pickled.

    Use :meth:`take` at each snapshot, then what it gives or :meth:`checkpoint`. Where keys were removed or moved: :meth:`forget`.

    >>> rows, state = StoredRows(), {"a": 1, "b": 2}
    >>> rows.take(state) is None
    True
    >>> whole = rows.checkpoint(state)
    >>> state.update(a=3, c=4); rows.note(["a", "c"], len(state))
    >>> changes = rows.take(state)()
    >>> again = StoredRows()
    >>> restored = again.restore(whole); again.restore_changes(restored, changes); restored
    {'a': 3, 'b': 2, 'c': 4}
    """

    def __init__(self) -> None:
        self.inline = False
        """Whether what the last :meth:`take` led to is cheap enough to be pickled in the replica."""
        self._touched = TouchedKeys()
        self._of: dict[Any, Any] | None = None  # that what follows is about
        self._pieces: list[Piece] = []
        self._is_refused = False  # some key cannot be pickled in this way
        self._known: int | None = None  # how many keys there were at the last snapshot

    def note(self, keys: Collection[Any], kept: int) -> None:
        """These keys have been touched, in a state of ``kept``. ``keys`` must stay as they are."""
        self._touched.note(keys, kept)

    def forget(self) -> None:
        """All may have changed, and keys may be gone or elsewhere."""
        self._touched.forget()
        self._of, self._pieces, self._is_refused, self._known = None, [], False, None

    def take(self, state: dict[Any, Any], waiting: int = 0) -> Callable[[], Any] | None:
        """As :meth:`Vertex.take_changes`, for ``state``; ``waiting``: how many rows will be pickled beside it."""
        if self._of is not state:
            self.forget()
            self._of = state
        is_few = self._touched.most <= min(TOUCHED_MAX, len(state) // 8)
        touched = self._touched.take()
        known, self._known = self._known, len(state)
        self.inline = plain_and_few(state, INLINE_ITEMS_MAX - 2 * waiting) and self._pickle_new_keys(state)
        if known is None:
            return None
        if touched is not None and (is_few or not self.inline):
            return lambda: self._rows(touched(), state, known)
        return (lambda: self._by_position(state, known)) if self.inline else None

    def checkpoint(self, state: dict[Any, Any]) -> Any:
        """All of ``state``: at once, or in a forked copy of the process where the last :meth:`take` did not find it cheap."""
        is_pickled = self.inline and self._of is state and self._pickled == len(state)
        return self._by_position(state, 0) if is_pickled else state

    def restore(self, stored: Any) -> dict[Any, Any]:
        """The state that :meth:`checkpoint` gave."""
        self.forget()
        state: dict[Any, Any] = {}
        self.restore_changes(state, stored)
        return state

    def restore_changes(self, state: dict[Any, Any], changes: Any) -> None:
        """Change ``state`` by what :meth:`checkpoint` or the function of :meth:`take` gave."""
        self._of = state
        if not isinstance(changes, ByPosition):
            state.update(changes)
            return
        keys = list(state)
        for piece in changes.pieces.value:
            keys.extend(pickle.loads(piece.data)[len(keys) - piece.first :])
            if piece.first == self._pickled:
                self._pieces.append(Piece(piece.first, piece.last, out_of_band(piece.data)))
        state.update(zip(keys, changes.values, strict=True))

    @property
    def _pickled(self) -> int:
        return self._pieces[-1].last if self._pieces else 0

    def _pickle_new_keys(self, state: dict[Any, Any]) -> bool:
        """Whether all keys are pickled now."""
        pieces, count = self._pieces, len(state)
        if self._is_refused or self._pickled == count:
            return not self._is_refused
        if pieces and pieces[-1].last - pieces[-1].first < PIECE_KEYS_MIN:
            pieces.pop()
        first = self._pickled
        last = min(count, first + NEW_KEYS_MAX)
        if last == count:
            new = list(islice(reversed(state), count - first))
            new.reverse()
        else:
            new = list(islice(state, first, last))
        try:
            data = pickle.dumps(new, protocol=5)
        except Exception:
            self._is_refused = True
            return False
        pieces.append(Piece(first, last, out_of_band(data)))
        return last == count

    def _by_position(self, state: dict[Any, Any], known: int) -> ByPosition:
        return ByPosition(Unchanging([piece for piece in self._pieces if piece.last > known]), list(state.values()))

    @staticmethod
    def _rows(touched: set[Any], state: dict[Any, Any], known: int) -> dict[Any, Any]:
        new = list(islice(reversed(state), len(state) - known))
        touched.difference_update(new)
        # New keys come last and in their order, so that every key has the same position when this is restored.
        return {key: state[key] for key in chain(touched, reversed(new))}
