"""``as_columns``: results of keyed operators, windows and joins as ordinary columns, with the same names from rows and from columns.

Names follow from the program, not from the form that a batch has: :class:`Labels` says what the operator that made the results calls them.
Where columns are known when the program is written, every batch leaves with these, exactly, or is refused. Decision 065.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import PairArray, RecordArray, WindowArray
from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.records.batches import keyed_columns, to_record_batch, to_rows
from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.dataflow.records.output_form import describe
from rayad.dataflow.windows import Window
from rayad.progress import DataflowError, show


@dataclass(frozen=True, slots=True)
class Labels:
    """What an operator's results are called.

    Args:
        keys: the columns of the key; none where the key is a function: it is ``key`` then, and its parts ``key0``, ``key1`` ...
        value: of a result that is no record and no dict.
        record: whether a result is a record as it came, so that its fields of the key's names are the key once more.
        right_keys: the columns of the key on the right side of a join.
    """

    keys: tuple[str, ...] = ()
    value: str = "value"
    record: bool = False
    right_keys: tuple[str, ...] = ()


UNKNOWN = Labels()
Named = Iterable[tuple[str, Any]]
"""Names, not yet distinct, and what is called so: columns, or the values of one row."""


def plain_columns(batch: Any, names: Sequence[str] = (), labels: Labels = UNKNOWN) -> Any:
    """Windows as ``window_start`` and ``window_end``, records and dicts as a column for each field; all other columns as they are.

    Of a joined pair the right side's columns come behind the left side's; those of the key are there once, and one whose name is taken on
    the left gets ``_right`` behind it. Where a name is taken still, what comes later gets ``_`` behind it. Rows become columns. ``names``
    says what the columns are called, in order; a record of rows that has met none then has null in the other side's columns.

    >>> from rayad.dataflow.operators.results import window_array
    >>> windowed = pa.record_batch({"k": ["a"], "window": window_array(pa.array([0]), pa.array([10])), "count": [3]})
    >>> plain_columns(windowed, ["key", "since", "until", "n"]).to_pylist()
    [{'key': 'a', 'since': 0, 'until': 10, 'n': 3}]
    >>> plain_columns([("a", Window(0, 10), 3)]).schema.names
    ['key', 'window_start', 'window_end', 'value']
    >>> plain_columns([("a", Window(0, 10), 3)], labels=Labels(("shop",), "count")).schema.names
    ['shop', 'window_start', 'window_end', 'count']

    Raises DataflowError when there are not as many columns as names, and for a pair of rows without one of its records without names.
    """
    if not isinstance(batch, pa.RecordBatch):
        return _of_rows(to_rows(batch), names, labels)
    keys = keyed_columns(batch.schema) or 0
    leading = labels.keys if len(labels.keys) == keys else tuple(batch.schema.names[:keys])
    rest = zip(batch.schema.names[keys:], batch.columns[keys:], strict=True)
    sole = labels.value if keys and labels.value != UNKNOWN.value else None
    opened = chain.from_iterable(_opened_column(sole or name, column, leading, labels) for name, column in rest)
    first = chain.from_iterable(map(_opened_window, leading, batch.columns[:keys]))
    columns = _distinct([*first, *opened])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=_checked(columns, names))


def _distinct(named: Named) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, one in named:
        out[name if name not in out else distinct_names(list(out), [name])[-1]] = one
    return out


def _checked(columns: dict[str, Any], names: Sequence[str]) -> list[str]:
    if names and len(names) != len(columns):
        raise DataflowError(f"as_columns was given {len(names)} names, {list(names)}, for {len(columns)} columns: {list(columns)}")
    return list(names or columns)


def _of_rows(rows: list[Any], names: Sequence[str], labels: Labels) -> Any:
    if not rows:
        return []
    opened = [_distinct(_opened_row(row, labels, len(names) or None)) for row in rows]
    if not names:
        return to_record_batch(opened)
    out, called_of = [], dict[int | None, dict[str, str]]()
    for row, fields in zip(rows, opened, strict=True):
        alone = _alone_in(row[-1]) if isinstance(row, tuple) else None  # then the other side's fields are there as null, without names
        called = called_of.get(alone)
        if called is None:
            called = called_of[alone] = dict(zip(fields, _checked(fields, names), strict=True))
        if fields.keys() != called.keys():
            raise DataflowError(
                f"as_columns was given {len(names)} names, {list(names)}, for records with the fields {list(called)}, and one with "
                f"{list(fields)}: names go by position; leave them out, or bring the records to the same fields with map"
            )
        out.append({called[name]: value for name, value in fields.items()})
    return to_record_batch([{name: row[name] for name in names} for row in out])


def _opened_window(name: str, column: pa.Array) -> Named:
    return [(f"{name}_start", column.starts), (f"{name}_end", column.ends)] if isinstance(column, WindowArray) else [(name, column)]


def _opened_column(name: str, column: pa.Array, keys: Sequence[str], labels: Labels) -> Named:
    if isinstance(column, WindowArray):
        return _opened_window("window", column)
    if isinstance(column, PairArray):
        left, right = (_fields(column.storage.field(i)) for i in (0, 1))
        return _pair(left, right, keys, column.type.right_keys)
    if isinstance(column, RecordArray):
        return _without(_fields(column.storage), keys)
    if pa.types.is_struct(column.type):
        return _without(_fields(column), keys) if labels.record else _fields(column)
    return [(name, column)]


def _fields(column: pa.StructArray) -> list[tuple[str, pa.Array]]:
    return [(field.name, array) for field, array in zip(column.type, column.flatten(), strict=True)]


def _without(fields: Named, keys: Sequence[str]) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in fields if name not in keys]


def _pair(left: Named, right: Named, keys: Sequence[str], right_keys: Sequence[str]) -> Named:
    """The fields of two records that have met."""
    left = list(left)
    taken = {*keys, *(name for name, _ in left)}
    return [*_without(left, keys), *((f"{name}_right" if name in taken else name, one) for name, one in _without(right, right_keys))]


def _opened_row(row: Any, labels: Labels, width: int | None) -> Named:
    """A row of results by name; of so many columns, if that is known."""
    if isinstance(row, dict):
        return row.items()
    if not isinstance(row, tuple):
        return [("value", row)]
    out: list[tuple[str, Any]] = []
    for position, part in enumerate(row):
        if isinstance(part, Window):
            out += [("window_start", part.start), ("window_end", part.end)]
        elif position == 0:
            out += _opened_key(part, labels.keys)
        elif isinstance(part, dict):
            out += _without(part.items(), labels.keys) if labels.record else part.items()
        elif isinstance(part, tuple):
            out += _opened_pair(part, labels, None if width is None else width - len(out))
        else:
            out.append((labels.value, part))
    return out


def _opened_key(key: Any, names: tuple[str, ...]) -> Named:
    if len(names) == 1:
        return [(names[0], key)]
    if isinstance(key, dict):
        return key.items()
    if isinstance(key, tuple):
        return zip(names if len(names) == len(key) else [f"key{i}" for i in range(len(key))], key, strict=True)
    return [("key", key)]


def _alone_in(pair: Any) -> int | None:
    """Which side of a pair is a record that has met none; None: neither."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and None in pair):
        return None
    return next((side for side in (0, 1) if isinstance(pair[side], dict)), None)


