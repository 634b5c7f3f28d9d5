"""Blocks in a folder, so that a job can read them again when the process that computed them is gone.

The folder has one Arrow IPC file for each block (it keeps all types of Arrow, Parquet does not) and ``_SUCCESS``, which
lists them and is written last: without it nothing counts. A folder with ``_SUCCESS`` is read and not written again: it *is* the input,
for later runs too, until somebody deletes it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.committed import open_directory
from rayad.progress import ConfigError, DataflowError
from rayad.snapshots.port import Port

MARKER = "_SUCCESS"
FORMAT = "rayad-blocks-1"


class StagedBlock(NamedTuple):
    """A part: block ``number``, its rows, the rows of the blocks before it, and its file."""

    number: int
    rows: int
    first_row: int
    name: str


class StagedInput(NamedTuple):
    """The content of the folder: the id of the copy, the columns, and the blocks."""

    copy: str
    schema: pa.Schema
    blocks: tuple[StagedBlock, ...]


class BlockFolder:
    """A folder for one staged input; ``where`` names the source in messages."""

    def __init__(self, path: str, where: str, filesystem: fs.FileSystem | None = None) -> None:
        self.filesystem, self.path = open_directory(path, filesystem, where)
        self.where = where

    def read(self) -> StagedInput | None:
        """The staged input; None when there is none, or it is not complete. ConfigError when the folder is used for something else."""
        marker = f"{self.path}/{MARKER}"
        if self.filesystem.get_file_info(marker).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(marker) as stream:
            text: bytes = stream.read()
        try:
            plain = json.loads(text)
            if plain["format"] != FORMAT:
                raise ValueError(f"its format is {plain['format']!r}")
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(plain["schema"])))
            return StagedInput(plain["copy"], schema, tuple(StagedBlock(*block) for block in plain["blocks"]))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise ConfigError(
                f"{self.where}: staging_path={self.path!r} is no staged input: {MARKER} cannot be read: {error}; give a folder of its own"
            ) from error

    def prepare(self) -> None:
        """Delete the blocks of an unfinished attempt; ConfigError when there is something else in the folder."""
        infos = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        foreign = [info.base_name for info in infos if not info.base_name.startswith(("block-", "writing-"))]
        if foreign:
            raise ConfigError(
                f"{self.where}: staging_path={self.path!r} holds {foreign[0]!r}, which is no staged block; give a folder of its own"
            )
        for info in infos:
            self.filesystem.delete_file(info.path)
        self.filesystem.create_dir(self.path, recursive=True)

    def write_block(self, number: int, copy: str, table: pa.Table) -> str:
        """Write one block; gives the file's name. Runs on the block's node."""
        name = f"block-{number:06d}-{copy}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with self.filesystem.open_output_stream(f"{self.path}/{name}", compression=None) as stream:
            with pa.ipc.new_file(stream, table.schema, options=options) as writer:
                writer.write_table(table)
        return name

    def finish(self, copy: str, schema: pa.Schema, blocks: Sequence[StagedBlock]) -> StagedInput:
        """Write ``_SUCCESS``: from now on the blocks are the input."""
        plain = {
            "format": FORMAT,
            "copy": copy,
            "schema": base64.b64encode(schema.serialize()).decode(),
            "blocks": [list(block) for block in blocks],
        }
        if not Port(self.filesystem, self.path).create(MARKER, json.dumps(plain, indent=1).encode()):
            there = self.read()
            assert there is not None
            return there  # another driver has staged the same meanwhile
        return StagedInput(copy, schema, tuple(blocks))

    def stage(self, schema: pa.Schema, write: Callable[[str], Sequence[StagedBlock]]) -> StagedInput:
        """Write all blocks by calling ``write`` with the id of the copy."""
        self.prepare()
        copy = uuid.uuid4().hex[:12]
        return self.finish(copy, schema, write(copy))

    def load(self, block: StagedBlock) -> pa.Table:
        """A block's table. DataflowError when the file is missing or differs from what was written."""
        path = f"{self.path}/{block.name}"
        try:
            with self.filesystem.open_input_file(path) as file:
                table = pa.ipc.open_file(file).read_all()
        except (OSError, pa.ArrowException) as error:
            raise DataflowError(
                f"{self.where}: staged block {block.number} cannot be read from {path!r}: {error}; "
                "is the folder whole, and seen by all nodes?"
            ) from error
        if table.num_rows != block.rows:
            raise DataflowError(f"{self.where}: staged block {block.number} in {path!r} has {table.num_rows} rows, not {block.rows}")
        return table


__all__ = ["BlockFolder", "StagedBlock", "StagedInput"]
