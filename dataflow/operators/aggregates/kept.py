"""Partials that keep values: all of a key, those that differ, those that are the first in an order. Their column is lists (``lists``).

An item is a value, or a struct of a ``place`` in an order and a ``value``. Null values are passed over, and so are places that are null
or NaN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.held import is_ordered
from rayad.dataflow.operators.aggregates.lists import Lists, Numbers, lengths_of, list_array
from rayad.dataflow.operators.aggregates.partial import Array, Partial, Values
from rayad.dataflow.operators.keys.group_functions import POSITIONS
from rayad.dataflow.records.batches import keyed_columns, one_array
from rayad.dataflow.records.content_codes import has_contents, plain_form

_BLOCKS_PER_GROUP = 4
"""Groups with more than so many times the wanted values are looked at in blocks first."""


def is_placed(kind: pa.DataType) -> bool:
    """Whether columns order values of this type as Python does."""
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)) or is_ordered(kind)


def placed(places: pa.Array, values: pa.Array) -> pa.StructArray:
    """Values with their places in an order."""
    return pa.StructArray.from_arrays([places, values], names=["place", "value"])


def placed_input(name: str, batch: pa.RecordBatch, place: str, value: str | None) -> pa.Array | str:
    """A column of values (None: whole records) with their places in an order, also a column; or why the aggregation ``name`` handles
    rows."""
    kinds = {field.name: field.type for field in batch.schema}
    if not is_placed(kinds[place]):
        return f"{name} in the order of {kinds[place]} ({place!r}) handles rows"
    names = batch.schema.names if value is None else [value]
    odd = next((each for each in names if not has_contents(kinds[each])), None)
    if odd is not None:
        return f"{name} of {kinds[odd]} ({odd!r}) handles rows"
    if value is not None:
        return placed(plain_form(batch.column(place)), plain_form(batch.column(value)))
    if keyed_columns(batch.schema) is not None or len(kinds) < len(names):
        return f"{name} of results of keyed operators handles rows"
    columns = [plain_form(column) for column in batch.columns]
    return placed(plain_form(batch.column(place)), pa.StructArray.from_arrays(columns, names=names))


class Kept(Partial):
    """A list of values for each key."""

    columns = ("kept",)
    of_rows = (POSITIONS,)
    gathers = True

    @abstractmethod
    def chosen(self, items: pa.Array, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
        """Which of the items at these positions stay, as :meth:`gathered` takes them, and in what order."""

    def gathered(self, items: Values, positions: Array, lengths: Array) -> pa.ListArray:
        array = one_array(items) if isinstance(items, pa.ChunkedArray) else items
        positions, lengths = self.chosen(array, positions, lengths)
        return list_array(array.take(pa.array(positions)), lengths)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        assert values is not None
        lists = self.gathered(values, np.arange(rows), np.ones(rows, np.int64))
        return [lists] if lists.type.equals(kinds[0]) else None

    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        return None

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return [Lists.of(self.gathered(*left[0].beside(right[0])))]


def _without(odd: Any, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
    """The positions that are not odd, a mask over them, and how many of each group these are."""
    counts = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[~odd], minlength=len(lengths))
    return positions[~odd], counts.astype(np.int64)


def _present(items: pa.Array, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
    if not items.null_count:
        return positions, lengths
    return _without(items.is_null().to_numpy(zero_copy_only=False)[positions], positions, lengths)


class Everything(Kept):
    """All values, in the order in which they come."""

    def chosen(self, items: pa.Array, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
        return _present(items, positions, lengths)


class Different(Kept):
    """Each value once. They have to be what ``contents_of`` makes: equal values have equal bits."""

    def chosen(self, items: pa.Array, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
        positions, lengths = _present(items, positions, lengths)
        groups = np.repeat(np.arange(len(lengths)), lengths)
        table = pa.table({"group": groups, "item": items.take(pa.array(positions)), "at": np.arange(len(positions))})
        once = table.group_by(["group", "item"], use_threads=False).aggregate([("at", "min")])
        first = np.sort(once.column("at_min").to_numpy())
        return positions[first], np.bincount(groups[first], minlength=len(lengths)).astype(np.int64)


class Ranked(Kept):
    """The values that come first in the order of their places, at most so many; of equal places the one whose ``repr`` comes first. An
    object is made for a value only where its place is that of another one, too.

    Args:
        most: how many are kept.
        largest: whether the largest place comes first.
        greatest_repr: whether of equal places the greatest ``repr`` comes first.
    """

    def __init__(self, most: int, *, largest: bool, greatest_repr: bool = False) -> None:
        self.most = most
        self.largest = largest
        self.greatest_repr = greatest_repr

    def chosen(self, items: pa.Array, positions: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
        is_struct = pa.types.is_struct(items.type)
        places = (items.field("place") if is_struct else items).take(pa.array(positions))
        odd = places.is_null(nan_is_null=pa.types.is_floating(places.type)).to_numpy(zero_copy_only=False)
        if is_struct and items.field("value").null_count:
            odd = odd | items.field("value").is_null().to_numpy(zero_copy_only=False)[positions]
        if odd.any():
            places = places.filter(pa.array(~odd))
            positions, lengths = _without(odd, positions, lengths)
        ranks = self._ranks(places)
        stays = _may_be_first(ranks, lengths, self.most)
        if not stays.all():
            ranks = ranks[stays]
            positions, lengths = _without(~stays, positions, lengths)
        groups = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((ranks, groups))
        ranks = ranks[order]
        starts = np.cumsum(lengths) - lengths
        number = np.arange(len(groups)) - np.repeat(starts, lengths)  # within the group
        filled = lengths > 0
        last = ranks[(starts + np.minimum(lengths, self.most) - 1)[filled]]
        needed = ranks <= np.repeat(last, lengths[filled])  # the first so many, and those that tie with the last of them
        self._settle(items, positions, order, groups, ranks, needed)
        return positions[order[number < self.most]], np.minimum(lengths, self.most)

    def _ranks(self, places: pa.Array) -> Array:
        """Numbers of which the smallest comes first; equal places have equal ones."""
        kind = places.type
        if pa.types.is_floating(kind):
            floats: Array = places.to_numpy(zero_copy_only=False)
            return -floats if self.largest else floats
        if pa.types.is_temporal(kind):
            places = places.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        elif not pa.types.is_integer(kind):
            places = pc.rank(places, tiebreaker="dense")
        values: Array = places.to_numpy(zero_copy_only=False)
        return ~values if self.largest else values

    def _settle(self, items: pa.Array, positions: Numbers, order: Numbers, groups: Numbers, ranks: Array, needed: Any) -> None:
        """Put those of one group and rank, of which not all may be kept, in the order of their ``repr``."""
        if not pa.types.is_struct(items.type) and not pa.types.is_floating(items.type):
            return  # equal ones look the same
        tie = (ranks[1:] == ranks[:-1]) & (groups[1:] == groups[:-1]) & needed[1:]
        if not tie.any():
            return
        edges = np.flatnonzero(np.diff(np.concatenate([[False], tie, [False]]).astype(np.int8)))
        values = items.field("value") if pa.types.is_struct(items.type) else items
        for begin, end in zip(edges[::2].tolist(), (edges[1::2] + 1).tolist(), strict=True):
            run = order[begin:end]
            shown = list(map(repr, values.take(pa.array(positions[run])).to_pylist()))
            order[begin:end] = run[sorted(range(len(shown)), key=shown.__getitem__, reverse=self.greatest_repr)]


def _may_be_first(ranks: Array, lengths: Numbers, most: int) -> Any:
    """Of each value whether it may be one of the first so many of its group: large groups are cut into that many blocks, and what comes
    behind the first of each block does not."""
    large = lengths > _BLOCKS_PER_GROUP * most
    stays = np.ones(len(ranks), np.bool_)
    if not large.any():
        return stays
    starts, sizes = (np.cumsum(lengths) - lengths)[large], lengths[large]
    blocks = (starts[:, None] + sizes[:, None] * np.arange(most) // most).ravel()
    # Between two large groups others may lie: each large group also ends a block.
    edges = np.unique(np.concatenate([blocks, (starts + sizes)[starts + sizes < len(ranks)]]))
    first = np.minimum.reduceat(ranks, edges)[np.searchsorted(edges, blocks)].reshape(-1, most).max(axis=1)
    limits = np.repeat(first, sizes)
    stays[np.repeat(large, lengths)] = ranks[np.repeat(large, lengths)] <= limits
    return stays


def values_of(lists: pa.ListArray) -> pa.ListArray:
    """Lists of placed values without their places."""
    return list_array(lists.flatten().field("value"), lengths_of(lists))


def only_values(lists: pa.ListArray) -> pa.Array:
    """The placed value of each list, which has one or none: null then."""
    lengths = lengths_of(lists)
    return lists.flatten().field("value").take(pa.array(np.cumsum(lengths) - lengths, mask=lengths == 0))
