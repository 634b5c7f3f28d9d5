"""The one way in which stores and outputs change a file system: create-if-absent, write under a new name, move, read, list, delete.

Whoever leads a job may be taken for dead and live on: then two processes write to one folder, and each may stand still between any two
steps. No check helps against that, since any time may pass between the check and the write. Two rules do, and everything in this
project that is kept in files follows them:

- **What others go by is created, never replaced.** A manifest has a number, each number is taken once (:meth:`Port.create` says who was
  first), and number n + 1 is made from number n. So whoever has missed something is told so by the name being taken, or by a higher
  number in the list that it reads after its creation.
- **Only what can never be named again is deleted**: what one's own manifest has replaced, and leftovers of the same life or of earlier
  ones, whose number (the *run number*: the number of the manifest with which a coordinator began) is in their names.

All other files have names that nobody else uses. ``tests/test_house_rules_of_files.py`` keeps other writes out of the folders that
use this; the simulation (``tests/simulation/fence``) makes each call here a step that may be delayed, fail, or be the last one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pyarrow import fs

from rayad.snapshots.buckets import BUCKETS
from rayad.snapshots.create import create_if_absent, file_system_of, sync_local
from rayad.snapshots.mapped import mapped

_CHUNK_BYTES = 1 << 20
LISTED_MIN = 3
"""Of so many files that begin alike a bucket is asked by one listing."""
ON_DISK = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay", "tmpfs"})
"""File systems of one machine: a file that is deleted there stays as long as it is mapped. On a network's the pages of it would be lost."""
PRIVATE, PRIVATE_FOLDER, ANY = 0o600, 0o700, 0o666
"""Modes of local files and folders that hold a job's state, and of other files, before the umask."""


class Entry(NamedTuple):
    """A file or folder below the folder of a port: its name there, and of a file its size in bytes and when it was written (seconds since
    1970; 0 where that is not known)."""

    name: str
    is_file: bool
    size: int
    written_s: float


