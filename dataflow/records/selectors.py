"""Where a record has its key and its value: functions of the record, or columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.calling import checked_function, mapped
from rayad.dataflow.records.moments import PLAIN, moment, moments
from rayad.progress import DataflowError, show


@dataclass(frozen=True, slots=True)
class KeySelector:
    """Where a record's key is: a function of the record, or one or more column names.

    ``pairs``: the batches were made by ``operators.keys.keyed``: the key is the first of each pair, or the leading key columns.
    """

    function: Callable[[Any], Any] | None = None
    columns: tuple[str, ...] = ()
    pairs: bool = False

    def row_key(self) -> Callable[[Any], Any]:
        """A function from a record (a Python object) to its key, which is compared as the moment that it is; of many :meth:`keys_of` gives
        them sooner."""
        found = self._found()
        if self.pairs:
            return found

        def key_of(row: Any) -> Any:
            key = found(row)
            return key if key.__class__ in PLAIN else moment(key)

        return key_of

    def keys_of(self, rows: list[Any]) -> list[Any]:
        """The keys of records (Python objects). Raises what the function that finds them does."""
        keys = mapped(self._found(), rows)
        return keys if self.pairs else moments(keys)

    def _found(self) -> Callable[[Any], Any]:
        """A function from a record to its key as it is there; in pairs keys have been through it before."""
        if self.function is not None:
            return self.function
        if len(self.columns) == 1:
            name = self.columns[0]
            return lambda row: row[name]
        names = self.columns
        return lambda row: tuple(row[name] for name in names)

    def describe(self) -> str:
        """For graphs and messages."""
        if self.columns:
            return ",".join(self.columns)
        return getattr(self.function, "__name__", "key")


class DefaultValue:
    """What sum, min, max ... take when no value was named: of a pair the second, of a record with columns the one besides the key, else
    the record itself. Picklable.

    >>> DefaultValue(("k",))({"k": "a", "v": 3}), DefaultValue()(("a", 3)), DefaultValue()(3)
    (3, 3, 3)
    """

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self.keys = keys

    def __call__(self, record: Any) -> Any:
        if isinstance(record, tuple):
            return record[1] if len(record) == 2 else record
        return record[sole_value(list(record), self.keys)] if isinstance(record, dict) else record


def whole_record(record: Any) -> Any:
    """The value that is the record itself."""
    return record


@dataclass(frozen=True, slots=True)
class ValueSelector:
    """Where a record's value is: a function, a column name, or None for :class:`DefaultValue`."""

    function: Callable[[Any], Any] | None = None
    column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that it names, if it does."""
        return () if self.column is None else (self.column,)

    @property
    def is_record(self) -> bool:
        """Whether it is the whole record."""
        return self.function is whole_record

    def row_value(self, keys: tuple[str, ...] = ()) -> Callable[[Any], Any]:
        """A function from a record to its value. ``keys``: the key columns, if the key is columns."""
        if self.column is not None:
            return itemgetter(self.column)
        return self.function or DefaultValue(keys)

    @staticmethod
    def of(value: Any, what: str = "what takes the value of a record") -> ValueSelector:
        """From what a user gave; ``what`` says where, if it is a function."""
        if value is None:
            return ValueSelector()
        if isinstance(value, str):
            return ValueSelector(column=value)
        if callable(value):
            return ValueSelector(function=checked_function(value, what, "record"))
        raise DataflowError(f"the value to aggregate is {show(value)}: give a function of the record or a column name")


def require_columns(batch: pa.RecordBatch | pa.Table, names: tuple[str, ...]) -> None:
    """Raise DataflowError if a column is missing."""
    missing = [name for name in names if name not in batch.schema.names]
    if missing:
        raise DataflowError(f"there is no column {missing[0]!r}: the batch has {batch.schema.names}")


def sole_value_column(batch: pa.RecordBatch | pa.Table, keys: tuple[str, ...]) -> str:
    """The one column that is not a key."""
    return str(sole_value(batch.schema.names, keys))


def sole_value(names: list[Any], keys: tuple[str, ...]) -> Any:
    """The one name that is not a key. Raises DataflowError where it is not clear."""
    rest = [name for name in names if name not in keys]
    if len(rest) != 1:
        raise DataflowError(f"which column to aggregate is not clear: besides the key {list(keys)} there are {rest}; name one")
    return rest[0]
