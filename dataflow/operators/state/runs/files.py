"""Files of runs in snapshots: a run that is written is named by all later snapshots, as long as it is there.

A file has the rows of a run, their places, their moments and the arrays beside them, as one batch in Arrow's IPC format. The pickled state
has the number of the file in the part's list and the rows that are meant. A number, because the state may be pickled in a copy of the
process, before the file has a name (docs/design/state.md, 5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.dataflow.operators.state.group_index import compacted
from rayad.dataflow.operators.state.stored_columns import Stored, stored

FORMAT = 1
FILED_BYTES_MIN = 1 << 16
"""Smaller runs stay in the pickle: there are few, and they are merged soon."""
_FORMAT, _KEY_GROUPS, _NUMBERS = b"rayad.run", b"rayad.key_groups", b"rayad.numbers"


class Content(NamedTuple):
    """What a file holds: rows, their places by so many key-groups and their moments, each None where they have none, arrays beside them,
    and whether all of this is mapped."""

    rows: pa.RecordBatch
    place: Any
    tick: Any
    key_groups: int
    beside: Mapping[str, Any] = {}
    is_mapped: bool = False

    def cut(self, first: int, count: int) -> Content:
        """The rows from ``first`` on. Raises ValueError where there are fewer."""
        if not 0 <= first <= first + count <= self.rows.num_rows:
            raise ValueError(f"rows {first} to {first + count} are wanted of a file of {self.rows.num_rows} rows")
        some = slice(first, first + count)
        place, tick = (None if numbers is None else numbers[some] for numbers in (self.place, self.tick))
        beside = {name: numbers[some] for name, numbers in self.beside.items()}
        return Content(self.rows.slice(first, count), place, tick, self.key_groups, beside, self.is_mapped)


class RunFile:
    """The file of a run, which slices of the run share.

    Args:
        content: what is to be written; None: it is.
        name: what the store calls the file; None: it is not written.
    """

    __slots__ = ("content", "name")

    def __init__(self, content: Content | None, name: Any = None) -> None:
        self.content = content
        self.name = name

    def written(self, name: Any) -> None:
        """It is in the store."""
        self.name, self.content = name, None


class RowsInFile:
    """Rows of a run as a snapshot has them, or another replica gets them, with all that is in their file, from its row ``first`` on. Where
    the file is not one of the snapshot's, or has no name for the other replica, they are pickled as they are."""

    __slots__ = ("content", "file", "first")

    def __init__(self, content: Content, file: RunFile, first: int) -> None:
        self.content = content
        self.file = file
        self.first = first

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsByValue, (stored([compacted(self.content.rows)]), dict(self.content.beside))


class RowsByValue(NamedTuple):
    """What :class:`RowsInFile` becomes where there is no file."""

    rows: Stored
    beside: dict[str, Any]


def writes(content: Content) -> Callable[[Any], None]:
    """A function that writes a file to what has ``write(bytes)``."""
    rows = content.rows
    by_name = {name: each for name, each in (("place", content.place), ("tick", content.tick)) if each is not None}
    by_name.update(content.beside)
    numbers = list(map(pa.array, by_name.values()))
    about = {_FORMAT: b"%d" % FORMAT, _KEY_GROUPS: b"%d" % content.key_groups, _NUMBERS: json.dumps(list(by_name)).encode()}
    fields = [pa.field(f"number {at}", column.type) for at, column in enumerate(numbers)]
    schema = pa.schema([*fields, *rows.schema], metadata={**(rows.schema.metadata or {}), **about})
    batch = pa.RecordBatch.from_arrays([*numbers, *rows.columns], schema=schema)

    def write(sink: Any) -> None:
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema) as writer:
            writer.write_batch(batch)

    return write


def opened(data: bytes | memoryview, *, is_mapped: bool = False) -> Content:
    """The content of a file. ``is_mapped``: whether ``data`` is a map of it. Raises ValueError where it is none, or of another format."""
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        about = dict(reader.schema.metadata or {})
        found, key_groups, numbers = (about.pop(name, b"") for name in (_FORMAT, _KEY_GROUPS, _NUMBERS))
        if found != b"%d" % FORMAT or reader.num_record_batches != 1:
            raise ValueError(f"it is a file of runs of format {found.decode()!r}, this version of Rayad reads format {FORMAT}")
        batch, names = reader.get_batch(0), json.loads(numbers)
    count = len(names)
    beside = {name: column.to_numpy(zero_copy_only=False) for name, column in zip(names, batch.columns[:count], strict=True)}
    place, tick = beside.pop("place", None), beside.pop("tick", None)
    schema = pa.schema(list(batch.schema)[count:], metadata=about or None)
    rows = pa.RecordBatch.from_arrays(batch.columns[count:], schema=schema)
    return Content(rows, place, tick, int(key_groups), beside, is_mapped)


__all__ = ["FILED_BYTES_MIN", "Content", "RowsByValue", "RowsInFile", "RunFile", "opened", "writes"]
