"""What a part file is written to: it goes to a stream, and is counted and digested on its way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias


class _Stream(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


class PartSink:
    """Bytes on their way to a stream: how many, and their SHA-256. It is closed by who has the stream."""

    closed = False

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """Of what was written so far, in hex."""
        return self._digest.hexdigest()

    def write(self, data: bytes | memoryview) -> int:
        """Write a piece; gives its bytes."""
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self._stream.write(data)
        self._digest.update(data)
        self.size += size
        return size

    def take(self, pieces: Pieces) -> None:
        """Write all of a part."""
        if callable(pieces):
            pieces(self)
            return
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """The stream does it when it is closed."""

    def close(self) -> None:
        """The stream is closed by who has it."""


Pieces: TypeAlias = Iterable[bytes | memoryview] | Callable[[PartSink], None]
"""The content of a part: pieces, one behind the other, or a function that writes them."""

__all__ = ["PartSink", "Pieces"]
