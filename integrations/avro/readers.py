"""Readers of one type each: from many messages at once, in the writer's form, a column in the reader's.

``resolving.py`` puts them together. A reader moves the cursor of exactly the messages that it is asked for, and gives one value for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.integrations.avro.cursor import Cursor, Malformed, Rows
from rayad.integrations.avro.logical import OutOfRange, as_logical
from rayad.integrations.avro.scanning import WIDTHS, Lost, begins_of
from rayad.integrations.avro.schemas import AvroField, AvroType

_EMPTY_ITEMS_MAX = 1 << 20
ITEMS_A_ROUND = 100
"""With fewer items a round on average, looking at each in Python takes less time than the round."""


class Reader(ABC):
    """Reads the values of one type. ``kind``: of the column that it gives."""

    kind: pa.DataType

    @abstractmethod
    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """The next value of each of these messages. Raises :class:`Malformed`."""


class Plain(Reader):
    """Numbers, booleans, texts, bytes.

    Args:
        take: reads them as an array.
        kind: what they become; numbers that Avro promotes are cast.
    """

    def __init__(self, take: Callable[[Cursor, Rows], pa.Array], kind: pa.DataType) -> None:
        self._take = take
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        column = self._take(cursor, rows)
        if column.type.equals(self.kind):
            return column
        if pat.is_string(self.kind):
            return _as_text(cursor, rows, column)
        return column.cast(self.kind, safe=not pat.is_floating(self.kind))


class Logical(Reader):
    """A logical type on a plain one; ``as_kind``: in which the reader wants it, if another unit."""

    def __init__(self, plain: Reader, kind: pa.DataType, as_kind: pa.DataType) -> None:
        self._plain, self._written = plain, kind
        self.kind = as_kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        plain = self._plain.read(cursor, rows)
        try:
            column = as_logical(plain, self._written)
        except OutOfRange as error:
            raise Malformed(str(error), int(rows[error.at])) from error
        if column.type.equals(self.kind):
            return column
        try:
            return column.cast(self.kind)
        except pa.ArrowInvalid as error:
            at = next(at for at in range(len(column)) if not _casts(column.slice(at, 1), self.kind))
            raise Malformed(f"{plain[at].as_py()}, a {self._written}, is none of {self.kind} exactly", int(rows[at])) from error


class Enum(Reader):
    """Symbols as texts. ``symbols``: those of the writer as the reader has them; None: it has none for it."""

    kind = pa.string()

    def __init__(self, written: Sequence[str], symbols: Sequence[str | None]) -> None:
        self._written, self._symbols = written, pa.array(symbols, pa.string())

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        at = cursor.longs(rows)
        cursor.refuse(rows, (at < 0) | (at >= len(self._symbols)), "it has the number of a symbol that its schema does not have")
        column = self._symbols.take(pa.array(at))
        if column.null_count:
            first = int(pc.index(column.is_null(), True).as_py())
            raise Malformed(f"the schema that is read has no symbol {self._written[at[first]]!r}, and no default", int(rows[first]))
        return column


class Nothing(Reader):
    """Null."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        return pa.nulls(len(rows), self.kind)


class Default(Reader):
    """A value that the writer does not have. ``value``: an array of it alone."""

    def __init__(self, value: pa.Array) -> None:
        self._value = value
        self.kind = value.type

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        return self._value.take(pa.array(np.zeros(len(rows), np.int64)))


class Refused(Reader):
    """What cannot be read as the reader wants it: an error where it is there."""

    def __init__(self, told: str, kind: pa.DataType) -> None:
        self._told = told
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        if len(rows):
            raise Malformed(self._told, int(rows[0]))
        return pa.nulls(0, self.kind)


