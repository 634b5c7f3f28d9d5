"""Arrow blocks in Ray's object store as a source: what Ray Data and Spark have in common.

A part is a reference to a block; the replica that reads it maps it from shared memory without a copy. The blocks live as long as the
process that owns them (the driver) and somebody holds a reference: the source holds them on the driver, a replica for as long as its
part is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import DEFAULT_BATCH_ROWS, TablePart, check_batch_rows, check_epoch_column
from rayad.progress import ConfigError, DataflowError


class BlockRef(NamedTuple):
    """A part: block ``number``, its rows, the number of rows in the blocks before it, and the reference to it."""

    number: int
    rows: int
    first_row: int
    ref: Any


class RefSource(Source):
    """Reads blocks (Arrow tables, or buffers with an Arrow IPC stream) by reference.

    ``unit`` is what its user calls a block; ``hint`` says what to do when one is lost.
    """

    where = "from_refs"
    unit = "block"
    hint = "keep the driver alive until the job has ended"

    def __init__(
        self, schema: pa.Schema, parts: Sequence[BlockRef], *, keep: Any = None, epoch: str | None, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> None:
        self.schema = schema
        self._parts: tuple[BlockRef, ...] | None = tuple(parts)
        self._keep = keep
        self._batch_rows = check_batch_rows(batch_rows, self.where)
        self._epoch = epoch
        check_epoch_column(schema, epoch, self.where)
        self.interleave = epoch is not None

    def list_parts(self) -> Sequence[BlockRef]:
        """The blocks that are not empty, in order."""
        if self._parts is None:
            raise ConfigError(
                f"{self.where}: list_parts() of a copy that was sent to another process; the parts are listed where the source was made"
            )
        return self._parts

    def __getstate__(self) -> dict[str, Any]:
        """A replica gets its blocks with its parts; what keeps them alive stays on the driver."""
        return {**self.__dict__, "_keep": None, "_parts": None}

    def build_part(self, part: BlockRef, resume: int | None) -> SourcePart:
        """Open a block; ``resume`` is the number of its rows already given."""
        where = f"{self.where}: {self.unit} {part.number}"
        return TablePart(lambda: self._fetch(part), batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)

    def _fetch(self, part: BlockRef) -> pa.Table:
        import ray

        try:
            block = ray.get(part.ref)
        except ray.exceptions.RayError as error:
            raise DataflowError(
                f"{self.where}: {self.unit} {part.number} (rows {part.first_row} to {part.first_row + part.rows}) is lost: "
                f"{type(error).__name__}: {first_line(error)}; {self.hint}"
            ) from error
        table = pa.ipc.open_stream(block).read_all() if isinstance(block, pa.Buffer) else block
        if table.num_rows != part.rows:
            raise DataflowError(f"{self.where}: {self.unit} {part.number} has {table.num_rows} rows, it was listed with {part.rows}")
        return table.select(self.schema.names)


def first_line(error: BaseException) -> str:
    """What an error of Ray says in its first line; the rest is stacks of other processes."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def number_blocks(blocks: Sequence[tuple[Any, int]]) -> tuple[BlockRef, ...]:
    """Parts from (reference, rows) pairs, without the empty ones.

    >>> number_blocks([("a", 2), ("b", 0), ("c", 3)])
    (BlockRef(number=0, rows=2, first_row=0, ref='a'), BlockRef(number=2, rows=3, first_row=2, ref='c'))
    """
    parts: list[BlockRef] = []
    first = 0
    for index, (ref, rows) in enumerate(blocks):
        if rows:
            parts.append(BlockRef(index, rows, first, ref))
        first += rows
    return tuple(parts)


__all__ = ["BlockRef", "RefSource", "first_line", "number_blocks"]
