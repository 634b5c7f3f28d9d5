"""What a form gives to be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Changing(Generic[Kept]):
    """What a form gives to be changed within a ``with``. When that ends the keys are noted: they are part of the next increment."""

    __slots__ = ("_kept", "_note")

    def __init__(self, kept: Kept, note: Callable[[], None]) -> None:
        self._kept = kept
        self._note = note

    def __enter__(self) -> Kept:
        return self._kept

    def __exit__(self, *_: object) -> None:
        self._note()


__all__ = ["Changing"]
