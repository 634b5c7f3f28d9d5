"""Records that are values, in columns and as Python objects.

Tuples in columns are structs whose fields are called "0", "1", ... in their order, or, of windows of event time, which are tuples of two,
as :data:`WINDOW` has it. Any other struct is a dict that is not changed.

Arrow has no tuples. A batch whose metadata says ``rayad.rows = tuples:N`` has rows as ``keyed:N`` has them, in which structs are
such values (``batches.to_rows``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from rayad.dataflow.records.moments import moments_of
from rayad.progress import DataflowError, show


class Window(NamedTuple):
    """Event times ``start <= t < end``."""

    start: Any
    end: Any


WINDOW = ("window start", "window end")
"""The fields of windows in columns."""


class Row(dict[str, Any]):
    """A dict that is a record of a collection: equal to any dict with the same fields, and hashable.

    >>> Row(a=1) == {"a": 1}, {Row(a=1, b=2): "there"}[Row(b=2, a=1)], {**Row(a=1), "b": 2}
    (True, 'there', {'a': 1, 'b': 2})
    """

    __slots__ = ("_hash", "is_value")
    is_value: bool
    """Set where it is known that all in it is values that are equal to themselves; not there: nobody has looked."""

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash(frozenset(self.items()))
            return self._hash

    def __rayad_hash__(self) -> Any:
        """The same in every process."""
        return tuple(sorted(self.items(), key=lambda item: item[0]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise DataflowError(
            f"a record of a collection is a value and is not changed: make another one, {{**record, ...}}, of {show(dict(self))}"
        )

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse


def is_tuple(kind: pa.DataType) -> bool:
    """Whether values of this type are tuples.

    >>> is_tuple(pa.struct({"0": pa.int64(), "1": pa.string()})), is_tuple(pa.struct({"a": pa.int64()})), is_tuple(pa.int64())
    (True, False, False)
    """
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return False
    return is_window(kind) or all(kind.field(i).name == str(i) for i in range(kind.num_fields))


def is_window(kind: pa.DataType) -> bool:
    """Whether values of this type are windows of event time."""
    return (
        bool(pa.types.is_struct(kind))
        and kind.num_fields == len(WINDOW)
        and kind.field(0).name == WINDOW[0]
        and kind.field(1).name == WINDOW[1]
    )


def tuple_array(parts: Sequence[pa.Array]) -> pa.StructArray:
    """Tuples of these, shape (rows,); nothing is copied.

    >>> values_of(tuple_array([pa.array([1, 2]), pa.array(["a", "b"])]))
    [(1, 'a'), (2, 'b')]
    """
    return pa.StructArray.from_arrays(list(parts), names=[str(i) for i in range(len(parts))])


def windows_of(starts: pa.Array, ends: pa.Array) -> pa.StructArray:
    """Windows with these bounds, shape (rows,); nothing is copied.

    >>> values_of(windows_of(pa.array([0, 5]), pa.array([5, 10])))
    [Window(start=0, end=5), Window(start=5, end=10)]
    """
    return pa.StructArray.from_arrays([starts, ends], names=WINDOW)


def with_plain_tuples(column: pa.Array) -> pa.Array:
    """The column with windows as pairs whose fields are called "0" and "1"; nothing is copied.

    >>> with_plain_tuples(windows_of(pa.array([0]), pa.array([5]))).to_pylist()
    [{'0': 0, '1': 5}]
    """
    kind = column.type
    if not _has_windows(kind):
        return column
    parts = [with_plain_tuples(part) for part in (column.flatten() if column.null_count else fields_of(column))]
    names = [str(i) if is_window(kind) else kind.field(i).name for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(parts, names=names, mask=column.is_null() if column.null_count else None)


@lru_cache(maxsize=1024)
def _has_windows(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and (is_window(kind) or any(_has_windows(kind.field(i).type) for i in range(kind.num_fields)))


def fields_of(column: pa.StructArray) -> list[pa.Array]:
    """The columns of a struct without nulls of its own."""
    return [column.field(i) for i in range(column.type.num_fields)]


def has_windows(kind: pa.DataType) -> bool:
    """Whether values of this type are windows, or have some in them."""
    return bool(pa.types.is_struct(kind)) and (is_window(kind) or any(has_windows(field.type) for field in kind))


def values_of(column: pa.Array) -> list[Any]:
    """A column as Python objects.

    >>> values_of(pa.array([{"a": 1}, None]))
    [{'a': 1}, None]
    """
    kind = column.type
    if not pa.types.is_struct(kind):
        return moments_of(column)
    parts = zip(*map(values_of, fields_of(column)), strict=True)
    names = [kind.field(i).name for i in range(kind.num_fields)]
    made: list[Any]
    if is_window(kind):
        made = list(starmap(Window, parts))
    else:
        made = list(parts) if is_tuple(kind) else [Row(zip(names, row, strict=True)) for row in parts]
    if column.null_count:
        return [value if valid else None for value, valid in zip(made, column.is_valid().to_pylist(), strict=True)]
    return made


__all__ = [
    "WINDOW", "Row", "Window", "fields_of", "has_windows", "is_tuple", "is_window", "tuple_array", "values_of", "windows_of",
    "with_plain_tuples",
]  # fmt: skip
