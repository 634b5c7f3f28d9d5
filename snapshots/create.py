"""Create-if-absent: the one operation that coordinators and keepers are fenced with.

Whatever several processes may write, each under the belief that it is alone, has a name that is made once: of those that try, one is told
that it has made it, and the others that they are too late. Where a file system cannot do this in one step it is refused by name, since a
check and then a write is a fence with a gap (decision 071).

- local file systems, NFS among them: a synced file of unique name, ``.<name>.<32 hex digits>.creating`` beside it, gets the name as its
  second link. A process that dies inside leaves at most the file of unique name.
- S3, GCS and Azure: a put with the condition that nothing is there (`rayad.snapshots.buckets`); s3fs and gcsfs have it themselves.
- a file system of your own: a `pyarrow.fs.PyFileSystem` whose handler has ``create_if_absent(path: str, data: bytes) -> bool``.

Everything else that stores do (read, list, delete, streams) is pyarrow's.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from pyarrow import fs

from rayad.progress import ConfigError
from rayad.snapshots.buckets import BUCKETS, Objects, fsspec_objects_of, objects_of, store_of

UNFINISHED = re.compile(r"\..*\.[0-9a-f]{32}\.creating", re.DOTALL)
"""Names of files that a create has not finished, or that a process left which died inside one: nothing of them counts."""

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""What a file system without hard links says. The link is to a file that this process has just made, in the same folder."""

_TRIES = 2
"""Puts without an answer, besides those that obstore repeats: a create in a bucket ends after 2 x 2 x (15 + 20) s = 140 s at the latest."""


def create_if_absent(filesystem: fs.FileSystem, path: str, data: bytes, *, mode: int = 0o666) -> bool:
    """Make the file ``path`` with this content in one step, unless something is there.

    True: it is there now, and made by this call. A call whose answer was lost may be repeated: an identical content counts as made by it,
    so contents of different writers must differ (by a run number, say). False: another content is there. Afterwards the file is durable.

    On local file systems the file gets ``mode``, less the umask. The folder must exist. It is not made: a store whose folder has gone away
    must not come back empty.

    Raises OSError when the store does not take the file, or when it is not known whether it did; the call may be repeated. Raises
    ConfigError naming the file system where it can do neither links nor conditional puts.
    """
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, f"{filesystem.base_path}{path}"
    return _creator(filesystem, path, mode)(path, data)


def check_can_create(filesystem: fs.FileSystem, where: str) -> None:
    """Raise ConfigError, which begins with ``where`` and names the file system, if `create_if_absent` refuses file systems of this kind.

    Early: nothing is written or asked. What only a try shows is told by the first `create_if_absent`: a folder on a file system without
    links, a server that takes no notice of the condition.
    """
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    _creator(filesystem, where)
    if filesystem.type_name in BUCKETS:
        store_of(filesystem, "any", where)


def _creator(filesystem: fs.FileSystem, where: str, mode: int = 0o666) -> Callable[[str, bytes], bool]:
    """What creates files in this file system; ConfigError where nothing does."""
    kind = filesystem.type_name
    if kind == "local":
        return partial(_by_link, mode)
    if kind in BUCKETS:
        return lambda path, data: _by_put(objects_of(filesystem, path), filesystem, path, data)
    handler = filesystem.handler if isinstance(filesystem, fs.PyFileSystem) else None
    if callable(own := getattr(handler, "create_if_absent", None)):
        return partial(_by_handler, own)
    if isinstance(handler, fs.FSSpecHandler):
        kind = f"{type(handler.fs).__module__}.{type(handler.fs).__qualname__}"
        if kind == "fsspec.implementations.local.LocalFileSystem":
            return partial(_by_link, mode)
        if {"s3fs", "gcsfs"} & {base.__module__.partition(".")[0] for base in type(handler.fs).__mro__}:
            return lambda path, data: _by_put(fsspec_objects_of(filesystem, path), filesystem, path, data)
        kind += ", of fsspec,"
    elif handler is not None:
        kind = f"{type(handler).__module__}.{type(handler).__qualname__}, a file system of your own,"
    if kind == "hdfs":
        why = "HDFS by pyarrow cannot make a file only where none is: its writes and its renaming replace what is there"
    else:
        why = f"{kind} is not known to make a file, in one step, only where none is"
    raise ConfigError(
        f"{where}: {why}; so two coordinators could overwrite each other there. Use a local or NFS folder, S3, GCS or Azure (of pyarrow; "
        "or s3fs, gcsfs), or give the handler of a pyarrow.fs.PyFileSystem a method create_if_absent(path, data) -> bool"
    )


def _by_handler(create: Callable[[str, bytes], bool], path: str, data: bytes) -> bool:
    return bool(create(path, data))


