"""The position of a live input: which epoch it is in, and how much of what its feeder sent has been taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayad.actors.replica.input.pace import Pace
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.progress import Timestamp


class LiveInput:
    """The position of the live input that this replica reads; in other replicas it stays as it is made."""

    def __init__(self, changes: ProgressChanges, pace: Pace) -> None:
        self.epoch: int | None = None
        """The epoch of what is sent now; None: it is closed, or there is no live input here."""
        self.frames = 0
        """How many frames of the feeder have been taken."""
        self.sends = 0
        """How many of them brought records."""
        self.note: str | None = None
        """The newest note of its user's."""
        self.before: int | None = 0
        """All epochs before this one have arrived in full; None: its feeder has closed it, so all have."""
        self.furthest = 0
        """The epoch in which it was closed."""
        self.begun = -1
        """The last epoch of which records have come; -1: none have."""
        self._changes, self._pace = changes, pace

    @property
    def is_held(self) -> bool:
        """Whether nothing may be taken now of what its feeder has sent."""
        return self.epoch is not None and self._pace.holds(self.epoch)

    def begin(self) -> None:
        """Begin in epoch 0, which the progress graph counts from the beginning."""
        self.epoch = 0

    def send(self) -> Timestamp:
        """Records of the current epoch have come; gives their time."""
        assert self.epoch is not None
        self.sends += 1
        self.begun = self.epoch
        self._pace.begins(self.epoch)
        return Timestamp(self.epoch)

    def advance(self, epoch: int) -> None:
        """No more records before ``epoch``."""
        assert self.epoch is not None
        self._changes.at_vertex(Timestamp(self.epoch), -1)
        self._changes.at_vertex(Timestamp(epoch), 1)
        self._pace.begins(epoch)
        self.epoch = self.before = epoch

    def close(self, *, is_cut: bool = False) -> None:
        """No more records. ``is_cut``: the last epoch may be incomplete."""
        if self.epoch is None:
            return
        if not is_cut:
            self.before = None
        self._changes.at_vertex(Timestamp(self.epoch), -1)
        self.furthest = max(self.furthest, self.epoch)
        self._changes.end(self.furthest)
        self.epoch = None

    def resume(self, rest: Mapping[str, Any]) -> None:
        """Continue from the position in a part of a snapshot (:meth:`PartRest.plain`)."""
        self.frames, self.sends = rest["input_frames"], rest["input_sends"]
        self.note = rest.get("input_note")
        if rest["input_epoch"] is None:
            self.advance(rest.get("furthest", 0))
            self.close()
        elif rest["input_epoch"]:
            self.advance(rest["input_epoch"])
        last = rest["input_epoch"] if rest["input_epoch"] is not None else self.furthest
        self.begun = rest.get("input_begun", last if self.sends else -1)  # an earlier version did not tell: there may be records of it
        self.before = rest["input_epoch"] if rest["input_epoch"] is not None else rest.get("input_before")
