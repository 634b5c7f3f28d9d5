"""Epochs that collections take together: docs/collections.md."""

from __future__ import annotations


def last_together(epoch: int, together: int) -> int:
    """The last of the epochs that are taken together with one: those whose numbers, divided by ``together`` and rounded down, are equal.

    >>> [last_together(epoch, 4) for epoch in (-1, 0, 3, 4)]
    [-1, 3, 3, 7]
    """
    return epoch - epoch % together + together - 1


__all__ = ["last_together"]