def _by_put(objects: Objects, filesystem: fs.FileSystem, path: str, data: bytes) -> bool:
    """Create an object. The first time, the server is tried out before: one that takes no notice of the condition would be no fence."""
    if not objects.is_tried_out:
        _try_out(objects, filesystem, path)
        objects.is_tried_out = True
    return _put(objects, path, data)


def _put(objects: Objects, path: str, data: bytes) -> bool:
    for _ in range(_TRIES):
        try:
            objects.put(path, data)
            return True
        except PermissionError:
            raise
        except OSError as error:
            failed = error
        # "There is one" may mean ours, whose answer was lost; or that another put is under way, which may fail (409 of S3). Where there is
        # none, ours may still be on its way: putting it again does no harm, since only one of the two can succeed.
        try:
            is_ours = objects.holds(path, data)
        except OSError:
            continue
        if is_ours is not None:
            return is_ours
    raise OSError(f"{path}: not created, or not known to be: {failed}")


def _try_out(objects: Objects, filesystem: fs.FileSystem, path: str) -> None:
    """Put an object of unique name twice: the second put must fail, and pyarrow must see the first."""
    tried, data = _unfinished(path), b"Rayad tries out whether If-None-Match is heeded here."
    so = "so two coordinators could overwrite each other there"
    try:
        _put(objects, tried, data)
        if _put(objects, tried, data + b" It is not."):
            raise ConfigError(
                f"{path}: the server takes no notice of If-None-Match, it has put an object over another; {so}. Use one that knows "
                "conditional puts: AWS; MinIO, Ceph and others in newer versions"
            )
        if filesystem.get_file_info(tried).size != len(data):
            raise ConfigError(
                f"{path}: pyarrow does not see what obstore, which makes files only where none is, has put; {so}. The two differ in "
                "endpoint or region: give these to the file system or in the URI, not by the environment"
            )
    finally:
        try:
            objects.remove(tried)
        except OSError:
            pass  # what is left is recognised by its name


def _unfinished(path: str) -> str:
    """A name that nobody else has, in the same folder."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.{uuid4().hex}.creating"


def _by_link(mode: int, path: str, data: bytes) -> bool:
    """Create a file of a local file system: a synced file of unique name is linked to its own one, which fails if that is taken."""
    own = _unfinished(os.path.abspath(path).replace(os.sep, "/"))
    try:
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        is_made = _link(own, path, data)
    finally:
        try:
            os.unlink(own)
        except OSError:
            pass  # what is left is recognised by its name
    if is_made:
        sync_local(os.path.dirname(own))
    return is_made


def local_path(path: str) -> str:
    """A local path as pyarrow and everything here has it: absolute, with slashes, also on Windows."""
    return os.path.abspath(os.path.expanduser(path)).replace(os.sep, "/")


def sync_local(path: str) -> None:
    """Make a local file, or the names in a local folder, survive a power cut. Windows syncs no folders: its file system keeps a journal."""
    if hasattr(os, "O_DIRECTORY"):
        flags = os.O_RDONLY
    elif os.path.isdir(path):
        return
    else:
        flags = os.O_RDWR  # which it demands of what is synced
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(own: str, path: str, data: bytes) -> bool:
    """Give a file its second name. NFS repeats a request whose answer was lost, and then says that the name is taken, by ourselves."""
    try:
        os.link(own, path)
    except OSError as error:
        with open(own, "rb") as file:  # opened: NFS may remember the number of links, but asks when a file is opened
            if os.fstat(file.fileno()).st_nlink == 2:
                return True
        if isinstance(error, FileExistsError):
            with open(path, "rb") as file:
                return file.read(len(data) + 1) == data
        if error.errno in _NO_LINKS:
            raise ConfigError(
                f"{path}: its file system ({_mounted_at(os.path.dirname(own))}) has no hard links ({error.strerror}), by which files are "
                "made only where none is; so two coordinators could overwrite each other there. Use a folder on another file system (ext4, "
                "XFS, NFS), or an object store"
            ) from error
        raise
    return True


def _mounted_at(folder: str) -> str:
    """The type of the file system that a folder is on, and where it is mounted: ``vfat at /mnt/stick``."""
    kind, found = file_system_of(folder)
    return f"{kind} at {found}" if found else kind


def file_system_of(folder: str) -> tuple[str, str]:
    """The type of the file system that a local folder is on, and where it is mounted; ``("unknown", "")`` where the system does not tell.

    >>> kind, mounted_at = file_system_of("/")
    """
    folder = os.path.join(os.path.realpath(folder), "")
    found, kind = "", "unknown"
    try:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                _, point, its_kind, *_ = line.split(" ")
                point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
                if folder.startswith(os.path.join(point, "")) and len(point) >= len(found):
                    found, kind = point, its_kind
    except OSError:
        pass  # it is not known, then
    return kind, found


__all__ = ["UNFINISHED", "check_can_create", "create_if_absent", "file_system_of", "local_path", "sync_local"]
