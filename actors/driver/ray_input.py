"""A live input of a job on Ray, in the process that feeds the job."""

from __future__ import annotations

from typing import Any

from rayad.actors.driver.inputs import InputPlane
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.lead.saved_inputs import SavedEpochs
from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.protocol import Kind
from rayad.progress import Timestamp


class RayInput(JobInput):
    """Sends directly to the input's replica."""

    mark = ""
    """Whose the next frame is, where that is to be known after the death of this process."""

    def __init__(self, name: str, feed: InputPlane, peer: str) -> None:
        super().__init__(name)
        self._feed = feed
        self._peer = peer
        self.sent, epoch, self.note = feed.open(peer, name)
        self.epoch, self.closed = epoch or 0, epoch is None

    def _job_name(self) -> str:
        return self._feed.job

    def _send(self, batch: Any, timeout_s: float | None) -> int:
        payload = encode_batch(Timestamp(self.epoch), batch)
        self._feed.send(self._peer, Kind.INPUT_BATCH, payload, credit=True, timeout_s=timeout_s, mark=self.mark)
        return self.sent + 1

    def _advance(self, epoch: int) -> None:
        self._feed.send(self._peer, Kind.INPUT_ADVANCE, [epoch.to_bytes(8, "little")], credit=False, mark=self.mark)

    def _tick(self, epoch: int) -> None:
        self._feed.send(self._peer, Kind.INPUT_ADVANCE, [epoch.to_bytes(8, "little")], credit=False)

    def _close(self) -> None:
        if not self._feed.is_over:
            self._feed.send(self._peer, Kind.INPUT_CLOSE, [b""], credit=False, mark=self.mark)

    def _keep_note(self, text: str) -> None:
        self._feed.send(self._peer, Kind.INPUT_NOTE, [text.encode()], credit=False, mark=self.mark)

    def _saved(self) -> SavedEpochs:
        return self._feed.saved(self.name)

    def _wait_saved(self, epoch: int, timeout_s: float | None) -> None:
        self._feed.wait_saved(self._peer, self.name, epoch, timeout_s)
