"""What a recovery finds in the store."""

from __future__ import annotations

from typing import NamedTuple

from rayad.snapshots.manifest import Manifest


class Found(NamedTuple):
    """What a recovery resumes from.

    Args:
        manifest: of the snapshot.
        before, after: the numbers of the newest snapshot in the store before and after it was found.
        begins_again: whether the run has another beginning.
    """

    manifest: Manifest
    before: int
    after: int
    begins_again: bool = False


__all__ = ["Found"]
