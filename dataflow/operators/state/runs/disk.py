"""Runs on disk: beyond a bound on memory they lie in files of the replica's own, mapped.

A file is one batch in Arrow's IPC format: the numbers of a run (place, tick, what is beside them), then its rows. Mapped pages are the
system's to drop and to read again. The mapping is private: a number beside a row that the operator changes costs the page that it is on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.runs.files import Content, RunFile
from rayad.dataflow.operators.state.runs.run import Run

FILE_BYTES_MIN = 1 << 16
"""Smaller runs stay in memory where the bound has room for a few of them, and are merged soon."""
HELD_PART, LEFT_PART, PIECE_PART = 2, 4, 16
"""Runs in memory may be this part of the bound, a half; then they become a quarter. The rest is for merging: of a piece of one sixteenth
are there what it is made of, that put together, and the result."""


class RunFiles(Protocol):
    """Where runs go; the shell has the disk."""

    def mapped(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        """Write a batch as an Arrow IPC file, and give its content, mapped: to be changed by who gets it, in memory alone. The space is
        given back when nothing refers to it any more, and at the end of the process, however it ends. Raises where the disk is full."""

    def in_store(self, name: Any) -> Content | None:
        """What is in a file that the replica has written to the store of snapshots, mapped; None where it cannot be mapped."""


class Bounded(Protocol):
    """Runs that are kept within a bound."""

    memory: MemoryBound | None

    @property
    def memory_bytes(self) -> int:
        """What of them is in memory."""

    def all(self) -> list[Run]:
        """All of them."""

    def files(self) -> list[RunFile]:
        """The files of those that a snapshot names."""


class Holder(Protocol):
    """State, of which some may be runs."""

    @property
    def noted_bytes(self) -> int:
        """What is kept for the next increment."""

    def forget_changes(self) -> None:
        """Keep nothing for an increment: the next snapshot has all."""

    def runs(self) -> Iterable[Bounded]:
        """Those of it."""


class MemoryBound:
    """Keeps the runs of one replica within a bound on memory.

    Args:
        bytes_max: in memory, in bytes, with what merging takes.
        files: where the others go.
    """

    def __init__(self, bytes_max: int, files: RunFiles) -> None:
        self.bytes_max = bytes_max
        self.files = files

    @property
    def piece_bytes(self) -> int:
        """How large a piece of a merge is that is not done in memory."""
        return max(1, self.bytes_max // PIECE_PART)

    @property
    def gathered_bytes_max(self) -> int:
        """How much of one time a step may gather before it is sent."""
        return self.bytes_max // LEFT_PART

    @property
    def file_bytes_min(self) -> int:
        """How large a run is at least that goes to disk: most pieces of a merge are, however small the bound is."""
        return min(FILE_BYTES_MIN, self.piece_bytes // 4)

    def hold(self, states: Iterable[Holder]) -> None:
        """Put the largest runs of a replica's states on disk, where all that are in memory are too many; forget what is kept for an
        increment, where that is: then the next snapshot has all."""
        kept: list[Bounded] = []
        for state in states:
            if state.noted_bytes > self.bytes_max // LEFT_PART:
                state.forget_changes()
            kept += state.runs()
        for runs in kept:
            runs.memory = self
        if sum(runs.memory_bytes for runs in kept) <= self.bytes_max // HELD_PART:
            return
        there = [run for runs in kept for run in runs.all() if not run.on_disk]
        held = sum(run.nbytes for run in there)
        for run in sorted(there, key=lambda run: run.nbytes, reverse=True):
            if held <= self.bytes_max // LEFT_PART:
                break
            held -= run.nbytes
            self.put(run)

    def put(self, run: Run) -> Run:
        """Put a run on disk, unless it is small or there; gives it."""
        if run.on_disk or run.nbytes < self.file_bytes_min:
            return run
        if run.is_mapped or self._found_in_store(run):
            self._put_mapped(run)
        else:
            _put(run, self.files)
        return run

    def put_in_store(self, run: Run) -> None:
        """Let a run on disk be the file that a snapshot has of it, where there is one by now: its own is given back."""
        if run.on_disk and not run.is_mapped and self._found_in_store(run):
            self._put_mapped(run)

    def _found_in_store(self, run: Run) -> bool:
        name = None if run.file is None else run.file.name
        content = None if name is None else self.files.in_store(name)
        if content is None or (content.place is None) is not (run.place is None):
            return False
        content = content.cut(run.first, len(run))
        others = {name: numbers for name, numbers in run.beside.items() if name not in content.beside}
        run.rows, run.place, run.tick, run.beside = content.rows, content.place, content.tick, {**others, **content.beside}
        run.is_mapped, run.in_memory = True, tuple(name for name, numbers in others.items() if isinstance(numbers, np.ndarray))
        return True

    def _put_mapped(self, run: Run) -> None:
        for name in run.in_memory:
            run.beside[name] = self.mapped(run.beside[name].view(np.uint8)).view(run.beside[name].dtype)
        run.index, run.size, run.on_disk, run.in_memory = None, None, True, ()

    def mapped(self, array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The bytes of an array in a file, to be changed in memory alone."""
        content = self.files.mapped(pa.RecordBatch.from_arrays([pa.array(array)], names=["bytes"]))
        with pa.ipc.open_file(pa.py_buffer(content)) as reader:
            return _numbers(content, reader.get_batch(0).column(0), np.uint8)


def _put(run: Run, files: RunFiles) -> None:
    """Let the numbers and rows of a run be mapped ones. They are the same, so whoever has the run goes on with it."""
    numbers = {name: array for name, array in run.beside.items() if isinstance(array, np.ndarray) and array is not run.tick}
    fixed = [array for array in (run.place, run.tick) if array is not None]
    arrays = [*fixed, *numbers.values()]
    columns = [pa.array(array.view(np.uint8) if array.dtype == np.bool_ else array) for array in arrays]
    schema = run.rows.schema
    fields = [pa.field(f"number {at}", column.type) for at, column in enumerate(columns)]
    batch = pa.RecordBatch.from_arrays([*columns, *run.rows.columns], schema=pa.schema([*fields, *schema], metadata=schema.metadata))
    content = files.mapped(batch)
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        again = reader.get_batch(0)
    mapped = [_numbers(content, again.column(at), array.dtype) for at, array in enumerate(arrays)]
    for array in mapped[: len(fixed)]:
        array.flags.writeable = False
    beside = dict(zip(numbers, mapped[len(fixed) :], strict=True))
    tick, place = run.tick, run.place
    if tick is not None:
        run.tick = mapped[len(fixed) - 1]
    if place is not None:
        run.place = mapped[0]
    run.beside = {name: run.tick if array is tick and tick is not None else beside.get(name, array) for name, array in run.beside.items()}
    run.rows = pa.RecordBatch.from_arrays(again.columns[len(arrays) :], schema=schema)
    run.index, run.on_disk = None, True


def _numbers(content: npt.NDArray[np.uint8], column: pa.Array, kind: Any) -> npt.NDArray[Any]:
    """A column of what is mapped as an array that may be changed."""
    buffer = column.buffers()[1]
    begin = buffer.address - content.ctypes.data
    return content[begin : begin + len(column) * np.dtype(kind).itemsize].view(kind)


__all__ = ["FILE_BYTES_MIN", "MemoryBound", "RunFiles"]
