"""Which files a path means, on which file system.

A path may be a file, a directory (its files at any depth, in order of name, without those that start with ``.`` or ``_``), a local glob, a
URI (``s3://bucket/dir``), or a list of these. All paths are resolved when the source is made, so that a wrong path fails at the call
and not minutes later in a replica.
"""

from __future__ import annotations

import datetime
import glob as _glob
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from rayad.progress import ConfigError, arguments, say, show, without_secrets
from rayad.snapshots.create import local_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FoundFile(NamedTuple):
    """A file, its size in bytes, and its modification time (nanoseconds since 1970; None where the file system has none)."""

    path: str
    size_bytes: int
    changed_ns: int | None = None


def files_fingerprint(files: Sequence[FoundFile]) -> dict[str, Any]:
    """The :meth:`rayad.dataflow.source.Source.fingerprint` of files: the size and time of each, and their order if it is not that of their
    names.

    >>> files_fingerprint([FoundFile("b", 1, 0), FoundFile("a", 2)])
    {'files': {'b': '1 bytes, changed 1970-01-01T00:00:00.000000', 'a': '2 bytes'}, 'order of files': 'b, a'}
    """
    paths = [file.path for file in files]
    order = None if paths == sorted(paths) else ", ".join(paths)
    return {"files": {file.path: f"{file.size_bytes} bytes{_changed(file.changed_ns)}" for file in files}, "order of files": order}


def _changed(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return ""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=nanoseconds // 1000)
    return f", changed {moment.isoformat(timespec='microseconds')}"


def find_files(paths: Paths, filesystem: fs.FileSystem | None, where: str) -> tuple[fs.FileSystem, tuple[FoundFile, ...]]:
    """The file system and the files of ``paths``; ConfigError naming a path that has none."""
    several = isinstance(paths, Sequence | set | frozenset | Iterator) and not isinstance(paths, str | bytes)
    given: list[Any] = list(paths) if several else [paths]  # type: ignore[arg-type]
    if not given:
        raise ConfigError(f"{where}: got an empty list of paths; give at least one file, directory or URI")
    check_filesystem(filesystem, where)
    found: list[FoundFile] = []
    chosen: fs.FileSystem | None = filesystem
    for item in given:
        text = arguments.path(item, f"{where}: a path", error=ConfigError)
        home, path = _file_system(text, filesystem, where)
        if chosen is not None and not home.equals(chosen):
            raise ConfigError(
                f"{where}: {text!r} is on {home.type_name!r}, the paths before it on {chosen.type_name!r}; use one source for each"
            )
        chosen = home
        found += _expand(home, path, text, where)
    assert chosen is not None
    return chosen, tuple(found)


def check_filesystem(filesystem: Any, where: str) -> None:
    """Raise ConfigError unless ``filesystem`` is None or one of pyarrow's."""
    check_arrow(filesystem, fs.FileSystem, f"{where}: filesystem", "a pyarrow.fs.FileSystem")


def check_schema(schema: Any, where: str) -> None:
    """Raise ConfigError unless ``schema`` is None or one of pyarrow's."""
    check_arrow(schema, pa.Schema, f"{where}: schema", "a pyarrow.Schema")


def check_arrow(value: Any, kind: type, what: str, told: str) -> None:
    """Raise ConfigError unless a value is None or of a class of pyarrow's."""
    if value is not None and not isinstance(value, kind):
        raise ConfigError(f"{what} is {show(value, 60)}: it must be {told}, or None")


def _file_system(text: str, filesystem: fs.FileSystem | None, where: str) -> tuple[fs.FileSystem, str]:
    if filesystem is not None:
        return filesystem, text
    if "://" in text:
        try:
            home, path = fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(
                f"{where}: cannot open the URI {text!r}: {say(error, text)}; give a local path, a known URI, or filesystem="
            ) from without_secrets(error, text)
        return home, path
    return fs.LocalFileSystem(), local_path(text)


def _expand(home: fs.FileSystem, path: str, text: str, where: str) -> list[FoundFile]:
    try:
        info = home.get_file_info(path)
        if info.type == fs.FileType.File:
            return [FoundFile(path, info.size, info.mtime_ns)]
        if info.type == fs.FileType.Directory:
            inside = home.get_file_info(fs.FileSelector(path, recursive=True))
            files = [
                FoundFile(i.path, i.size, i.mtime_ns)
                for i in inside
                if i.type == fs.FileType.File and not is_hidden(i.path[len(path) :].strip("/"))
            ]
            if not files:
                raise ConfigError(f"{where}: the directory {text!r} holds no files (those that start with '.' or '_' do not count)")
            return sorted(files)
    except OSError as error:
        raise ConfigError(f"{where}: cannot look at {text!r}: {error}; check that it exists and may be read") from error
    if isinstance(home, fs.LocalFileSystem) and _glob.has_magic(path):
        names = sorted(name.replace(os.sep, "/") for name in _glob.glob(path, recursive=True) if os.path.isfile(name))
        if names:
            return [FoundFile(info.path, info.size, info.mtime_ns) for info in home.get_file_info(names)]
        raise ConfigError(f"{where}: nothing matches {text!r} (as {path!r})")
    raise ConfigError(f"{where}: there is no file or directory {text!r} (looked at {path!r} on the {home.type_name!r} file system)")


def is_hidden(relative: str) -> bool:
    """Spark's rule: a name that starts with ``.`` or ``_`` hides all below it, unless it is a partition directory such as ``_epoch=3``."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in relative.split("/"))


__all__ = ["FoundFile", "Paths", "check_arrow", "check_filesystem", "check_schema", "files_fingerprint", "find_files", "is_hidden"]
