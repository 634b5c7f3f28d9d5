"""Create-if-absent (interim)."""

from __future__ import annotations

import os
import uuid

from pyarrow import fs


def create_if_absent(filesystem: fs.FileSystem, path: str, data: bytes) -> bool:
    """Interim."""
    handler = getattr(filesystem, "handler", None)
    if handler is not None:
        return bool(handler.create_if_absent(path, data))
    while isinstance(filesystem, fs.SubTreeFileSystem):
        path = f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
        filesystem = filesystem.base_fs
    temporary = f"{path}.{uuid.uuid4().hex}.creating"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        with open(path, "rb") as there:
            return there.read() == data
    finally:
        os.unlink(temporary)
    handle = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True
