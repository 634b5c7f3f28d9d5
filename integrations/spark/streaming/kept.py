"""Where the rows of a micro-batch are, from when Spark has computed it until all kept snapshots hold it.

With ``commit="snapshot"``, in Spark's own storage: nothing is written, and Spark is told that a batch is done when a snapshot holds it.
With ``commit="stage"``, in a folder: Spark is told as soon as the folder is complete, and a new driver sends what is in it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.refs import first_line
from rayad.integrations.spark.blocks import SparkBlock, SparkBlocks
from rayad.integrations.staged_blocks import MARKER, BlockFolder, StagedBlock
from rayad.progress import ConfigError, DataflowError

WHERE = "from_spark"


class BlocksKept:
    """In the storage of Spark's executors, memory first, then their disks; a replica fetches a partition from there when it has room.

    Each micro-batch is computed once, with state or without: a recovery reads the same rows again.

    A query that is stopped does not interrupt the Python function of its micro-batch: :meth:`keep` may end after :meth:`close`.
    """

    lag_max = 0

    def __init__(self) -> None:
        self._held: dict[int, SparkBlocks] = {}
        self._closing = threading.Lock()
        self._is_closed = False

    def keep(self, query: str, number: int, frame: Any) -> Sequence[SparkBlock]:
        """Compute the frame in Spark. Raises DataflowError if the job has ended meanwhile."""
        held = SparkBlocks(frame)
        with self._closing:
            if not self._is_closed:
                self._held[number] = held
                return held.blocks
        held.release()
        raise DataflowError(f"{WHERE}: micro-batch {number} was computed when the job had ended; the next run gets it again")

    def found(self, query: str) -> Sequence[tuple[int, Sequence[Any]]]:
        """Nothing: Spark's storage ended with the earlier driver."""
        return ()

    def release(self, below: float) -> None:
        """Release these in Spark's executors."""
        with self._closing:
            done = [self._held.pop(number) for number in list(self._held) if number < below]
        for held in done:
            held.release()

    def close(self) -> None:
        """Release all in Spark's executors, and what is computed from now on at once."""
        with self._closing:
            self._is_closed = True
        self.release(float("inf"))


@dataclass(frozen=True, slots=True)
class StagedRows:
    """One partition of a micro-batch in its folder."""

    folder: BlockFolder
    block: StagedBlock

    def table(self) -> pa.Table:
        """Its rows."""
        return self.folder.load(self.block)


class FolderKept:
    """In ``<path>/<query>/<number>/``, an Arrow IPC file for each partition and a list of them that is written last.

    From then on the list *is* the micro-batch, whatever Spark would compute another time. Ray tasks write the files, from the partitions in
    Spark's executors. So values are the same as without a folder, and executors need no code of Rayad.
    """

    def __init__(self, path: str, schema: pa.Schema, lag_max: int) -> None:
        self.filesystem, self.path = open_directory(path, None, WHERE)
        self.schema = schema
        self.lag_max = lag_max
        self._held: dict[int, BlockFolder] = {}

    def keep(self, query: str, number: int, frame: Any) -> Sequence[StagedRows]:
        """Write the frame, unless that has been done."""
        folder = self._folder(query, number)
        staged = folder.read()
        if staged is None:
            computed = SparkBlocks(frame)
            try:
                staged = folder.stage(self.schema, lambda copy: _write(computed.blocks, folder, copy, self.schema.names))
            finally:
                computed.release()
        self._held[number] = folder
        return [StagedRows(folder, block) for block in staged.blocks]

    def found(self, query: str) -> Sequence[tuple[int, Sequence[StagedRows]]]:
        """The complete micro-batches."""
        out = []
        listed = self.filesystem.get_file_info(fs.FileSelector(f"{self.path}/{query}", allow_not_found=True))
        for number in sorted(int(info.base_name) for info in listed if info.base_name.isdigit()):
            folder = self._held[number] = self._folder(query, number)
            staged = folder.read()
            if staged is not None:
                out.append((number, [StagedRows(folder, block) for block in staged.blocks]))
        return out

    def _folder(self, query: str, number: int) -> BlockFolder:
        return BlockFolder(f"{self.path}/{query}/{number:012d}", WHERE, self.filesystem)

    def release(self, below: float) -> None:
        """Delete micro-batches below this number; the list first, so that half a micro-batch never counts as one."""
        for number in sorted(number for number in self._held if number < below):
            folder = self._held.pop(number)
            try:
                if self.filesystem.get_file_info(f"{folder.path}/{MARKER}").type == fs.FileType.File:
                    self.filesystem.delete_file(f"{folder.path}/{MARKER}")
                self.filesystem.delete_dir(folder.path)
            except FileNotFoundError:
                continue

    def close(self) -> None:
        """Nothing: micro-batches that no snapshot holds stay for the next driver."""


def _write(blocks: Sequence[SparkBlock], folder: BlockFolder, copy: str, names: Sequence[str]) -> list[StagedBlock]:
    import ray

    task = ray.remote(num_cpus=0, max_retries=3)(_write_block)
    asked = [task.remote(block, folder, copy, names) for block in blocks]
    try:
        written: list[tuple[str, int]] = ray.get(asked)  # ends with the tasks, or with an error when what they read is lost
    except ray.exceptions.RayError as error:
        raise DataflowError(
            f"{WHERE}: a micro-batch cannot be staged in {folder.path!r}: {type(error).__name__}: {first_line(error)}"
        ) from error
    out, first = [], 0
    for block, (name, rows) in zip(blocks, written, strict=True):
        if rows:
            out.append(StagedBlock(block.partition, rows, first, name))
        first += rows
    return out


def _write_block(block: SparkBlock, folder: BlockFolder, copy: str, names: Sequence[str]) -> tuple[str, int]:
    """Runs in a Ray worker."""
    table = block.table().select(list(names))
    return (folder.write_block(block.partition, copy, table) if table.num_rows else ""), table.num_rows


def query_of(checkpoint: str) -> str | None:
    """The id of the query that a checkpoint folder belongs to; None: it is new, or only Spark can read it."""
    try:
        filesystem, path = open_directory(checkpoint, None, WHERE)
        with filesystem.open_input_stream(f"{path}/metadata") as stream:
            found = json.loads(bytes(stream.read()))
        return str(found["id"])
    except (OSError, ConfigError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


__all__ = ["BlocksKept", "FolderKept", "StagedRows", "query_of"]
