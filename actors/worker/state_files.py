"""Files of the runs that do not fit in memory, mapped: without a name, so nothing is left behind whatever ends the process, or the files
that snapshots have of them."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.actors.plane.positioned import open_unnamed
from rayad.actors.plane.spilling_queue import SpillError
from rayad.dataflow.operators.state.runs.files import Content, opened
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import PartFile
from rayad.snapshots.mapped import mapped
from rayad.snapshots.store import SnapshotStore

_PREFIX = "rayad-state-"
RELEASED_EVERY_BYTES = 1 << 25
"""When so much has been written memory that is free goes back to the system: what was written was in memory, and the process keeps what it
frees (``rayad.actors.process.allocator``), in pieces between others that grow with the state."""


class StateFiles:
    """See :class:`rayad.dataflow.operators.state.runs.disk.RunFiles`.

    Args:
        vertex: whose state it is, for messages.
        directory: the folder; None: the system's temporary one.
        store: of snapshots; None: there are none.
    """

    def __init__(self, vertex: str, directory: str | None, store: SnapshotStore | None = None) -> None:
        self._vertex = vertex
        self._directory = directory
        self._store = store
        self._written = 0  # since memory was last released

    def mapped(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        """Write a batch, and map what was written. Raises SpillError where the disk does not take it."""
        try:
            fd = open_unnamed(self._directory, _PREFIX)
            try:
                with os.fdopen(fd, "wb", closefd=False) as file, pa.ipc.new_file(pa.PythonFile(file), batch.schema) as writer:
                    writer.write_batch(batch)
                size = os.fstat(fd).st_size
                self._release(size)
                return mapped(fd, size)
            finally:
                os.close(fd)
        except OSError as error:
            place = self._directory or tempfile.gettempdir()
            raise SpillError(
                f"cannot put {batch.nbytes} bytes of the state of {self._vertex!r} on disk, in {place!r}: {error.strerror or error}; free "
                "space there, or give another folder by RunConfig(spill_directory=...), or more memory by state_memory_bytes"
            ) from error

    def _release(self, written: int) -> None:
        self._written += written
        if self._written >= RELEASED_EVERY_BYTES:
            self._written = 0
            pa.default_memory_pool().release_unused()  # of the C library, where it allocates from that: numpy's arrays, too

    def in_store(self, name: PartFile) -> Content | None:
        if self._store is None or not self._store.is_shared_by_name:
            return None
        try:
            return opened(self._store.map_named(name), is_mapped=True)
        except SnapshotError:
            return None  # the next snapshot tells what is the matter with the store


__all__ = ["StateFiles"]
