"""From key to slot: where the totals of a key stand in numpy arrays.

One column of 64-bit integers goes through pandas' hash table of integers. Other keys that come many at a time, in types that Arrow
compares, are kept as columns and found by their content (``row_index``). What is left goes through a dict, which makes an object of each
key: keys that come few at a time, and structs. See docs/decisions/014-vectorised-operators.md and 134-keys-stay-columns.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.slots.integers import FIRST_SLOTS, NUMBER_BYTES, IntegerTable, integer_table
from rayad.dataflow.operators.state.slots.row_index import IndexedRows
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns, SlotKeys, columns_of_slots
from rayad.dataflow.records.batches import one_array
from rayad.dataflow.records.content_codes import contents_of, from_plain_form, has_contents
from rayad.dataflow.records.moments import keys_in

MANY_KEYS = 1 << 10
"""With fewer keys in a batch a dict is not slower: a look-up in columns takes 60 us however few they are."""
KEY_BYTES = 200
"""A key in a dict, which has an object for each key and slot."""

Slots = npt.NDArray[np.int64]


class KeyIndex:
    """Slots 0, 1, 2, ... for the keys of ``key_columns`` Arrow columns, in the order in which keys are first seen; kept for ever.

    >>> index = KeyIndex(1)
    >>> index.slots_of([pa.array([7, 5, 7])]).tolist(), index.slots_of([pa.array([5, 9])]).tolist(), len(index)
    ([0, 1, 0], [1, 2], 3)
    >>> index.keys()
    [7, 5, 9]
    """

    def __init__(self, key_columns: int) -> None:
        self._key_columns = key_columns
        self._integers: IntegerTable | None = None
        self._columns: KeysInColumns | None = None
        self._slots: dict[Any, int] = {}
        self._is_refused = False  # columns, to be asked for no more

    def __len__(self) -> int:
        if self._columns is not None:
            return len(self._columns)
        return len(self._slots if self._integers is None else self._integers)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, in bytes."""
        if self._columns is not None:
            return self._columns.nbytes
        return len(self) * (KEY_BYTES if self._integers is None else NUMBER_BYTES)

    def slots_of(self, columns: list[pa.Array]) -> Slots:
        """The slot of each row, int64 of shape (rows,); new keys get the next ones."""
        column = columns[0]
        if self._key_columns == 1 and column.type == pa.int64() and not column.null_count and self._columns is None:
            if self._integers is None and not self._slots:
                self._integers = integer_table(max(FIRST_SLOTS, len(column)))
            if self._integers is not None:
                return self._integers.numbers_of(np.ascontiguousarray(column.to_numpy()))  # type: ignore[no-any-return]
        if self._columns is None and len(column) >= MANY_KEYS:
            self._to_columns([column.type for column in columns])
        slots = None if self._columns is None else self._columns.slots_of(columns)
        if slots is not None:
            return slots
        self._to_dict()
        keys, known = keys_in(columns), self._slots
        found = list(map(known.get, keys))
        if None in found:
            found = [known.setdefault(key, len(known)) if slot is None else slot for key, slot in zip(keys, found, strict=True)]
        return np.array(found, dtype=np.int64)

    def known(self, keys: list[Any]) -> Slots:
        """The slots of those of these keys that are here, int64."""
        slots = self.found(keys)
        return slots[slots >= 0]

    def found(self, keys: list[Any]) -> Slots:
        """The slot of each of these keys, int64 of shape (keys,); -1 of one that is not here.

        >>> index = KeyIndex(1)
        >>> index.slots_of([pa.array([7, 5])]).tolist(), index.found([5.0, "x", 8, 7]).tolist()
        ([0, 1], [1, -1, -1, 0])
        """
        if self._columns is not None:
            return self._columns.found(keys)
        if self._integers is None:
            return np.array([self._slots.get(key, -1) for key in keys], dtype=np.int64)
        out = np.full(len(keys), -1, np.int64)
        numbers = [(at, _like(pa.int64(), key)) for at, key in enumerate(keys)]
        whole = [(at, number) for at, number in numbers if type(number) is int and -(1 << 63) <= number < 1 << 63]
        if whole:
            out[[at for at, _ in whole]] = self._integers.found(np.array([number for _, number in whole], dtype=np.int64))
        return out

    def slot_keys(self) -> SlotKeys:
        """The keys by slot as they are kept: columns whose rows stay as they are, or Python objects."""
        if self._columns is not None:
            return self._columns.columns()
        return (pa.array(self._integers.values),) if self._integers is not None else list(self._slots)

    def keys_at(self, slots: Slots, types: list[pa.DataType]) -> list[pa.Array]:
        """The keys of some slots as columns. Raises NotColumns where Arrow does not have them in these types."""
        return columns_of_slots(self.slot_keys(), slots, types) if self._columns is None else self._columns.at(slots)

    def key_columns(self, types: list[pa.DataType]) -> list[pa.Array] | list[Any]:
        """All keys by slot, for :meth:`restore`: as Arrow columns of these types where Arrow has them, else as :meth:`keys`."""
        try:
            return self.keys_at(np.arange(len(self)), types)
        except NotColumns:
            return self.keys()

    def restore(self, keys: list[Any]) -> None:
        """Take back what :meth:`key_columns` gave, into an empty index."""
        if keys and all(isinstance(column, pa.Array) for column in keys):
            self.slots_of(keys)
        else:
            self._slots = {key: slot for slot, key in enumerate(keys)}

    def keys(self) -> list[Any]:
        """All keys as Python objects, by slot."""
        if self._columns is not None:
            return self._columns.keys()
        return self._integers.values.tolist() if self._integers is not None else list(self._slots)

    def _to_dict(self) -> None:
        if self._integers is not None or self._columns is not None:
            self._slots = {key: slot for slot, key in enumerate(self.keys())}
            self._integers = self._columns = None

    def _to_columns(self, types: list[pa.DataType]) -> None:
        if self._is_refused or self._integers is not None:
            return
        try:
            columns = KeysInColumns(types, columns_of_slots(list(self._slots), np.arange(len(self._slots)), types))
        except NotColumns:
            self._is_refused = True
        else:
            self._columns, self._slots = columns, {}


