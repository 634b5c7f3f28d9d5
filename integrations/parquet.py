"""Parquet files as a columnar source.

The columns and types are fixed when the source is made, from the first file or from what is given; a file that differs fails with its
name, what was expected and what it has. A part is a row group. With ``epoch=`` it is loaded whole, because it has to be sorted by epoch;
parts are then read side by side, lowest epoch first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow import fs

from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import (
    DEFAULT_BATCH_ROWS,
    Opened,
    StreamPart,
    TablePart,
    check_batch_rows,
    check_epoch_column,
    describe,
    schema_drift,
)
from rayad.integrations.file_output.committed import written_partitioning
from rayad.integrations.file_output.partitions import named_columns, names_in
from rayad.integrations.paths import Paths, files_fingerprint, find_files
from rayad.progress import ConfigError, DataflowError

FOOTERS_AT_ONCE = 16
"""So many are read at a time where files are not on a disk of this machine: each takes several answers of a store, one after another."""


class RowGroup(NamedTuple):
    """A part: one row group of a Parquet file, the rows that it has before any filter, and the lowest epoch that its statistics promise.

    Plain values alone, since Arrow's fragment is many times as long as they are, and reads the file's footer each time that a copy of it is
    pickled. ``keys`` are the columns that its directories name, with their values.
    """

    number: int
    path: str
    group: int
    rows: int
    epoch_floor: int
    keys: tuple[tuple[str, Any], ...] = ()


class PlainRowGroup:
    """A row group whose columns are read as they are stored.

    Args:
        fragment: the row group.
        schema: of what is wanted.
        keys: the columns that are the same in all of its rows, and not stored, with their values.
    """

    def __init__(self, fragment: Any, schema: pa.Schema, keys: Mapping[str, Any]) -> None:
        self._fragment, self._schema, self._keys = fragment, schema, keys
        self._stored = [name for name in schema.names if name not in keys]
        self._groups = [info.id for info in fragment.row_groups]

    def table(self) -> pa.Table:
        """All of it."""
        with self._fragment.open() as stored:
            read = self._reader(stored).read_row_groups(self._groups, columns=self._stored, use_threads=False)
        return pa.Table.from_arrays(self._as_wanted(read), schema=self._schema)

    def batches(self, most_rows: int) -> Iterator[pa.RecordBatch]:
        """All of it, piece by piece."""
        with self._fragment.open() as stored:
            for read in self._reader(stored).iter_batches(most_rows, self._groups, columns=self._stored, use_threads=False):
                yield pa.RecordBatch.from_arrays(self._as_wanted(read), schema=self._schema)

    def _reader(self, stored: Any) -> pq.ParquetFile:
        return pq.ParquetFile(stored, metadata=self._fragment.metadata, pre_buffer=True)

    def _as_wanted(self, read: Any) -> list[Any]:
        """The columns in their order, with those that are not stored."""
        keys = self._keys
        return [
            pa.repeat(pa.scalar(keys[field.name], field.type), read.num_rows) if field.name in keys else read.column(field.name)
            for field in self._schema
        ]


class ParquetSource(Source):
    """Reads Parquet files as RecordBatches; each row group is a part.

    ``columns``: which to read, in this order. ``filter``: a ``pyarrow.compute`` expression on any columns; row groups that cannot match are
    skipped. Directories such as ``day=3/`` become columns (``partitioning="hive"``; None ignores them), with the types that
    ``write_parquet(partition_by=)`` recorded, or what their text suggests. Strings are not checked to be UTF-8, as the format promises: the
    check would add up to a third to the time of reading (``pyarrow.RecordBatch.validate(full=True)`` in ``map_batches`` does it).
    """

    where, blocks = "read_parquet", False

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        epoch: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        partitioning: str | None = "hive",
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        self._batch_rows = check_batch_rows(batch_rows, self.where)
        home, files = find_files(paths, filesystem, self.where)
        try:
            kind = self._hive(home, [file.path for file in files]) if partitioning == "hive" else partitioning
            self._partitioning, self._home, self._found = kind, home, files
            self._expected: pa.Schema = self._dataset().schema
        except (pa.ArrowException, OSError) as error:
            raise DataflowError(f"{self.where}: cannot read the schema of {files[0].path!r}: {error}; is it a Parquet file?") from error
        whole = self._expected
        missing = [name for name in columns or () if name not in whole.names]
        if missing:
            raise ConfigError(f"{self.where}: columns={list(columns or ())!r}: there is no {missing} in {describe(whole)}")
        self._columns = list(columns) if columns is not None else list(whole.names)
        self._filter = filter
        self._listed: dict[tuple[str, int], Any] = {}
        self._epoch = epoch
        self.one_epoch = epoch is None
        self.schema: pa.Schema = pa.schema([whole.field(name) for name in self._columns])
        check_epoch_column(self.schema, epoch, self.where)
        self.interleave = epoch is not None

    def _hive(self, home: fs.FileSystem, paths: Sequence[str]) -> pads.Partitioning | str:
        kind = written_partitioning(home, paths[0])
        if kind == "hive" and any(set(texts) == {None} for texts in names_in(paths, self.where).values()):  # Arrow finds no type for these
            return pads.partitioning(named_columns(paths, {}, self.where).schema, flavor="hive")
        return kind

    def _dataset(self, schema: pa.Schema | None = None) -> Any:
        paths = [file.path for file in self._found]
        return pads.dataset(paths, schema, format="parquet", filesystem=self._home, partitioning=self._partitioning)

    def list_parts(self) -> Sequence[RowGroup]:
        """List the row groups that ``filter`` cannot rule out. Reads each file's footer and compares its columns."""
        parts: list[RowGroup] = []
        expected = self._expected
        self._listed.clear()
        fragments = list(self._dataset(expected).get_fragments(filter=self._filter))
        self._read_footers(fragments)
        for fragment in fragments:
            try:
                keys = pads.get_partition_keys(fragment.partition_expression)
                physical = [field for field in fragment.physical_schema if field.name not in keys]
                drift = schema_drift(repr(fragment.path), pa.schema([f for f in expected if f.name not in keys]), pa.schema(physical))
                if drift is not None:
                    raise drift
                groups = fragment.split_by_row_group(filter=self._filter, schema=expected)
            except (pa.ArrowException, OSError) as error:
                raise DataflowError(f"{self.where}: cannot read {fragment.path!r}: {error}; is it a whole Parquet file?") from error
            path, named = fragment.path, tuple(keys.items())  # once in a pickle
            for group in groups:
                (info,) = group.row_groups
                parts.append(RowGroup(len(parts), path, info.id, info.num_rows, self._floor(group), named))
                self._listed[path, info.id] = group
        return parts

    def _read_footers(self, fragments: Sequence[Any]) -> None:
        if not isinstance(self._home, fs.LocalFileSystem) and len(fragments) > 1:
            with ThreadPoolExecutor(min(len(fragments), FOOTERS_AT_ONCE), thread_name_prefix="rayad-footers") as pool:
                list(pool.map(_read_footer, fragments))

    def __getstate__(self) -> dict[str, Any]:
        """Without the footers that were read: another process reads those of the row groups that it is given."""
        return {**self.__dict__, "_listed": {}}

    def fragment_of(self, part: RowGroup) -> Any:
        """The row group as Arrow has it; its file is opened when it is read."""
        listed = self._listed.pop((part.path, part.group), None)
        if listed is not None:
            return listed
        said = pc.scalar(True)
        for name, value in part.keys:
            column = pads.field(name)
            said &= column.is_null() if value is None else column == pa.scalar(value, self._expected.field(name).type)
        return pads.ParquetFileFormat().make_fragment(part.path, self._home, said, row_groups=[part.group])

    def part_sizes(self, parts: Sequence[RowGroup]) -> Sequence[float]:
        """Rows of the row groups, before ``filter``."""
        return [float(part.rows) for part in parts]

    def fingerprint(self, parts: Sequence[RowGroup]) -> dict[str, Any]:
        """The files, and the settings that determine the rows and their order."""
        return {
            **files_fingerprint(self._found),
            "row groups": len(parts),
            "columns": describe(self.schema),
            "filter": str(self._filter) if self._filter is not None else None,
            "epoch": self._epoch,
        }

    def _floor(self, group: Any) -> int:
        if self._epoch is None:
            return 0
        keys = pads.get_partition_keys(group.partition_expression)
        if self._epoch in keys:
            return int(keys[self._epoch])
        lows = [info.statistics[self._epoch]["min"] for info in group.row_groups if info.statistics and self._epoch in info.statistics]
        return max(0, int(min(lows))) if len(lows) == group.num_row_groups and lows else 0

    def own_reader(self, fragment: Any) -> PlainRowGroup | None:
        """Parquet's own reader, where no row has to be looked at and each column is stored under its name as it is wanted; the scanner of
        datasets takes a quarter longer."""
        keys = pads.get_partition_keys(fragment.partition_expression)
        stored = [field for field in self.schema if field.name not in keys]
        physical = fragment.physical_schema
        as_wanted = all(physical.get_all_field_indices(field.name) and physical.field(field.name).equals(field) for field in stored)
        if self._filter is not None or not stored or not as_wanted or not keys.keys().isdisjoint(physical.names):
            return None
        if any("." in name for name in physical.names):  # it would be a path, or look like one
            return None
        return PlainRowGroup(fragment, self.schema, keys)

    def _scan(self, fragment: Any) -> Any:
        return fragment.scanner(
            schema=self._expected,
            columns=self._columns,
            filter=self._filter,
            batch_size=self._batch_rows,
            use_threads=False,
            batch_readahead=1,
            fragment_readahead=1,
        )

    def _stream(self, part: RowGroup) -> Opened:
        def batches() -> Iterator[pa.RecordBatch]:
            try:
                fragment = self.fragment_of(part)
                own = self.own_reader(fragment)
                yield from own.batches(self._batch_rows) if own is not None else self._scan(fragment).to_batches()
            except (pa.ArrowException, OSError) as error:
                raise self._not_whole(part, error) from error

        stream, total = batches(), part.rows
        return Opened(stream, stream.close, lambda rows: rows / total if total else None)  # type: ignore[attr-defined]

    def _load(self, part: RowGroup) -> pa.Table:
        try:
            fragment = self.fragment_of(part)
            own = self.own_reader(fragment)
            if own is not None:
                return own.table()
            return pa.Table.from_batches(self._scan(fragment).to_batches(), schema=self.schema)
        except (pa.ArrowException, OSError) as error:
            raise self._not_whole(part, error) from error

    def _not_whole(self, part: RowGroup, error: Exception) -> DataflowError:
        return DataflowError(f"{self.where}: reading {part.path!r}: {error}; is it a whole Parquet file?")

    def build_part(self, part: RowGroup, resume: int | None) -> SourcePart:
        """Open a row group; ``resume`` is the number of its (filtered) rows already read."""
        where = f"{self.where}: {part.path!r}, row group [{part.group}]"
        if self._epoch is None:
            return StreamPart(lambda: self._stream(part), batch_rows=self._batch_rows, resume=resume, where=where)
        return TablePart(
            lambda: self._load(part),
            batch_rows=self._batch_rows,
            epoch=self._epoch,
            resume=resume,
            where=where,
            floor=part.epoch_floor,
        )


def _read_footer(fragment: Any) -> None:
    with suppress(pa.ArrowException, OSError):  # the first in order that cannot be read is told by who needs it
        fragment.ensure_complete_metadata()


__all__ = ["ParquetSource", "RowGroup"]