class Record(Reader):
    """Structs.

    Args:
        written: the writer's fields, in order: which of the struct's fields it is, or None, and how it is read, or skipped.
        defaults: the fields that the writer does not have.
        kind: of the struct.
    """

    def __init__(self, written: Sequence[tuple[int | None, Any]], defaults: dict[int, Reader], kind: pa.StructType) -> None:
        self._written, self._defaults = written, defaults
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        columns: list[Any] = [None] * self.kind.num_fields
        for place, how in self._written:
            if place is None:
                skip(how, cursor, rows)
            else:
                columns[place] = how.read(cursor, rows)
        for place, default in self._defaults.items():
            columns[place] = default.read(cursor, rows)
        return pa.StructArray.from_arrays(columns, fields=list(self.kind))


class Union(Reader):
    """A value of the branch that its number says. ``branches``: None for null."""

    def __init__(self, branches: Sequence[Reader | None], kind: pa.DataType) -> None:
        self._branches = branches
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        number = cursor.longs(rows)
        cursor.refuse(rows, (number < 0) | (number >= len(self._branches)), "it has the number of a branch that its union does not have")
        pieces: list[pa.Array] = []
        taken, count = np.full(len(rows), -1, np.int64), 0
        for at, branch in enumerate(self._branches):
            which = np.flatnonzero(number == at)
            if branch is None or not len(which):
                continue
            pieces.append(branch.read(cursor, rows[which]))
            if len(which) == len(rows):
                return pieces[0]
            taken[which] = np.arange(count, count + len(which))
            count += len(which)
        if not pieces:
            return pa.nulls(len(rows), self.kind)
        return pa.concat_arrays(pieces).take(pa.array(taken, mask=taken < 0))


class Items(Reader):
    """Arrays, and maps, whose items are pairs: in blocks, each with its number of items, the last one with none.

    Items whose beginnings are known are read at once: those of numbers are known, and where few messages have many, they are looked for. Of
    others the first of each message is read, then the second, and so on.
    """

    def __init__(self, item: Reader, written: AvroType, kind: pa.DataType) -> None:
        self._item, self._written = item, written
        self.kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        owners: list[Rows] = []
        pieces: list[pa.Array] = []
        open_rows = np.arange(len(rows))
        while len(open_rows):
            left = block_of(cursor, rows[open_rows], self._written, skips=False)
            open_rows = open_rows[left > 0]
            left = left[left > 0]
            begins = _begins(self._written, cursor, rows[open_rows], left)
            if begins is not None:
                owner = np.repeat(open_rows, left)
                inner = cursor.of_items(begins, rows[owner])
                pieces.append(inner.told_of(self._item.read))
                owners.append(owner)
                continue
            some = open_rows
            while len(some):
                pieces.append(self._item.read(cursor, rows[some]))
                owners.append(some)
                some, left = some[left > 1], left[left > 1] - 1
        return self._lists(len(rows), owners, pieces)

    def _lists(self, count: int, owners: list[Rows], pieces: list[pa.Array]) -> pa.Array:
        owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        items = pa.concat_arrays(pieces) if pieces else pa.nulls(0, self._item.kind)
        if len(pieces) > 1:
            items = items.take(pa.array(np.argsort(owner, kind="stable")))
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=count), out=offsets[1:])
        if pat.is_map(self.kind):
            return pa.MapArray.from_arrays(pa.array(offsets), *items.flatten()).cast(self.kind)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=self.kind)


def block_of(cursor: Cursor, rows: Rows, item: AvroType, *, skips: bool) -> Rows:
    """How many items the next block of each message has; with ``skips`` blocks that say their bytes are gone over, and count 1."""
    count = cursor.longs(rows)
    cursor.refuse(rows, count == np.iinfo(np.int64).min, "a block has a number of items that cannot be")
    with_bytes = np.flatnonzero(count < 0)
    if len(with_bytes):
        sizes = cursor.sizes(rows[with_bytes])
        count = np.abs(count)
        if skips:
            cursor.skip(rows[with_bytes], sizes)
            count[with_bytes] = -1
    most = _EMPTY_ITEMS_MAX if _is_empty(item) else cursor.end[rows] - cursor.position[rows]
    cursor.refuse(rows, count > most, "a block says that it has more items than its message has bytes")
    return count


