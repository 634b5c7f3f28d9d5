"""The outputs of the four applications: an image, numbers, a file of pieces."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kernels import Row, View


class Frames:
    """Rows of a Mandelbrot set in any order, made into frames: an array (frames x size x size, uint16)."""

    def __init__(self, view: View, frames: int) -> None:
        self.view, self.frames = view, frames
        self.rows: list[tuple[Row, Any]] = []

    def add(self, result: tuple[Row, Any]) -> None:
        self.rows.append(result)

    def take(self) -> list[tuple[Row, Any]]:
        rows, self.rows = self.rows, []
        return rows

    def finish(self, parts: Sequence[list[tuple[Row, Any]]]) -> Any:
        frames = np.empty((self.frames, self.view.size, self.view.size), np.uint16)
        found = 0
        for part in parts:
            for (frame, row), counts in part:
                frames[frame, row] = counts
                found += 1
        if found != self.frames * self.view.size:
            raise ValueError(f"{found} rows have come, not {self.frames} frames of {self.view.size}")
        return frames


class Numbers:
    """Numbers in any order; those that are not 0 become an ascending array (int64)."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, result: int) -> None:
        if result:
            self.numbers.append(result)

    def take(self) -> Any:
        numbers, self.numbers = self.numbers, []
        return np.array(numbers, np.int64)

    def finish(self, parts: Sequence[Any]) -> Any:
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))


class Pieces:
    """Pieces of bytes, concatenated in order to the file ``path``.

    The pieces between two calls of ``take`` are a file beside it, which ``finish`` moves or copies. So a sink can stage with every
    snapshot, and pieces in no snapshot are in none of the named files.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self.part: Path | None = None
        self.file: Any = None

    def add(self, result: bytes) -> None:
        if self.file is None:
            self.part = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
            self.file = self.part.open("wb")
        self.file.write(result)

    def take(self) -> str | None:
        if self.file is None:
            return None
        self.file.close()
        self.file = None
        return str(self.part)

    def finish(self, parts: Sequence[str | None]) -> str:
        named = [Path(part) for part in parts if part is not None]
        if any(part.exists() for part in named) or not named:  # else an earlier call has done it
            whole = named[0] if named else self.path
            with whole.open("ab" if named else "wb") as file:
                for part in named[1:]:
                    with part.open("rb") as piece:
                        shutil.copyfileobj(piece, file)
            os.replace(whole, self.path)
            for part in named[1:]:
                part.unlink()
        return str(self.path)


def md5_of_array(array: Any) -> str:
    """The MD5 of the array's bytes."""
    return hashlib.md5(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).hexdigest()


def md5_of_file(path: str) -> str:
    """The MD5 of the file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
