"""About how much memory Python values take."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

OBJECTS_MAX = 1 << 12
"""Of a value with more parts, the size of the others is that of these."""
ROWS_LOOKED_AT = 64
LOOKS_AFTER = 8
"""How often it may be asked how large values are that may have changed, until some are looked at again."""
_WITHOUT_PARTS = frozenset({int, str, float, bytes, bool, type(None)})
SLOT_OF_DICT = 100
"""Bytes of a dict for a key, of its tables alone."""


def size_of(value: Any) -> int:
    """Bytes of a value with all that it has, each object once.

    >>> size_of([1.5] * 3) < size_of([1.5, 2.5, 3.5]) < size_of([[1.5], 2.5, 3.5])
    True
    """
    waiting, seen, sizes = [value], {id(value)}, list[int]()
    while waiting and len(sizes) < OBJECTS_MAX:
        each = waiting.pop()
        if type(each) in _WITHOUT_PARTS:
            sizes.append(sys.getsizeof(each))
            continue
        sizes.append(each.nbytes if isinstance(each, np.ndarray) else sys.getsizeof(each, 64))
        for part in _parts(each):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return sum(sizes) + (len(waiting) * sum(sizes[1:]) // (len(sizes) - 1) if waiting else 0)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (type, np.ndarray)):
        return ()
    if isinstance(value, dict):
        return (part for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    slots = (getattr(value, name) for base in type(value).__mro__ for name in _slots(base) if hasattr(value, name))
    return (*vars(value).values(), *slots) if hasattr(value, "__dict__") else slots


def _slots(kind: type) -> Iterable[str]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else names


class Size(Protocol):
    """About how much memory something takes that grows."""

    def of(self, kept: Any) -> int:
        """Bytes of all of it. Asked again and again, of the same."""


class SizeOfRows:
    """About how much memory a dict takes whose values change, or a set.

    A few rows are looked at when as many have changed, and a quarter of all: so a change costs the same however large or small the dict is.
    """

    def __init__(self) -> None:
        self._each = 0
        self._changed = 0
        self._known = 0

    def changed(self, rows: int) -> None:
        """So many rows may have changed."""
        self._changed += rows

    def of(self, kept: Collection[Any]) -> int:
        """Bytes of all of it."""
        count = len(kept)
        if not count:
            self._known = self._changed = 0
            return 0
        if self._changed >= max(count // 4, min(count, ROWS_LOOKED_AT)) or count >= 2 * self._known:
            step = max(1, count // ROWS_LOOKED_AT)
            rows = kept.items() if isinstance(kept, Mapping) else kept
            some = [size_of(row) for row in islice(rows, 0, None, step)]
            self._each, self._changed, self._known = SLOT_OF_DICT + sum(some) // len(some), 0, count
        return self._each * count


class SizeOfMerged(SizeOfRows):
    """Of a dict whose values change, and nobody says how many have."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def of(self, kept: Collection[Any]) -> int:
        self._asked += 1
        if self._asked % LOOKS_AFTER == 0:
            self.changed(len(kept))
        return super().of(kept)


class SizeOfBatches:
    """About how much memory a list of batches takes, columns or lists of rows: only what has come since the last time is looked at.

    Lists grow by a batch at a time, and there may be thousands. Of rows a few are looked at when there are twice as many as then.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._batches, self._last, self._columns = 0, None, 0
        self._rows = self._looked_at = self._each = 0

    def of(self, kept: Sequence[Any]) -> int:
        """Bytes of all of them."""
        known = self._batches
        if known > len(kept) or (known and kept[known - 1] is not self._last):
            self._forget()
            known = 0
        for batch in kept[known:]:
            if isinstance(batch, pa.RecordBatch):
                self._columns += batch.nbytes
                continue
            self._rows += len(batch)
            if self._rows >= 2 * self._looked_at:
                step = max(1, len(batch) // ROWS_LOOKED_AT)
                some = [size_of(row) for row in batch[::step]]
                self._each, self._looked_at = sum(some) // max(1, len(some)), self._rows
        self._batches, self._last = len(kept), kept[-1] if kept else None
        return self._columns + self._rows * self._each


__all__ = ["Size", "SizeOfBatches", "SizeOfMerged", "SizeOfRows", "size_of"]
