"""What of live inputs the snapshots hold from which a job may resume. Pure.

Two questions. What does a resumed job have done already? That follows from the newest snapshot. And what can nobody ask for again? That
follows from all that are kept: a damaged one is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayad.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class SavedEpochs:
    """Which epochs of a live input are in snapshots; ``math.inf`` for a closed input.

    Args:
        newest: epochs before this are in the newest complete snapshot: a job that resumes has them.
        kept: epochs before this are in every snapshot that is kept: they are never asked for again, even if the newest is damaged.
    """

    newest: float = 0
    kept: float = 0


class SavedInputs:
    """By snapshot, what it holds of each live input.

    Args:
        begun: the manifest that the run resumes from.
        keep: how many snapshots are kept.
    """

    def __init__(self, begun: Manifest, keep: int) -> None:
        self.frames: dict[str, int] = {}
        """By input: the number of frames that every kept snapshot covers."""
        self.epochs: dict[str, SavedEpochs] = {}
        """By input; replaced as a whole, so that other threads may look."""
        self._keep = keep
        self._frames: dict[int, dict[str, int]] = {}
        self._before: dict[int, dict[str, float]] = {}
        self._kept: dict[str, float] = {}
        self.published(begun)

    def published(self, manifest: Manifest) -> None:
        """It is the newest snapshot now."""
        self._frames[manifest.number] = manifest.notes.get("inputs", {})
        now = self._before[manifest.number] = epochs_before(manifest.notes)
        self.epochs = {name: SavedEpochs(now.get(name, 0), self._kept.get(name, 0)) for name in {*now, *self._kept}}

    def retained(self, newest: Manifest) -> None:
        """All but the newest snapshots are forgotten, so many as are kept."""
        kept = sorted(self._frames)[-self._keep :]
        if len(kept) < self._keep:
            return
        self._frames = {number: self._frames[number] for number in kept}
        self._before = {number: self._before[number] for number in kept}
        names = {name for frames in self._frames.values() for name in frames}
        self.frames = {name: min(frames.get(name, 0) for frames in self._frames.values()) for name in names}
        self._kept = {name: min(before.get(name, 0) for before in self._before.values()) for name in names}
        self.published(newest)

    def begin_anew(self, manifest: Manifest) -> None:
        """What is newer than this manifest is void."""
        self._frames = {number: frames for number, frames in self._frames.items() if number < manifest.number}
        self._before = {number: before for number, before in self._before.items() if number < manifest.number}
        self.published(manifest)


def epochs_before(notes: Mapping[str, Any]) -> dict[str, float]:
    """By live input: epochs before this are in the snapshot that has these notes.

    >>> epochs_before({"input_states": {"clicks": [7, 3, "", 3, 3], "prices": [2, None, None, 5, None], "stopped": [2, None, None, 1, 1]}})
    {'clicks': 3, 'prices': inf, 'stopped': 1}
    """
    return {name: math.inf if state[-1] is None else state[-1] for name, state in notes.get("input_states", {}).items()}
