"""Input that is made on the fly, by a generator for each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import rayad as rd


class Generated(rd.Source):
    """``read(part)`` gives the batches of a part, in their order. It cannot be resumed, so its jobs take no snapshots."""

    blocks = False

    def __init__(self, parts: int, read: Callable[[int], Iterable[rd.SourceBatch]]) -> None:
        self.parts, self.read = parts, read

    def list_parts(self) -> range:
        return range(self.parts)

    def build_part(self, part: int, resume: Any | None) -> rd.SourcePart:
        return GeneratedPart(iter(self.read(part)))


class GeneratedPart(rd.SourcePart):
    """One part."""

    def __init__(self, batches: Iterator[rd.SourceBatch]) -> None:
        self.batches = batches

    def next_batch(self) -> rd.SourceBatch | None:
        return next(self.batches, None)

    def offset(self) -> None:
        return None


def in_one_epoch(batches: Iterable[Any]) -> Iterator[rd.SourceBatch]:
    """All in epoch 0."""
    return map(partial(rd.SourceBatch, 0), batches)