def _opened_pair(pair: tuple[Any, ...], labels: Labels, width: int | None) -> Named:
    """A pair by name; of so many columns, if that is known."""
    if len(pair) == 2 and all(isinstance(side, dict) for side in pair):
        return _pair(pair[0].items(), pair[1].items(), labels.keys, labels.right_keys)
    alone = _alone_in(pair)
    if alone is not None:
        if width is None:
            raise DataflowError(
                f"as_columns was given {show(pair, 120)}, a pair of rows without one of its records, whose columns nothing tells: name all "
                "columns, as_columns('k', ...), or say those of both streams with schema=, as map takes it"
            )
        own = _without(pair[alone].items(), (labels.keys, labels.right_keys)[alone])
        nothing = [(f"nothing {at}", None) for at in range(width - len(own))]
        return [*nothing, *own] if alone else [*own, *nothing]
    return list(chain.from_iterable(side.items() if isinstance(side, dict) else [(f"value{i}", side)] for i, side in enumerate(pair)))


@dataclass(slots=True)
class AsColumns(Element):
    """:func:`plain_columns` of each batch, in the columns that are known when the program is written, if they are."""

    names: tuple[str, ...]
    labels: Labels = UNKNOWN
    said: pa.Schema | None = None

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def apply(self, batch: Any) -> Any:
        out = plain_columns(batch, self.names, self.labels)
        said = self.said
        if said is None or not isinstance(out, pa.RecordBatch) or out.schema.equals(said):
            return out
        strange = [name for name in out.schema.names if name not in said.names]
        try:
            if not strange:
                return cast_batch(out, said)
        except Inexact as error:
            raise DataflowError(
                f"as_columns: {error}; when the program is written the columns are {describe(said)}: cast what is aggregated to a wider "
                "type before, or use map in place of as_columns"
            ) from error
        raise DataflowError(f"as_columns: there are columns {strange} beside {describe(said)}, which the program tells")

    def culprit(self, batch: Any) -> Any:
        return None


__all__ = ["AsColumns", "Labels", "plain_columns"]
