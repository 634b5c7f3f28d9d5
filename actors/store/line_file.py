"""A file of lines that is only appended to, on any of pyarrow's file systems, by a thread of its own.

Whoever appends never waits for the store. Object stores append to nothing: there the whole file is written again, which is why the
lines are bounded. Lines that cannot be written are dropped, with one warning: they are a record for people, and no state.
"""

from __future__ import annotations

import logging
import os
import queue
from collections import deque

from pyarrow import fs

from rayad.actors.process.threads import OwnedThread
from rayad.snapshots.port import make_private_folder, open_private

_log = logging.getLogger(__name__)
LINES_MOST = 1_000
"""Of a file on an object store: so many of the newest lines are kept."""
TAIL_BYTES = 1 << 20
"""So much of the end of a file is read; the first line of that may be cut off."""
QUEUED_MOST = 1_000
"""So many lines wait for a store that is away; further ones are dropped."""


def lines_of(filesystem: fs.FileSystem, path: str) -> list[str]:
    """The lines at the end of a file. Raises OSError, FileNotFoundError."""
    with filesystem.open_input_file(path) as file:
        file.seek(max(0, file.size() - TAIL_BYTES))
        text: str = file.read().decode(errors="replace")
    return text.splitlines()


class LineFile:
    """One file of lines.

    Args:
        filesystem: where it is.
        path: its path there; the folders above are made. On a local file system both are for their owner alone.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._fs = filesystem
        self._path = path
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._lines: deque[str] = deque(maxlen=LINES_MOST)
        self._waiting: queue.Queue[str | None] = queue.Queue(QUEUED_MOST)
        self._has_warned = self._is_made = False
        self._thread = OwnedThread("lines", self._run).start()

    def read(self) -> list[str]:
        """The newest lines that are there; none where there is no such file, or it cannot be read."""
        try:
            self._lines.extend(lines_of(self._fs, self._path))
        except FileNotFoundError:
            pass
        except OSError as error:
            self._warn(f"cannot be read: {error}")
        return list(self._lines)

    def append(self, line: str) -> None:
        """Write a line, soon. From any thread."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._warn("is not written any more: the store does not answer")

    def close(self, timeout_s: float) -> None:
        """Write what waits, for at most so long."""
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            self._warn("ends early: the store does not answer")
            return
        self._thread.close(timeout_s)

    def _run(self) -> None:
        is_open = True
        while is_open:
            lines = [self._waiting.get()]  # ends with close(), or with the process
            while not self._waiting.empty():
                lines.append(self._waiting.get_nowait())
            is_open = None not in lines
            try:
                self._write([line for line in lines if line is not None])
            except (OSError, ValueError) as error:
                self._warn(f"cannot be written: {error}")

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        if not self._is_made:  # later it is not made again: where it has gone away, stores must not find an empty one
            folder = self._path.rpartition("/")[0]
            if self._is_local:
                make_private_folder(folder)
            else:
                self._fs.create_dir(folder, recursive=True)
            self._is_made = True
        self._lines.extend(lines)
        if self._is_local:
            with open_private(self._path, os.O_APPEND) as stream:
                stream.write("".join(f"{line}\n" for line in lines).encode())
        else:
            with self._fs.open_output_stream(self._path, compression=None) as stream:
                stream.write("".join(f"{line}\n" for line in self._lines).encode())

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s %s", self._path, what)
