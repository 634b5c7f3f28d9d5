"""A disk that fails on demand: full for a while, torn writes, files damaged after they were written, a crash while it is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyarrow import fs

from rayad.snapshots.port import Entry, Port
from rayad.snapshots.store import MANIFEST, SnapshotStore

DAMAGES = ("truncated", "flipped", "missing")


class FaultyDisk:
    """The disk of one run; it outlives jobs, drivers and coordinators.

    ``full``: how many of the next writes fail, by kind ("part", "manifest"). ``torn``: whether a failed write leaves half of the file.
    ``away``: how many of the next listings and deletions fail.
    ``on_failed``: called for each write that failed. ``on_read``, ``on_write``: called before each file is opened.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.full: dict[str, int] = {}
        self.torn = False
        self.away = 0
        self.lost_answers = 0
        self.damaged: dict[str, bytes] = {}
        self.on_failed: Callable[[str], None] = _nothing
        self.on_read: Callable[[], None] = _nothing
        self.on_write: Callable[[], None] = _nothing

    def fails(self, path: str) -> bool:
        """Whether a write fails now."""
        what = "manifest" if MANIFEST in path else "part"
        if self.full.get(what, 0) <= 0:
            return False
        self.full[what] -= 1
        self.on_failed(what)
        return True

    def damage(self, path: str, how: str) -> None:
        """Damage a file below the folder."""
        file = Path(self.folder, path)
        content = file.read_bytes()
        self.damaged.setdefault(path, content)
        file.unlink()  # another file takes its name: replicas that live may have mapped this one
        if how == "missing":
            pass
        elif how == "truncated":
            file.write_bytes(content[: len(content) // 2])
        else:
            middle = len(content) // 2
            file.write_bytes(content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :])

    def mend(self) -> None:
        """Restore the files, as an operator would when no whole snapshot is left."""
        for path, content in self.damaged.items():
            Path(self.folder, path).parent.mkdir(exist_ok=True)
            Path(self.folder, path).write_bytes(content)
        self.damaged.clear()


def _nothing(*_: Any) -> None:
    pass


class FaultyPort(Port):
    """The production port on a :class:`FaultyDisk`, without syncing, since the machine itself does not fail here."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__(fs.LocalFileSystem(), disk.folder)
        self._disk = disk

    def entries(self, name: str = "", *, recursive: bool = False) -> list[Entry]:
        self._require_there()
        return super().entries(name, recursive=recursive)

    def files(self, names: Iterable[str]) -> list[Entry | None]:
        self._require_there()
        return super().files(names)

    def delete(self, name: str) -> None:
        self._require_there()
        super().delete(name)

    def delete_folder(self, name: str = "") -> None:
        self._require_there()
        super().delete_folder(name)

    def _require_there(self) -> None:
        if self._disk.away > 0:
            self._disk.away -= 1
            self._disk.on_failed("listing")
            raise OSError(errno.EHOSTDOWN, "Host is down (simulated)")

    def read(self, name: str) -> bytes:
        self._disk.on_read()
        return super().read(name)

    def mapped(self, name: str) -> memoryview | None:
        self._disk.on_read()
        return super().mapped(name)

    def pieces(self, name: str) -> Iterator[bytes]:
        self._disk.on_read()
        return super().pieces(name)

    def open_new(self, name: str) -> Any:
        self._disk.on_write()
        stream = super().open_new(name)
        return _FailingStream(stream, self._disk) if self._disk.fails(name) else stream

    def create(self, name: str, data: bytes) -> bool:
        self._disk.on_write()
        if self._disk.fails(name):
            if self._disk.torn:  # a process that dies inside leaves what nobody reads
                self.write(f"{name}.torn.creating", [data[: len(data) // 2]])
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        is_ours = not os.path.exists(self.path(name))
        if is_ours:
            Path(self.path(name)).write_bytes(data)
        if self._disk.lost_answers > 0:
            self._disk.lost_answers -= 1
            self._disk.on_failed("answer")
            raise OSError(errno.EIO, "Input/output error (simulated): the manifest is there, its writer does not know")
        return is_ours

    def sync(self, name: str = "") -> None:
        pass


class _FailingStream:
    """Writes half of the first write if the disk tears writes, else nothing."""

    def __init__(self, stream: Any, disk: FaultyDisk) -> None:
        self._stream = stream
        self._disk = disk

    def __enter__(self) -> _FailingStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, data: bytes) -> None:
        if self._disk.torn:
            self._stream.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device (simulated)")


class FaultyStore(SnapshotStore):
    """The production store on a faulty disk."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__(disk.folder)
        self.disk = disk
        self.port = FaultyPort(disk)


def whole_snapshots(store: FaultyStore) -> list[int]:
    """Which snapshots have no damaged file, are not void, and were not retired by a newer one, found without the store's own checks."""
    out: list[int] = []
    savepoints: set[int] = set()
    away, store.disk.away = store.disk.away, 0  # the harness looks here, not the job
    numbers = store.numbers()
    store.disk.away = away
    for number in numbers:
        names = {f"{number:012d}/{MANIFEST}"}
        if not names & store.disk.damaged.keys():
            manifest = store.load(number)
            kept = manifest.notes.get("kept", out)
            out = [each for each in out if each not in manifest.notes.get("void", ()) and (each in kept or each in savepoints)]
            if manifest.kind == "savepoint":
                savepoints.add(number)
            names |= {file.path for file in manifest.files()}
            if not names & store.disk.damaged.keys() and all(os.path.exists(f"{store.folder}/{name}") for name in names):
                out.append(number)
    return out
