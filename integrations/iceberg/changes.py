"""Which files and rows of an Iceberg table have the keys that a commit changes.

Most files are passed over by what their manifest says: the partition, where it follows from the key, and the least and largest value of
each column of the key. Of those that are left the columns of the key are read; only files with such rows are written anew. ``pyiceberg``'s
own deletes and upserts make a predicate of the keys, and look at every row with it (docs/decisions/138).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.integrations.file_output.collection_tables import comparable
from rayad.integrations.iceberg import partitions
from rayad.integrations.iceberg.catalog import library
from rayad.integrations.iceberg.reading import TableFiles
from rayad.integrations.staged_rows import THERE

SMALL_BYTES = 4 << 20
"""A file of fewer bytes is read whole at once, and is joined with others where there are many."""
SMALL_FILES_MAX = 16
"""So many small files of one partition in which a key may be are joined, even where none of their rows changes: each commit has to read
them."""
_ROW, _CHANGE = "rayad_row", "rayad_change"


class Kept(NamedTuple):
    """What replaces a file: the rows that stay, and those of its changed rows that are there afterwards."""

    file: Any
    rows: pa.Table


class Changes:
    """The changes of one commit.

    Args:
        changes: one row of each key, in Iceberg's types, with the column THERE.
        key: the columns that tell rows apart.
        table: as the commit has seen it.
        where: for messages.
    """

    def __init__(self, changes: pa.Table, key: Sequence[str], table: Any, where: str) -> None:
        self._key, self._table, self._where = list(key), table, where
        self._files = TableFiles(table, changes.schema.remove(changes.schema.get_field_index(THERE)), where)
        keys = comparable(changes.select(self._key))
        order = pc.sort_indices(keys, [(name, "ascending") for name in self._key])  # so that what is new has narrow bounds in its files
        self._rows = changes.take(order).drop_columns([THERE])
        self._is_there = changes.column(THERE).take(order).to_numpy()
        self._keys = keys.take(order).append_column(_CHANGE, pa.array(np.arange(len(changes))))
        self._is_placed = np.zeros(len(changes), bool)
        schema = table.schema()
        self._numbers = {name: schema.find_field(name).field_id for name in self._key}
        self._kinds = {name: schema.find_field(name).field_type for name in self._key}
        exact = self._bounded()
        self._at = [at for at, field in enumerate(self._fields) if self._follows(field, exact)]
        self._sorted = self._by_partition()

    @property
    def _fields(self) -> tuple[partitions.Field, ...]:
        return partitions.fields_of_spec(self._table, self._where)

    def _follows(self, field: partitions.Field, exact: Sequence[str]) -> bool:
        """Whether the key tells the value of a field of the partition. Of floats it does not, as zero has two forms; UUIDs themselves come
        in two forms, too."""
        name = field.column[0]
        is_bucket_of_key = field.kind == "bucket" and name in self._key  # never of floats
        return len(field.column) == 1 and (name in exact or is_bucket_of_key)

    def _by_partition(self) -> dict[tuple[Any, ...], dict[str, list[Any]]]:
        """By the part of a partition that follows from the key: the values of each column of the key, in order."""
        known = [self._fields[at] for at in self._at]
        groups: list[tuple[tuple[Any, ...], pa.Table]] = [((), self._keys)]
        if known:
            kinds = self._table.spec().partition_type(self._table.schema()).fields
            codes, names = partitions.codes_of(self._keys, known, self._where)
            values = [partitions.values_in(name, [kinds[at].field_type for at in self._at], self._where) for name in names]
            groups = [(tuple(values[code]), self._keys.filter(pa.array(codes == code))) for code in range(len(names))]
        return {value: {name: sorted(self._plain(keys.column(name))) for name in self._bounded()} for value, keys in groups}

    def _bounded(self) -> list[str]:
        """The columns of the key by whose bounds files are passed over. UUIDs have been compared in several ways, NaN is within no
        bounds, and zero has two forms."""
        types = library(self._where).types
        return [name for name in self._key if not isinstance(self._kinds[name], types.UUIDType | types.FloatType | types.DoubleType)]

    @staticmethod
    def _plain(column: pa.ChunkedArray) -> list[Any]:
        """Values as bounds have them."""
        kind = column.type
        if pat.is_date(kind):
            column = column.cast(pa.int32())
        elif pat.is_timestamp(kind) or pat.is_time(kind):
            column = column.cast(pa.int64())
        found: list[Any] = column.to_pylist()
        return found

    # -- files -----------------------------------------------------------------------------------------------------------------
    def tasks(self) -> list[Any]:
        """The files in which a changed key may be, with their deletes, in the order of partitions and least keys."""
        with_deletes = self._table.scan().plan_files()
        found = [task for task in with_deletes if self._may_be_in(task.file)]
        return sorted(found, key=lambda task: (str(task.file.partition), self._least(task.file)))

    def _least(self, file: Any) -> tuple[Any, ...]:
        name = self._key[0]
        least = (file.lower_bounds or {}).get(self._numbers[name])
        return (library(self._where).conversions.from_bytes(self._kinds[name], least),) if least is not None else ()

    def _may_be_in(self, file: Any) -> bool:
        is_of_spec = file.spec_id == self._table.spec().spec_id
        if self._at and is_of_spec:
            found = self._sorted.get(tuple(file.partition[at] for at in self._at))
            return found is not None and self._within(file, found)
        return any(self._within(file, values) for values in self._sorted.values())

    def _within(self, file: Any, values: dict[str, list[Any]]) -> bool:
        """Whether of each column some value is between the least and the largest one of the file, as far as they are known."""
        read = library(self._where).conversions.from_bytes
        for name, some in values.items():
            number, kind = self._numbers[name], self._kinds[name]
            low, high = (bounds.get(number) if bounds else None for bounds in (file.lower_bounds, file.upper_bounds))
            at = bisect_left(some, read(kind, low)) if low is not None else 0
            if at == len(some) or (high is not None and some[at] > read(kind, high)):
                return False
        return True

    # -- rows ------------------------------------------------------------------------------------------------------------------
    def kept(self) -> Iterator[Kept]:
        """The files that are replaced, one in memory at a time."""
        tasks = self.tasks()
        small: dict[str, int] = {}
        for task in tasks:
            if task.file.file_size_in_bytes < SMALL_BYTES:
                small[str(task.file.partition)] = small.get(str(task.file.partition), 0) + 1
        for task in tasks:
            is_small = task.file.file_size_in_bytes < SMALL_BYTES
            is_joined = is_small and small[str(task.file.partition)] >= SMALL_FILES_MAX
            if not is_small and not len(self._found(comparable(self._files.read(task, self._key)))[0]):
                continue
            rows = self._files.read(task)
            at, changes = self._found(comparable(rows.select(self._key)))
            if len(at) or is_joined:
                yield Kept(task.file, self._replaced(rows, at, changes))

    def _found(self, keys: pa.Table) -> tuple[Any, Any]:
        """The rows with changed keys, by number, and the change of each."""
        rows = keys.append_column(_ROW, pa.array(np.arange(len(keys))))
        pairs = rows.join(self._keys, self._key, join_type="inner", coalesce_keys=True)
        return pairs.column(_ROW).to_numpy(), pairs.column(_CHANGE).to_numpy()

    def _replaced(self, rows: pa.Table, at: Any, changes: Any) -> pa.Table:
        stays = np.ones(len(rows), bool)
        stays[at] = False
        here = np.unique(changes[self._is_there[changes] & ~self._is_placed[changes]])
        self._is_placed[here] = True
        return pa.concat_tables([rows.filter(pa.array(stays)), self._rows.take(pa.array(here)).cast(rows.schema)])

    def new(self) -> pa.Table:
        """The rows that are there afterwards and have replaced none; after :meth:`kept` is read to its end."""
        return self._rows.filter(pa.array(self._is_there & ~self._is_placed))


__all__ = ["Changes", "Kept"]