class Port:
    """One folder of a file system, and what may be done below it. Names are relative to it.

    Args:
        filesystem: any that :func:`rayad.snapshots.create.create_if_absent` knows.
        folder: its path there.
        is_private: whether nobody but the owner may read what is made in a local folder: state of jobs, which holds users' data. What
            sinks write is made as the user's umask has it.

    Methods raise OSError when the file system does not do it; FileNotFoundError where a file to be read or moved is not there.
    """

    def __init__(self, filesystem: fs.FileSystem, folder: str, *, is_private: bool = False) -> None:
        self.filesystem = filesystem
        self.folder = folder.rstrip("/")
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._is_private = is_private and self._is_local
        self._has_folders = filesystem.type_name not in BUCKETS
        self._on_disk: bool | None = None  # nobody has asked

    def path(self, name: str = "") -> str:
        """The path of a name on the file system."""
        return f"{self.folder}/{name}" if name else self.folder

    def name_of(self, path: str) -> str:
        """The name of a path below the folder. Raises ValueError for one that is not there."""
        parts = path.removeprefix(f"{self.folder}/")
        if parts == path or any(part in ("", ".", "..") for part in parts.split("/")):
            raise ValueError(f"{path!r} is not below {self.folder!r}")
        return parts

    # -- reading -------------------------------------------------------------------------------------
    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self.filesystem.open_input_stream(self.path(name), compression=None) as stream:
            return bytes(stream.read())

    def mapped(self, name: str) -> memoryview | None:
        """The content of a file, mapped (:func:`rayad.snapshots.mapped.mapped`); None where the folder is on no disk of this machine."""
        if not self.is_on_disk:
            return None
        with open(self.path(name), "rb") as file:
            return mapped(file.fileno(), os.fstat(file.fileno()).st_size).data

    @property
    def is_on_disk(self) -> bool:
        """Whether the folder is on a disk of this machine."""
        if self._on_disk is None:
            self._on_disk = self._is_local and file_system_of(self.folder)[0] in ON_DISK
        return self._on_disk

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file, a piece at a time."""
        with self.filesystem.open_input_stream(self.path(name), compression=None) as stream:
            while piece := stream.read(_CHUNK_BYTES):
                yield piece

    def entries(self, name: str = "", *, recursive: bool = False) -> list[Entry]:
        """What is in a folder, in order of names; nothing where there is no such folder."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.path(name), allow_not_found=True, recursive=recursive))
        at = len(self.folder) + 1
        return sorted(_entry(info.path[at:], info) for info in found if info.type in (fs.FileType.File, fs.FileType.Directory))

    def files(self, names: Iterable[str]) -> list[Entry | None]:
        """For each name the file that has it; None: none has."""
        names = list(names)
        counts = Counter(name.rpartition("/")[0] for name in names)
        # A bucket is asked for each name by itself, one after the other: a listing of what begins alike answers for a thousand.
        listed = {folder for folder, count in counts.items() if count >= LISTED_MIN and not self._has_folders}
        there = {entry.name: entry for folder in sorted(listed) for entry in self.entries(folder) if entry.is_file}
        asked = [name for name in names if name.rpartition("/")[0] not in listed]
        found = self.filesystem.get_file_info([self.path(name) for name in asked]) if asked else []
        there.update({name: _entry(name, info) for name, info in zip(asked, found, strict=True) if info.type is fs.FileType.File})
        return [there.get(name) for name in names]

    def file(self, name: str) -> Entry | None:
        """The file of this name."""
        return self.files([name])[0]

    # -- writing -------------------------------------------------------------------------------------
    def create(self, name: str, data: bytes) -> bool:
        """Make a file with this content in one step, unless the name is taken; whether the content is there under it now.

        It is on disk then. The folder that it is in has to be there.
        """
        return create_if_absent(self.filesystem, self.path(name), data, mode=PRIVATE if self._is_private else ANY)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A stream into a file of a name that nobody else uses; it is on disk when the block ends."""
        with self.open_new(name) as stream:
            yield stream
        self.sync(name)

    def open_new(self, name: str) -> Any:
        """A stream as that of :meth:`writing`, to be closed and synced by who asks for it."""
        if self._is_private:
            return open_private(self.path(name), os.O_TRUNC)
        return self.filesystem.open_output_stream(self.path(name), compression=None)

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a file of a name that nobody else uses; it is on disk then."""
        with self.writing(name) as stream:
            for piece in pieces:
                stream.write(piece)

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Make a file of a name that nobody else uses; it appears whole. Whether it survives a power cut is not known."""
        through = f"{name}.writing" if self._has_folders else name  # an object of a bucket appears when it is whole
        with self.open_new(through) as stream:
            for piece in pieces:
                stream.write(piece)
        if through != name:
            self.move(through, name)

    def replace(self, name: str, data: bytes, *, through: str) -> None:
        """Give a file this content in one step, through a file of another name that nobody else uses. Only for what follows from manifests,
        so that everybody writes the same."""
        self.write(through, [data])
        self.move(through, name)
        self.sync(name.rpartition("/")[0])

    def move(self, name: str, to: str) -> None:
        """Give a file its other name, which it alone has. On object stores that is a copy and a deletion."""
        self.filesystem.move(self.path(name), self.path(to))

    def make_folder(self, name: str = "", *, parents: bool = True) -> None:
        """Make a folder, where it is not there. ``parents=False``: only in one that is there, else OSError. In buckets there are none."""
        if self._is_private:
            make_private_folder(self.path(name), parents=parents)
        elif self._has_folders:
            self.filesystem.create_dir(self.path(name), recursive=parents)

    def make_root(self) -> list[str]:
        """Make the folder of the port, with those above it; gives the paths of those that were not there, for :meth:`delete_root`."""
        made: list[str] = []
        path = self.folder
        while self._has_folders and path and self.filesystem.get_file_info(path).type is fs.FileType.NotFound:
            made.append(path)
            path = path.rpartition("/")[0]
        Port.make_folder(self)
        return made

    def has_root(self) -> bool:
        """Whether the folder of the port is there. In buckets there are no folders, and nothing that could be missing."""
        return not self._has_folders or self.filesystem.get_file_info(self.folder).type is fs.FileType.Directory

    def sync(self, name: str = "") -> None:
        """Make a local file, or the names in a local folder, survive a power cut; other file systems do so by themselves."""
        if self._is_local:
            sync_local(self.path(name))

    # -- deleting ------------------------------------------------------------------------------------
    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def delete_empty(self, name: str) -> None:
        """Delete a folder if nothing is in it. In one step: what was not there when somebody looked may be there now."""
        self._delete_empty(self.path(name))

    def delete_root(self, made: Iterable[str]) -> None:
        """Delete those of the folders that :meth:`make_root` has made in which nothing is."""
        for path in made:
            self._delete_empty(path)

    def _delete_empty(self, path: str) -> None:
        if isinstance(self.filesystem, fs.LocalFileSystem):
            with suppress(OSError):
                os.rmdir(path)
        elif self._has_folders and not self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            with suppress(FileNotFoundError):
                self.filesystem.delete_dir(path)

    def delete_folder(self, name: str = "") -> None:
        """Delete a folder and all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.path(name))


def open_private(path: str, flag: int) -> Any:
    """A stream into a local file, which is made for its owner alone where it is not there. ``flag``: ``os.O_TRUNC``, or ``os.O_APPEND``."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | flag, PRIVATE), "wb")


def make_private_folder(path: str, *, parents: bool = True) -> None:
    """Make a local folder for its owner alone, where it is not there; likewise those above it. ``parents=False``: else OSError."""
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if not parents or above in ("", path):
            raise
        make_private_folder(above)
        make_private_folder(path)


def _entry(name: str, info: fs.FileInfo) -> Entry:
    is_file = info.type is fs.FileType.File
    return Entry(name, is_file, int(info.size or 0) if is_file else 0, (info.mtime_ns or 0) / 1e9)


__all__ = ["Entry", "Port", "make_private_folder", "open_private"]
