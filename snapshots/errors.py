"""Errors of a store that mean something to whoever leads a job."""

from __future__ import annotations

from rayad.progress import SnapshotError


class StoreAwayError(SnapshotError):
    """The store cannot be listed or read at the moment, or its newest snapshot is not there; nothing is known to be damaged."""


class Damaged(SnapshotError):
    """A file of a snapshot is missing where its manifest is, or is not what was written. ``path``: which one, below the store's folder."""

    path: str


class Superseded(SnapshotError):
    """Another run of the same job has claimed the store: this one must end, publish nothing and delete nothing."""


__all__ = ["Damaged", "StoreAwayError", "Superseded"]
