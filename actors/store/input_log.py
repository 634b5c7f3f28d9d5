"""What a driver has sent to a live input and may have to send again after a failure: everything since the last published snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rayad.actors.store.job_store import NothingWhole


class FramesGone(NothingWhole):
    """A snapshot is whole, but what a live input gave after it is not kept any more: only who sends can send it again."""


class InputLog:
    """Frames of one live input, numbered from the beginning of the job; ``taken`` of them have been given out.

    >>> log = InputLog()
    >>> log.append("a"); log.append("b"); log.next(), log.next(), log.waits
    ('a', 'b', 0)
    >>> log.rewind(1); log.next()
    'b'
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first
        """The number of the oldest frame that is kept; after a resume it is the number of frames that the snapshot had consumed."""
        self.taken = first
        self.bytes = 0
        """Size of the frames that are kept."""
        self._frames: deque[Any] = deque()
        self._sizes: deque[int] = deque()

    def __len__(self) -> int:
        """How many frames are kept."""
        return len(self._frames)

    @property
    def waits(self) -> int:
        """How many frames have not been given out."""
        return self.first + len(self._frames) - self.taken

    def append(self, frame: Any, size_bytes: int = 0) -> None:
        """Add a frame."""
        self._frames.append(frame)
        self._sizes.append(size_bytes)
        self.bytes += size_bytes

    def after(self, number: int) -> Iterator[Any]:
        """The frames from a number on, in order, as far as they are kept."""
        return islice(self._frames, max(0, number - self.first), None)

    def peek(self) -> Any:
        """The next frame, which stays the next."""
        return self._frames[self.taken - self.first]

    def next(self) -> Any:
        """Give the next frame out."""
        frame = self.peek()
        self.taken += 1
        return frame

    def rewind(self, taken: int) -> None:
        """Give out again from frame ``taken`` on. Raises FramesGone when that is not kept any more, or was never sent."""
        if not self.first <= taken <= self.first + len(self._frames):
            raise FramesGone(
                f"a live input must resume at frame {taken}, but frames {self.first} to {self.first + len(self._frames)} are there: "
                "start the job again with resume='latest' and send from there"
            )
        self.taken = taken

    def trim(self, below: int) -> None:
        """Drop the frames below this number: they will not be sent again."""
        while self.first < below and self._frames:
            self._frames.popleft()
            self.bytes -= self._sizes.popleft()
            self.first += 1
