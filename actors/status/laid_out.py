"""The first of some records as a table of texts: for terminals and notebooks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from typing import Any

import pyarrow as pa

from rayad.actors.status.terminal import as_written, console
from rayad.dataflow.collected import Collected
from rayad.dataflow.windows import Window
from rayad.progress import Timestamp, show

CELL_MAX = 60
"""The characters of a cell, at most, or of a part of a tuple."""
PARTS_MAX = 4


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A table of texts.

    Args:
        names: of its columns.
        rows: those that are shown.
        of: how many there are in all; None where it is no list of records.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    of: int | None

    @property
    def left_out(self) -> str:
        """What is said below it; empty where all is shown."""
        return "" if self.of is None or self.of <= len(self.rows) else f"{len(self.rows):,} of {self.of:,} records"

    def as_html(self, title: str) -> str:
        """A piece of HTML without script, style sheet or link."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.names)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{escape(title)}{table}{escape(self.left_out)}</div>"

    def show(self, title: str) -> None:
        """Print it, on a terminal or in a notebook."""
        from rich.table import Table

        caption = as_written(self.left_out) if self.left_out else None
        table = Table(title=as_written(title), caption=caption, title_justify="left", caption_justify="left")
        for name in self.names:
            table.add_column(as_written(name), overflow="fold")
        for row in self.rows:
            table.add_row(*map(as_written, row))
        console().print(table)


def laid_out(value: Any, rows: int) -> LaidOut:
    """What a sink gave, its first records: an Arrow table, ``(Timestamp, record)`` pairs, or anything else as one cell.

    Fields of records that are dicts, and places of tuples of one length, are columns.

    >>> laid_out([(Timestamp(0), ("ann", 3)), (Timestamp(1), ("bob", 4))], 1)
    LaidOut(names=('epoch', '0', '1'), rows=(('0', 'ann', '3'),), of=2)
    """
    if isinstance(value, pa.Table):
        columns = [column.slice(0, rows).to_pylist() for column in value.columns]
        return LaidOut(tuple(value.schema.names), tuple(_texts(row) for row in zip(*columns, strict=True)), value.num_rows)
    first = value.first(rows) if isinstance(value, Collected) else value[:rows] if isinstance(value, list) else None
    if first is None or not all(map(_is_timed, first)):
        return LaidOut(("result",), ((_text(value),),), None)
    records = [record for _, record in first]
    names, cells = _fields(records)
    in_loops = any(time.counters for time, _ in first)
    times = [str(time) if in_loops else str(time.epoch) for time, _ in first]
    table = tuple((time, *_texts(row)) for time, row in zip(times, cells, strict=True))
    return LaidOut(("time" if in_loops else "epoch", *names), table, len(value))


def _is_timed(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], Timestamp)


def _fields(records: Sequence[Any]) -> tuple[list[str], list[Sequence[Any]]]:
    if records and all(isinstance(record, dict) for record in records):
        names = list(dict.fromkeys(name for record in records for name in record))
        return [str(name) for name in names], [[record.get(name, "") for name in names] for record in records]
    shapes = {(type(record), len(record)) if isinstance(record, tuple) else None for record in records}
    if len(shapes) == 1 and None not in shapes:
        first = records[0]
        return list(getattr(first, "_fields", map(str, range(len(first))))), list(records)
    return ["record"], [[record] for record in records]


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _text(value: Any) -> str:
    """Parts of tuples as if they stood alone; a window as ``[start, end)``."""
    if isinstance(value, str) and len(value) <= CELL_MAX and value.isprintable():
        return value
    if isinstance(value, Window):
        return f"[{_text(value.start)}, {_text(value.end)})"
    if type(value) is tuple and 0 < len(value) <= PARTS_MAX:
        return f"({', '.join(map(_text, value))})"
    return str(value) if isinstance(value, (dt.date, dt.timedelta, Decimal)) else show(value, CELL_MAX)


__all__ = ["LaidOut", "laid_out"]
