"""Where the event times of streams are, and what senders tell the vertices behind of those of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.operators.windows.watermark_rules import Stretch, WatermarkRule, joined
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.event_times import event_time, later
from rayad.dataflow.records.moments import moments, moments_of
from rayad.dataflow.records.selectors import ValueSelector, require_columns
from rayad.progress import DataflowError, show


@dataclass(slots=True)
class TellTimes(Element):
    """What a batch tells of its event times: the largest one, or with ``max_ahead`` its stretches; with ``per`` that of each part, as
    ``(part, what it tells)``."""

    times: ValueSelector
    per: ValueSelector | None = None
    max_ahead: Any = None

    def apply(self, batch: Any) -> Any:
        tell = self._largest if self.max_ahead is None else self._stretches
        if self.per is None:
            return tell(batch)
        return [(part, told) for part, rows in _by_part(batch, self.per) for told in tell(rows)]

    def _stretches(self, batch: Any) -> list[Stretch]:
        if isinstance(batch, pa.RecordBatch) and self.times.column:
            require_columns(batch, (self.times.column,))
            column = batch.column(self.times.column).drop_null()  # nulls are refused where windows are assigned
            if _has_maximum(column.type) and not pa.types.is_duration(column.type) and len(column):
                bounds = pc.min_max(column).as_py()
                both = [(event_time(one, "a record"), event_time(one, "a record")) for one in bounds.values()]
                together = joined(both, self.max_ahead)
                if len(together) == 1:
                    return together
            times = [event_time(time, "a record") for time in column.unique().to_pylist()]
        else:
            rows = to_rows(batch)
            times = [event_time(time, row) for time, row in zip(mapped(self.times.row_value(), rows), rows, strict=True)]
        return joined([(time, time) for time in times], self.max_ahead)

    def _largest(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.times.column:
            require_columns(batch, (self.times.column,))
            column = batch.column(self.times.column)
            if column.null_count == len(column):
                return []  # they are refused where windows are assigned
            if _has_maximum(column.type):
                if pa.types.is_duration(column.type):  # for which Arrow has no such kernel
                    largest = pa.array([pc.max(column.view(pa.int64())).as_py()], pa.int64()).view(column.type)
                    return [event_time(largest[0].as_py(), "a record")]
                return [event_time(pc.max(column).as_py(), "a record")]
        rows = to_rows(batch)
        if not rows:
            return []
        times = mapped(self.times.row_value(), rows)
        try:
            return [event_time(max(moments(times)), "a record")]
        except (TypeError, DataflowError):  # scalars of several kinds, or one that is refused
            return [reduce(later, [event_time(time, row) for time, row in zip(times, rows, strict=True)])]


def _by_part(batch: Any, per: ValueSelector) -> Iterator[tuple[Any, Any]]:
    """Each part with its records, in the order of their first ones."""
    if isinstance(batch, pa.RecordBatch) and per.column:
        require_columns(batch, (per.column,))
        parts = batch.column(per.column).dictionary_encode(null_encoding="encode")
        names = moments_of(parts.dictionary)
        for index, part in enumerate(names):
            yield part, batch if len(names) == 1 else batch.filter(pc.equal(parts.indices, index))
        return
    of: dict[Any, list[Any]] = {}
    rows = to_rows(batch)
    for part, row in zip(moments(mapped(per.row_value(), rows)), rows, strict=True):
        try:
            of.setdefault(part, []).append(row)
        except TypeError as error:
            raise DataflowError(
                f"assign_timestamps(per=...): the part of {show(row, 60)} is {show(part, 60)}, a {type(part).__name__}, which cannot be a "
                "key: give a text, a number or a tuple of them"
            ) from error
    yield from of.items()


def _has_maximum(kind: pa.DataType) -> bool:
    """Whether Arrow's ``max`` is Python's."""
    numbers = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    return bool(numbers or pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind))


@dataclass(frozen=True, slots=True)
class Side:
    """One of the streams that have become one: where it is, where its records' event times are, and how its watermark follows.

    Args:
        per: where a record's part is, where each part has a watermark of its own.
    """

    node: int
    port: int
    selector: ValueSelector
    rule: WatermarkRule
    per: ValueSelector | None = None

    def told(self) -> TellTimes:
        """The step that tells of its batches' event times."""
        return TellTimes(self.selector, self.per, self.rule.max_ahead)


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a record's event time is, and how the watermark of the stream follows.

    Args:
        selector: None for a union of streams that have it in different places.
        sides: the streams of a union, whose watermark is the least of theirs.
        together: whether the stream is these sides and nothing else, so that a step on it may as well be made on each of them.
        per: as of a :class:`Side`.
    """

    selector: ValueSelector | None
    rule: WatermarkRule
    sides: tuple[Side, ...] = ()
    together: bool = False
    per: ValueSelector | None = None

    def sides_at(self, node: int, port: int) -> tuple[Side, ...]:
        """The streams whose event times make the watermark, of a stream that is there."""
        return self.sides or (Side(node, port, self.selector or ValueSelector(), self.rule, self.per),)

    def lengths(self) -> list[Any]:
        """The lengths that the rules of its sides hold."""
        rules = (self.rule, *(side.rule for side in self.sides))
        return [length for rule in rules for length in (rule.max_delay, rule.max_ahead) if length is not None]

    def moved(self) -> EventTime | None:
        """Behind an exchange, where the sides of a union cannot be told apart any more."""
        return None if self.selector is None else replace(self, together=False)
