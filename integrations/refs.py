"""Arrow blocks in Ray's object store as a source: what Ray Data and Spark have in common.

A part is a reference to a block; the replica that reads it maps it from shared memory without a copy. A block exists as long as the process
that owns it (the driver) lives and somebody has a reference to it: the source on the driver, and a replica while its part is open.

**Failures.** While the driver lives, a job that recovers reads the same blocks again. When the driver dies the blocks are gone. A new run
that resumes (``RunConfig(resume=...)``) needs them in the same order with the same rows. ``replay`` says where it gets them:

- ``"recompute"`` (default): the new driver computes the same query again. That is right only if the query is deterministic down to
  the order of rows within each block: reading files is, a shuffle or ``monotonically_increasing_id`` need not be. A snapshot
  records the number of rows of each block and a digest of some rows; where they differ the resume is refused.
- ``"stage"``: the blocks are written once to ``staging_path`` (:mod:`rayad.integrations.staged_blocks`), a folder for this input alone
  that all nodes see, and read from there, also by the first run. This costs writing the input once, and is always right. If the folder is
  complete it is read, and the query is not computed: for new input delete it, or give another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import (
    DEFAULT_BATCH_ROWS,
    TablePart,
    check_batch_rows,
    check_epoch_column,
    describe,
    schema_drift,
    table_digest,
)
from rayad.integrations.staged_blocks import BlockFolder, StagedBlock, StagedInput
from rayad.progress import ConfigError, DataflowError

Replay = Literal["recompute", "stage"]
REPLAYS = ("recompute", "stage")


class BlockRef(NamedTuple):
    """A part: block ``number``, its rows, the number of rows in the blocks before it, and the reference to it."""

    number: int
    rows: int
    first_row: int
    ref: Any


class RefSource(Source):
    """Reads blocks (Arrow tables, or buffers with an Arrow IPC stream) by reference, or from where they are staged.

    ``unit`` is the name of a block in messages; ``hint`` says what to do when one is lost. A subclass computes the blocks in
    :meth:`compute`.
    """

    blocks = False
    where = "from_refs"
    unit = "block"
    hint = "keep the driver alive until the job has ended"

    def __init__(
        self,
        schema: pa.Schema,
        parts: Sequence[BlockRef] | None,
        *,
        keep: Any = None,
        epoch: str | None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        folder: BlockFolder | None = None,
        staged: StagedInput | None = None,
    ) -> None:
        self.schema = schema
        self._computed: tuple[BlockRef, ...] | None = tuple(parts) if parts is not None else None
        self._keep = keep
        self._batch_rows = check_batch_rows(batch_rows, self.where)
        self._epoch = epoch
        self.one_epoch = epoch is None
        self._folder = folder
        self._staged = staged
        self._is_copy = False
        check_epoch_column(schema, epoch, self.where)
        self.interleave = epoch is not None
        if staged is not None:
            where = f"{self.where}: the staged input in {folder.path if folder else ''!r}"
            drift = schema_drift(where, schema, staged.schema, "give another staging_path for another input, or delete that folder")
            if drift is not None:
                raise drift

    def compute(self) -> Sequence[BlockRef]:
        """Compute the blocks; called once, on the driver, unless they were given or are staged."""
        raise ConfigError(f"{self.where}: there are no blocks")

    def list_parts(self) -> Sequence[BlockRef | StagedBlock]:
        """The blocks that are not empty, in order. Computes and stages them if that has not been done."""
        if self._is_copy:
            raise ConfigError(
                f"{self.where}: list_parts() of a copy that was sent to another process; the parts are listed where the source was made"
            )
        if self._staged is not None:
            return self._staged.blocks
        if self._computed is None:
            self._computed = tuple(self.compute())
        if self._folder is None:
            return self._computed
        blocks, folder = self._computed, self._folder
        self._staged = folder.stage(self.schema, lambda copy: _write_blocks(blocks, folder, copy, self))
        self._computed = self._keep = None  # the object store may free them
        return self._staged.blocks

    def part_sizes(self, parts: Sequence[BlockRef | StagedBlock]) -> Sequence[float]:
        """Rows."""
        return [float(part.rows) for part in parts]

    def fingerprint(self, parts: Sequence[BlockRef | StagedBlock]) -> dict[str, Any]:
        """Rows of each block, the columns, the epoch; which staged copy, or digests of some rows of each block."""
        about = {"columns": describe(self.schema), "epoch": self._epoch}
        if self._staged is not None and self._folder is not None:
            rows = {str(part.number): f"{part.rows} rows" for part in parts}
            return {**about, "staged copy": f"{self._staged.copy} in {self._folder.path}", f"{self.unit}s": rows}
        digests = self.digests([part for part in parts if isinstance(part, BlockRef)])
        found = {str(part.number): f"{part.rows} rows, contents {digest}" for part, digest in zip(parts, digests, strict=True)}
        return {**about, f"{self.unit}s": found}

    def digests(self, parts: Sequence[BlockRef]) -> list[str | None]:
        """A digest of some rows of each block, computed on the block's node."""
        import ray

        task = ray.remote(num_cpus=0)(_digest_block)
        asked = [task.remote(part.ref, self.schema.names) for part in parts]
        found: list[str | None] = ray.get(asked)  # ends with the tasks, which read existing blocks, or with an error that one is lost
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Without blocks: a replica gets them with its parts, and the references that keep them alive stay on the driver."""
        return {**self.__dict__, "_keep": None, "_computed": None, "_staged": None, "_is_copy": True}

    def build_part(self, part: BlockRef | StagedBlock, resume: int | None) -> SourcePart:
        """Open a block; ``resume`` is the number of its rows already given."""
        where = f"{self.where}: {self.unit} {part.number}"
        return TablePart(lambda: self._fetch(part), batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)

    def _fetch(self, part: BlockRef | StagedBlock) -> pa.Table:
        if isinstance(part, StagedBlock):
            assert self._folder is not None
            return self._folder.load(part).select(self.schema.names)
        import ray

        try:
            block = ray.get(part.ref)  # ends with the block, or with the error that it is lost; it is part of an activation
        except ray.exceptions.RayError as error:
            raise DataflowError(
                f"{self.where}: {self.unit} {part.number} (rows {part.first_row} to {part.first_row + part.rows}) is lost: "
                f"{type(error).__name__}: {first_line(error)}; {self.hint}"
            ) from error
        table = as_block_table(block)
        if table.num_rows != part.rows:
            raise DataflowError(f"{self.where}: {self.unit} {part.number} has {table.num_rows} rows, it was listed with {part.rows}")
        return table.select(self.schema.names)


def check_replay(replay: str, staging_path: str | None, where: str) -> BlockFolder | None:
    """The folder to stage in; None: recompute. ConfigError when the two do not go together."""
    if replay not in REPLAYS:
        raise ConfigError(f"{where}: replay={replay!r}; give one of {', '.join(map(repr, REPLAYS))}")
    if (replay == "stage") != (staging_path is not None):
        raise ConfigError(
            f"{where}: replay={replay!r} and staging_path={staging_path!r}; "
            "give replay='stage' with a folder that all nodes see, or neither"
        )
    return BlockFolder(staging_path, where) if staging_path is not None else None


def as_block_table(block: Any) -> pa.Table:
    """The table of a block in the object store."""
    return pa.ipc.open_stream(block).read_all() if isinstance(block, pa.Buffer) else block


def _digest_block(block: Any, names: Sequence[str]) -> str | None:
    """Runs in a Ray worker."""
    return table_digest(as_block_table(block).select(list(names)))


def _write_block(block: Any, names: Sequence[str], folder: BlockFolder, number: int, copy: str) -> str:
    """Runs in a Ray worker."""
    return folder.write_block(number, copy, as_block_table(block).select(list(names)))


def _write_blocks(blocks: Sequence[BlockRef], folder: BlockFolder, copy: str, source: RefSource) -> list[StagedBlock]:
    import ray

    task = ray.remote(num_cpus=0, max_retries=3)(_write_block)
    asked = [task.remote(block.ref, source.schema.names, folder, block.number, copy) for block in blocks]
    try:
        names: list[str] = ray.get(asked)  # ends with the tasks, which compute and write the blocks, or with an error that one is lost
    except ray.exceptions.RayError as error:
        raise DataflowError(
            f"{source.where}: the input cannot be staged in {folder.path!r}: {type(error).__name__}: {first_line(error)}; {source.hint}"
        ) from error
    return [StagedBlock(block.number, block.rows, block.first_row, name) for block, name in zip(blocks, names, strict=True)]


def first_line(error: BaseException) -> str:
    """The first line of an error of Ray; the rest is stacks of other processes."""
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


__all__ = ["BlockRef", "RefSource", "Replay", "as_block_table", "check_replay", "first_line", "number_blocks"]
