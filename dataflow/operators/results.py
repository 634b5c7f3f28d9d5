"""What windows and joins give, in columns: Arrow extension types whose Python values are those of the row path.

A column ``window`` holds ``start`` and ``end`` of each row and reads as :class:`Window`; a column ``pair`` holds the columns of the two
records that a join brought together and reads as ``(left, right)``. So a columnar batch turns into exactly the rows that the row path
gives, and nothing is copied to make it; a column ``record`` likewise holds whole records. ``as_columns``
opens all of them into ordinary columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Generic, TypeVar

import pyarrow as pa

from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.records.batches import ROWS_KEY, mark_keyed, to_rows
from rayad.dataflow.records.exact import ARRAYS, array_of, cast_exactly, wider_type
from rayad.dataflow.windows import Window

K = TypeVar("K", bound=pa.ExtensionType)
KEPT_MAX = 256
"""So many types are kept of one kind; then all are forgotten."""


class KeptTypes(Generic[K]):
    """The types of one kind that were made. Arrow holds the Python object of a type weakly: once it is gone, each look at a column or a
    schema that has the type makes it anew, from what was serialised."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[tuple[pa.DataType, K]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, about: Any, storage: pa.DataType, made: Callable[[], K]) -> K:
        """The type with this storage; ``about``: what makes it another one besides."""
        for known, kind in self._kept.get(about, ()):
            if known.equals(storage, check_metadata=True):
                return kind
        if self._count >= KEPT_MAX:
            self._kept, self._count = {}, 0
        kind = made()
        self._kept.setdefault(about, []).append((storage, kind))
        self._count += 1
        return kind


class ResultType(pa.ExtensionType):  # type: ignore[misc]
    """A type that is pickled by its name: cloudpickle copies class methods, with all that they refer to."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.storage_type, self.__arrow_ext_serialize__())

    def __hash__(self) -> int:  # a schema is hashed by what it holds
        return hash((self.extension_name, str(self.storage_type), self.__arrow_ext_serialize__()))


def _again(cls: type[pa.ExtensionType], storage: pa.DataType, serialized: bytes) -> pa.ExtensionType:
    return cls.__arrow_ext_deserialize__(storage, serialized)


class WindowArray(pa.ExtensionArray):  # type: ignore[misc]
    """Windows of one type of bounds, shape (rows,)."""

    def to_pylist(self, **options: Any) -> list[Any]:
        """A :class:`Window` for each, or None."""
        windows = list(starmap(Window, zip(self.starts.to_pylist(), self.ends.to_pylist(), strict=True)))
        if not self.storage.null_count:
            return windows
        return [window if valid else None for window, valid in zip(windows, self.storage.is_valid().to_pylist(), strict=True)]

    @property
    def starts(self) -> pa.Array:
        """The first event time of each window."""
        return self.storage.field(0)

    @property
    def ends(self) -> pa.Array:
        """The first event time beyond each window."""
        return self.storage.field(1)


class WindowScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One window."""

    def as_py(self, **options: Any) -> Window:
        """As a :class:`Window`."""
        return Window(self.value["start"].as_py(), self.value["end"].as_py())


class WindowType(ResultType):
    """``struct<start, end>`` that reads as :class:`Window`."""

    def __init__(self, bound: pa.DataType) -> None:
        super().__init__(pa.struct([("start", bound), ("end", bound)]), "rayad.window")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> WindowType:
        return _WINDOWS.get(None, storage, lambda: cls(storage.field(0).type))

    def __arrow_ext_class__(self) -> type:
        return WindowArray

    def __arrow_ext_scalar_class__(self) -> type:
        return WindowScalar


def window_array(starts: pa.Array, ends: pa.Array) -> pa.ExtensionArray:
    """Windows from their bounds, two arrays of one type and shape."""
    storage = pa.StructArray.from_arrays([starts, ends], names=["start", "end"])
    return _WINDOWS.get(None, storage.type, lambda: WindowType(starts.type)).wrap_array(storage)


def _record_rows(records: pa.StructArray, mark: str | None) -> list[Any]:
    """The records of a struct column as the row path has them."""
    batch = pa.RecordBatch.from_struct_array(records)
    return to_rows(batch.replace_schema_metadata({ROWS_KEY: mark.encode()}) if mark else batch)


class RecordArray(pa.ExtensionArray):  # type: ignore[misc]
    """Whole records, shape (rows,)."""

    def to_pylist(self, **options: Any) -> list[Any]:
        """Each as the row path has it."""
        return _record_rows(self.storage, self.type.mark)


class RecordScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One record."""

    def as_py(self, **options: Any) -> Any:
        """As the row path has it."""
        return self.type.wrap_array(pa.array([self.value.as_py()], self.type.storage_type)).to_pylist()[0]


class RecordType(ResultType):
    """A struct that reads as a record; ``mark`` as in :class:`PairType`."""

    def __init__(self, storage: pa.DataType, mark: str | None = None) -> None:
        self.mark = mark
        super().__init__(storage, "rayad.record")

    def __arrow_ext_serialize__(self) -> bytes:
        return (self.mark or "").encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> RecordType:
        mark = serialized.decode() or None
        return _RECORDS.get(mark, storage, lambda: cls(storage, mark))

    def __arrow_ext_class__(self) -> type:
        return RecordArray

    def __arrow_ext_scalar_class__(self) -> type:
        return RecordScalar


def record_array(batch: pa.RecordBatch) -> pa.ExtensionArray:
    """The rows of a batch as one column; nothing is copied."""
    mark = (batch.schema.metadata or {}).get(ROWS_KEY)
    storage, mark = _struct(batch), mark.decode() if mark else None
    return _RECORDS.get(mark, storage.type, lambda: RecordType(storage.type, mark)).wrap_array(storage)


class PairArray(pa.ExtensionArray):  # type: ignore[misc]
    """Pairs of records, shape (rows,)."""

    def to_pylist(self, **options: Any) -> list[Any]:
        """A tuple ``(left, right)`` for each; None in place of a record that there is not."""
        return list(zip(*(self._side(i) for i in (0, 1)), strict=True))

    def _side(self, side: int) -> list[Any]:
        column = self.storage.field(side)
        rows = _record_rows(column, self.type.marks[side])
        if not column.null_count:
            return rows
        return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]


class PairScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One pair of records."""

    def as_py(self, **options: Any) -> Any:
        """As a tuple."""
        one = pa.array([self.value.as_py()], self.type.storage_type)
        return self.type.wrap_array(one).to_pylist()[0]


class PairType(ResultType):
    """``struct<left: struct, right: struct>`` that reads as a tuple of two records.

    Args:
        left, right: struct types of the records' columns.
        marks: how rows of either side are read (the value of ``rayad.rows`` in the schema's metadata); None: as dicts.
        right_keys: the columns of the right side that hold the key.
    """

    def __init__(
        self, left: pa.DataType, right: pa.DataType, marks: Sequence[str | None] = (None, None), right_keys: Sequence[str] = ()
    ) -> None:
        self.marks = tuple(marks)
        self.right_keys = tuple(right_keys)
        super().__init__(pa.struct([("left", left), ("right", right)]), "rayad.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps([self.marks, self.right_keys]).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> PairType:
        return _PAIRS.get(serialized, storage, lambda: cls(storage.field(0).type, storage.field(1).type, *json.loads(serialized)))

    def __arrow_ext_class__(self) -> type:
        return PairArray

    def __arrow_ext_scalar_class__(self) -> type:
        return PairScalar


def pair_array(left: Any, right: Any, right_keys: Sequence[str] = ()) -> pa.ExtensionArray:
    """Row i of ``left`` with row i of ``right``; neither is copied. ``right_keys``: the columns of ``right`` that hold the key. One of them
    may be a schema: then each record of the other is alone."""
    rows = next(side.num_rows for side in (left, right) if isinstance(side, pa.RecordBatch))
    schemas = [side if isinstance(side, pa.Schema) else side.schema for side in (left, right)]
    marks = [(schema.metadata or {}).get(ROWS_KEY) for schema in schemas]
    sides = [pa.nulls(rows, pa.struct(list(side))) if isinstance(side, pa.Schema) else _struct(side) for side in (left, right)]
    storage = pa.StructArray.from_arrays(sides, names=["left", "right"])
    about = (*marks, *right_keys)
    return _PAIRS.get(about, storage.type, lambda: _pair_type(storage.type, marks, right_keys)).wrap_array(storage)


def _pair_type(storage: pa.DataType, marks: Sequence[bytes | None], right_keys: Sequence[str]) -> PairType:
    left, right = (storage.field(side).type for side in (0, 1))
    return PairType(left, right, [mark.decode() if mark else None for mark in marks], right_keys)


def _struct(batch: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema.remove_metadata()))


_WINDOWS, _RECORDS, _PAIRS = KeptTypes[WindowType](), KeptTypes[RecordType](), KeptTypes[PairType]()

for _registered in (WindowType(pa.int64()), RecordType(pa.struct([])), PairType(pa.struct([]), pa.struct([]))):
    try:
        pa.register_extension_type(_registered)
    except pa.ArrowKeyError:  # registered already: the module was loaded anew
        pa.unregister_extension_type(_registered.extension_name)
        pa.register_extension_type(_registered)


def _windows(values: list[Any]) -> pa.Array:
    """Windows of rows, some of them perhaps None, as a column."""
    bounds = [array_of([None if w is None else getattr(w, side) for w in values], None, f"window {side}") for side in ("start", "end")]
    kind = wider_type(bounds[0].type, bounds[1].type)
    if kind is None:
        raise TypeError(f"windows start at {bounds[0].type} and end at {bounds[1].type}")
    starts, ends = (cast_exactly(bound, kind, "window") for bound in bounds)
    missing = pa.array([w is None for w in values])
    return WindowType(kind).wrap_array(pa.StructArray.from_arrays([starts, ends], names=["start", "end"], mask=missing))


ARRAYS[Window] = _windows


@dataclass(slots=True)
class WithoutKey(Element):
    """Results of windows over all records: without the key that they do not have."""

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def apply(self, batch: Any) -> Any:
        if not isinstance(batch, pa.RecordBatch):
            return [row[1:] for row in to_rows(batch)]
        rest = pa.RecordBatch.from_arrays(batch.columns[1:], schema=pa.schema(list(batch.schema)[1:]))
        return mark_keyed(rest, 1)
