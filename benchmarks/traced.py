"""Bytes of Python, numpy and Arrow that have come since a moment."""

from __future__ import annotations

import gc
import tracemalloc
from types import TracebackType
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.remembered import Remembered


class Traced:
    """Traces what is allocated within it. What was there before is not looked at by the garbage collector meanwhile: in a large process
    each look would take a second.

    Args:
        forgets: whether caches of what was worked out for keys, which fill and are cleared again, are emptied before each look.
    """

    def __init__(self, *, forgets: bool = False) -> None:
        self._forgets = forgets
        self._caches: list[Remembered[Any]] = []
        self._before = 0

    def __enter__(self) -> Traced:
        gc.collect()
        self._caches = self._found()
        gc.freeze()
        tracemalloc.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        tracemalloc.stop()
        gc.unfreeze()

    def begin(self) -> None:
        """Count from now on."""
        self._before = 0
        self._before = self.bytes()

    def bytes(self) -> int:
        """What has come."""
        for cache in (*self._caches, *self._found()):
            cache.forget()
        gc.collect()
        return int(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()) - self._before

    def _found(self) -> list[Remembered[Any]]:
        return [each for each in gc.get_objects() if isinstance(each, Remembered)] if self._forgets else []