def _begins(item: AvroType, cursor: Cursor, rows: Rows, counts: Rows) -> Rows | None:
    """Where each of so many items of each message begins, and the cursor behind them; None: only reading them tells."""
    width = WIDTHS.get(item.kind) or (item.size if item.kind == "fixed" else 0)
    if width:
        begins = cursor.skip(rows, counts * width)
        begin: Rows = np.repeat(begins, counts) + width * _places(counts)
        return begin
    if item.kind in ("int", "long", "enum"):
        return cursor.begins_of_longs(rows, counts, _places(counts))
    if ITEMS_A_ROUND * int(counts.max(initial=0)) < counts.sum():
        return None
    return _scanned(item, cursor, rows, counts)


def _scanned(item: AvroType, cursor: Cursor, rows: Rows, counts: Rows) -> Rows | None:
    """The same, by looking at one item after the other; None: some message is not what it says, and reading it will tell."""
    data, begins, ends = cursor.data.data, [], []
    try:
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            some, end = begins_of(item, data, int(cursor.position[row]), int(cursor.end[row]), count)
            begins += some
            ends.append(end)
    except Lost:
        return None
    cursor.skip(rows, np.array(ends, np.int64) - cursor.position[rows])
    return np.array(begins, np.int64)


def _places(counts: Rows) -> Rows:
    """0 to n - 1 for each n."""
    places: Rows = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _is_empty(kind: AvroType, inside: tuple[AvroType, ...] = ()) -> bool:
    """Whether its values take no bytes."""
    if kind.kind == "record":
        return not any(kind is one for one in inside) and all(_is_empty(one.type, (*inside, kind)) for one in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)


def skip(kind: AvroType, cursor: Cursor, rows: Rows) -> None:
    """Go over a value of each of these messages."""
    if not len(rows):
        return
    match kind.kind:
        case "null":
            pass
        case "int" | "long" | "enum":
            cursor.longs(rows)
        case "bytes" | "string":
            cursor.skip(rows, cursor.sizes(rows))
        case "record":
            for one in kind.fields:
                skip(one.type, cursor, rows)
        case "union":
            number = cursor.longs(rows)
            cursor.refuse(rows, (number < 0) | (number >= len(kind.inner)), "it has the number of a branch that its union does not have")
            for at, branch in enumerate(kind.inner):
                skip(branch, cursor, rows[number == at])
        case "array" | "map":
            _skip_items(kind, cursor, rows)
        case _:
            cursor.skip(rows, WIDTHS.get(kind.kind) or kind.size)


def _skip_items(kind: AvroType, cursor: Cursor, rows: Rows) -> None:
    while len(rows):
        left = block_of(cursor, rows, kind.inner[0], skips=True)
        rows, left = rows[left != 0], left[left != 0]
        if _is_empty(kind.inner[0]) and kind.kind == "array":
            continue
        some, left = rows[left > 0], left[left > 0]
        if _begins(entry_of(kind), cursor, some, left) is not None:
            continue
        while len(some):
            if kind.kind == "map":
                cursor.skip(some, cursor.sizes(some))
            skip(kind.inner[0], cursor, some)
            some, left = some[left > 1], left[left > 1] - 1


def entry_of(kind: AvroType) -> AvroType:
    """The item of an array; the pair of a map."""
    if kind.kind == "array":
        return kind.inner[0]
    return AvroType("record", fields=(AvroField("key", AvroType("string")), AvroField("value", kind.inner[0])))


def _as_text(cursor: Cursor, rows: Rows, column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        for at, value in enumerate(column.to_pylist()):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                raise Malformed(f"a text is not UTF-8: {error}", int(rows[at])) from error
        raise


def _casts(one: pa.Array, kind: pa.DataType) -> bool:
    try:
        one.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


__all__ = ["Default", "Enum", "Items", "Logical", "Nothing", "Plain", "Reader", "Record", "Refused", "Union", "block_of", "skip"]