class KeysInColumns:
    """Keys as they came: in columns of these types.

    Args:
        types: of the columns.
        keys: those of the first slots, which differ.

    Raises NotColumns where columns do not tell keys apart as Python does, or do not have them.
    """

    def __init__(self, types: list[pa.DataType], keys: list[pa.Array]) -> None:
        if not all(map(has_contents, types)):
            raise NotColumns
        self._types = types
        self._rows = IndexedRows(len(keys[0]))
        slots = self.slots_of(keys)
        if slots is None or not np.array_equal(slots, np.arange(len(slots))):
            raise NotColumns

    def __len__(self) -> int:
        return self._rows.count

    @property
    def nbytes(self) -> int:
        """About how much memory they take, in bytes."""
        return self._rows.nbytes + NUMBER_BYTES * len(self)

    def slots_of(self, columns: list[pa.Array]) -> Slots | None:
        """As of :class:`KeyIndex`; None where columns are of other types."""
        contents = self._contents(columns)
        return None if contents is None else self._rows.slots_of(contents)[0]

    def _contents(self, columns: list[pa.Array]) -> pa.RecordBatch | None:
        if any(column.type != kind for column, kind in zip(columns, self._types, strict=True)):
            return None
        return contents_of(pa.RecordBatch.from_arrays(columns, names=[f"k{at}" for at in range(len(columns))]))

    def found(self, keys: Sequence[Any]) -> Slots:
        """As of :class:`KeyIndex`."""
        out = np.full(len(keys), -1, np.int64)
        parts = [key if len(self._types) > 1 and isinstance(key, tuple) else (key,) for key in keys]
        fit = [at for at, each in enumerate(parts) if len(each) == len(self._types)]
        lists = [[_like(kind, parts[at][i]) for at in fit] for i, kind in enumerate(self._types)]
        try:
            columns = [pa.array(values, kind) for values, kind in zip(lists, self._types, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return out if len(keys) == 1 else np.concatenate([self.found([key]) for key in keys])
        contents = self._contents(columns)
        if contents is not None and fit:
            same = [keys[at] == key for at, key in zip(fit, keys_in(columns), strict=True)]  # a column may have rounded it
            out[fit] = np.where(same, self._rows.found(contents), -1)
        return out

    def columns(self) -> tuple[pa.ChunkedArray, ...]:
        """All of them, by slot, in types that Arrow compares."""
        return tuple(self._rows.table().columns)

    def at(self, slots: Slots) -> list[pa.Array]:
        """Those of some slots, in their own types."""
        try:
            return [from_plain_form(column, kind) for column, kind in zip(self._rows.at(slots).columns, self._types, strict=True)]
        except pa.ArrowException as error:
            raise NotColumns(str(error)) from error

    def keys(self) -> list[Any]:
        """All of them as Python objects, by slot."""
        return keys_in([from_plain_form(one_array(column), kind) for column, kind in zip(self.columns(), self._types, strict=True)])


def _like(kind: pa.DataType, key: Any) -> Any:
    """A number as a column of this type has it, where one there is equal to it; others as they are."""
    if not isinstance(key, (int, float, Decimal, Fraction)):
        return key
    try:
        if pa.types.is_integer(kind):
            return int(key) if int(key) == key else key
        if pa.types.is_boolean(kind):
            return bool(key) if key in (0, 1) else key
        if pa.types.is_decimal(kind) and not isinstance(key, Fraction):
            return Decimal(key)
        return float(key) if pa.types.is_floating(kind) else key
    except (OverflowError, ValueError):  # infinite, or no number
        return key


__all__ = ["KEY_BYTES", "KeyIndex"]
