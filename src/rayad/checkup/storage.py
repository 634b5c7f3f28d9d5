"""Whether a store does what a job's snapshots need of it: write, list, read and delete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

from pyarrow import fs

from rayad.actors.process.threads import OwnedThread
from rayad.checkup.finding import Finding, fail, ok
from rayad.progress import say

STORE_S = 30.0
"""How long it may take."""
DATA = b"rayad doctor"


def open_store(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or a URI, and the folder in it. Raises OSError, ValueError."""
    if "://" in path:
        home, folder = fs.FileSystem.from_uri(path)
        return home, folder.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path))


def put(path: str, name: str) -> None:
    """Write a small file. Raises OSError, ValueError."""
    home, folder = open_store(path)
    home.create_dir(folder, recursive=True)
    with home.open_output_stream(f"{folder}/{name}", compression=None) as stream:
        stream.write(DATA)


def names_in(path: str) -> set[str]:
    """The files of the folder. Raises OSError, ValueError."""
    home, folder = open_store(path)
    return {found.base_name for found in home.get_file_info(fs.FileSelector(folder))}


def delete(path: str, name: str) -> None:
    """Remove a file. Raises OSError, ValueError."""
    home, folder = open_store(path)
    home.delete_file(f"{folder}/{name}")


def new_name() -> str:
    """Of a file that nobody else has."""
    return f".rayad-doctor-{uuid.uuid4().hex[:12]}"


def check_store(path: str) -> Finding:
    """Write a file there, list, read and delete it."""
    mend = "give a folder or URI that this user may write, with its credentials in the environment: rayad doctor --storage PATH"
    trouble = bounded(lambda: _try(path))
    if isinstance(trouble, tuple):
        doing, error = trouble
        return fail("storage", f"{path}: cannot {doing}: {error}", mend)
    if trouble is not None:
        return fail("storage", f"{path}: {trouble}", mend)
    return ok("storage", f"{path}: a file was written, listed, read and deleted")


def _try(path: str) -> tuple[str, str] | None:
    """What could not be done, and why."""
    name, doing = new_name(), "write to it"
    try:
        put(path, name)
        doing = "list it"
        if name not in names_in(path):
            return doing, "a file that was written is not in the list"
        home, folder = open_store(path)
        doing = "read from it"
        with home.open_input_stream(f"{folder}/{name}", compression=None) as stream:
            if stream.read() != DATA:
                return doing, "the file has other bytes than were written"
        doing = "delete from it"
        delete(path, name)
    except (OSError, ValueError) as error:
        return doing, say(error, path)
    return None


def bounded(call: Callable[[], Any]) -> Any:
    """What the call gives, or a text where it takes longer than :data:`STORE_S`: file systems try a store that is away for minutes."""
    out: list[Any] = []
    OwnedThread("checkup", lambda: out.append(call())).start().join(STORE_S)  # one that hangs ends with the process
    return out[0] if out else f"no answer within {STORE_S:g} s"


__all__ = ["bounded", "check_store", "delete", "names_in", "new_name", "put"]
