"""In which order the rows of a run are: by the places of their keys, or by moments.

The *place* of a key is its hash, turned so that its key-group leads: places grow with (key-group, hash). So rows sorted by place have each
key-group in one slice, and rows of one key beside each other. Hash and place determine each other.

The *bucket* of a key is its key-group and a few bits of its hash: rows that are sorted by moment are, of one moment, sorted by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.records.key_hashing import hash_columns
from rayad.dataflow.records.sorting import by_one_sort

Places = npt.NDArray[np.uint64]
Buckets = npt.NDArray[np.uint32]
Ticks = np.ndarray[Any, np.dtype[np.int64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
Order: TypeAlias = tuple[npt.NDArray[Any], ...]
"""Columns by which rows are sorted, the first one first."""
Edge: TypeAlias = tuple[int, ...]
"""A value of each of them: before it a piece ends."""
_HASHES = 1 << 64
_BUCKET_BITS = 16
_LEADING_SPAN_MAX = 1 << 30
"""A leading column of so few values, moments in general, is a number as it is; else its ranks are found out first."""
_STRETCHES_MAX = 16
"""A stable sort of integers merges what is sorted: of more stretches the other sort is faster."""
_SAMPLES_OF_PIECE = 16
"""So many values are looked at for each piece."""


def places_of(columns: Sequence[pa.Array], key_groups: int) -> Places:
    """The places of keys that are one column, or a tuple of several, shape (rows,)."""
    return places_of_hashes(hash_columns(list(columns)), key_groups)


def places_of_hashes(hashes: Places, key_groups: int) -> Places:
    """The place of each hash. The key-group of a hash is its remainder by ``key_groups``.

    >>> places_of_hashes(np.array([3, 7, 4], np.uint64), 4) >> np.uint64(62)
    array([3, 3, 0], dtype=uint64)
    """
    if key_groups & (key_groups - 1) == 0:
        bits = key_groups.bit_length() - 1
        return hashes if bits == 0 else (hashes >> np.uint64(bits)) | (hashes << np.uint64(64 - bits))
    groups = hashes % np.uint64(key_groups)
    places: Places = beginnings_of_groups(key_groups)[groups] + hashes // np.uint64(key_groups)
    return places


def beginnings_of_groups(key_groups: int) -> Places:
    """The first place of each key-group, shape (key_groups,).

    >>> beginnings_of_groups(3).tolist() == [0, -(-2**64 // 3), -(-2**65 // 3)]
    True
    """
    each, more = divmod(_HASHES, key_groups)
    return np.array([group * each + min(group, more) for group in range(key_groups)], np.uint64)


def places_in_groups(groups: npt.NDArray[Any], codes: Places, key_groups: int) -> Places:
    """The places of rows of which a key may have many: within the key-group by a code of the row, shape (rows,).

    >>> places_in_groups(np.array([3, 0]), np.array([7, 9], np.uint64), 4) >> np.uint64(62)
    array([3, 0], dtype=uint64)
    """
    within = np.minimum(codes // np.uint64(key_groups), np.uint64(_HASHES // key_groups - 1))
    places: Places = beginnings_of_groups(key_groups)[groups] + within
    return places


def groups_of_places(places: Places, key_groups: int) -> npt.NDArray[np.uint16]:
    """The key-group of each place, shape (rows,)."""
    if key_groups & (key_groups - 1) == 0 and key_groups > 1:
        return (places >> np.uint64(65 - key_groups.bit_length())).astype(np.uint16)
    return (np.searchsorted(beginnings_of_groups(key_groups), places, side="right") - 1).astype(np.uint16)


def buckets_of(columns: Sequence[pa.Array], key_groups: int) -> Buckets:
    """The buckets of keys that are one column, or a tuple of several, shape (rows,).

    >>> buckets = buckets_of([pa.array([1, 2, 3])], 4)
    >>> (groups_of_buckets(buckets) == groups_of_places(places_of([pa.array([1, 2, 3])], 4), 4)).all()
    np.True_
    """
    groups, within = np.divmod(hash_columns(list(columns)), np.uint64(key_groups))[::-1]
    within >>= np.uint64(65 - key_groups.bit_length() - _BUCKET_BITS)
    return ((groups << np.uint64(_BUCKET_BITS)) | within).astype(np.uint32)


def groups_of_buckets(buckets: Buckets) -> npt.NDArray[np.uint16]:
    """The key-group of each bucket, shape (rows,)."""
    return (buckets >> np.uint32(_BUCKET_BITS)).astype(np.uint16)


def slices_of_groups(places: Places, groups: Iterable[int], key_groups: int) -> list[tuple[int, int]]:
    """Where rows sorted by place have these key-groups: ranges of positions, ascending, groups that follow each other in one.

    >>> slices_of_groups(places_of_hashes(np.array([8, 1, 5, 2, 6], np.uint64), 4), [2, 1], 4)
    [(1, 5)]
    """
    some = np.unique(np.fromiter(groups, np.int64))
    first = some[np.concatenate(([True], np.diff(some) > 1))] if len(some) else some
    last = some[np.concatenate((np.diff(some) > 1, [True]))] if len(some) else some
    edges = np.append(np.searchsorted(places, beginnings_of_groups(key_groups)), len(places))
    return [(low, high) for low, high in zip(edges[first].tolist(), edges[last + 1].tolist(), strict=True) if high > low]


def order_of(leading: npt.NDArray[Any], *then: npt.NDArray[Any]) -> Positions | None:
    """The positions of rows in the order of these columns of integers; None where they are in that order. Rows that are equal in all of
    them come in any order.

    One sort by one number where 64 bits hold all columns: four times as fast as ``lexsort``.

    >>> order_of(np.array([5, 9, 5]), np.array([2, 0, 1])).tolist(), order_of(np.array([1, 1, 2]))
    ([2, 0, 1], None)
    """
    if then and len(leading) > 1:
        low, high = int(leading.min()), int(leading.max())
        if high - low < _LEADING_SPAN_MAX:
            return _by_number((leading - leading.dtype.type(low)).astype(np.int64), high - low + 1, then, leading)
    order = _ascending(leading)
    if not then or len(leading) < 2:
        return order
    if order is None and _are_sorted(leading, then):
        return None
    ordered = leading if order is None else leading[order]
    rank = np.cumsum(np.concatenate(([False], ordered[1:] != ordered[:-1])), dtype=np.int64)
    number, distinct = rank, int(rank[-1]) + 1
    if order is not None:
        number = np.empty_like(rank)
        number[order] = rank
    return _by_number(number, distinct, then, leading)


def _by_number(number: npt.NDArray[np.int64], distinct: int, then: Order, leading: npt.NDArray[Any]) -> Positions | None:
    """The order by a number, which is below ``distinct`` and in the order of the leading column, and then by other columns."""
    for column in then:
        column = column.astype(np.int64, copy=False)
        low = int(column.min())
        span = int(column.max()) - low + 1
        distinct *= span
        if distinct >= 1 << 62:
            return np.lexsort((*reversed(then), leading))
        number = number * span + (column - low)
    return _ascending(number)


def _ascending(values: npt.NDArray[Any]) -> Positions | None:
    """The positions of values in their order; None where they are in it. A few sorted stretches are merged."""
    descents = np.count_nonzero(values[1:] < values[:-1])
    if descents < _STRETCHES_MAX:
        return None if descents == 0 else np.argsort(values, kind="stable")
    order = by_one_sort(values)
    return np.argsort(values) if order is None else order


def is_in_order(columns: Order) -> bool:
    """Whether rows are in the order of these columns."""
    leading, *then = columns
    return not (leading[1:] < leading[:-1]).any() and _are_sorted(leading, tuple(then))


def _are_sorted(leading: npt.NDArray[Any], then: Order) -> bool:
    """Whether rows, sorted by the first column, are in the order of all."""
    undecided = leading[1:] == leading[:-1]
    for column in then:
        if (undecided & (column[1:] < column[:-1])).any():
            return False
        undecided &= column[1:] == column[:-1]
    return True


def ranges(starts: Positions, lengths: Positions) -> Positions:
    """``starts[0], starts[0] + 1, ..`` for each length, one behind the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(lengths.sum())
    if total == len(lengths) and (lengths == 1).all():
        return starts
    out: Positions = np.arange(total, dtype=np.int64)
    out += np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return out


def ticks(column: pa.Array) -> Ticks:
    """A column of integers, dates, timestamps or durations as numbers in its own unit."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def reaching(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> tuple[int, int]:
    """The range of sorted values that are not below the first or beyond the last of others, which are sorted, too.

    >>> reaching(np.array([1, 3, 5, 9]), np.array([3, 6]))
    (1, 3)
    """
    if not len(others):
        return 0, 0
    return int(np.searchsorted(values, others[0])), int(np.searchsorted(values, others[-1], side="right"))


def found_in(others: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[Positions, Positions, Positions]:
    """Which of sorted values are among others, which are sorted, too, and where these begin and end.

    Most values of a batch are not in a run: where they end is asked only for those that are.

    >>> tuple(each.tolist() for each in found_in(np.array([2, 5, 5, 9]), np.array([1, 5, 7, 9])))
    ([1, 3], [1, 3], [3, 4])
    """
    first, last = reaching(values, others)
    some = values[first:last]
    low = np.searchsorted(others, some)
    here = np.flatnonzero(others[low] == some)  # none of them is beyond the last of the others
    low = low[here]
    return here + first, low, np.searchsorted(others, some[here], side="right")


def edges_of(orders: Sequence[Order], pieces: int) -> list[Edge]:
    """Edges that divide rows, which have several columns in some places, sorted or not, into about so many pieces of like
    length, ascending.

    >>> edges_of([(np.arange(100),), (np.arange(50, 150),)], 4)
    [(49,), (74,), (101,)]
    >>> edges_of([(np.array([number]),) for number in range(1000)], 2)  # each is shorter than what lies between two samples
    [(511,)]
    """
    step = max(1, sum(len(columns[0]) for columns in orders) // (pieces * _SAMPLES_OF_PIECE))
    ends = np.cumsum([0, *(len(columns[0]) for columns in orders)])
    first = (step // 2 - ends[:-1]) % step
    samples = [
        np.concatenate([column[at::step] for column, at in zip(columns, first.tolist(), strict=True)])
        for columns in zip(*orders, strict=True)
    ]
    order = np.lexsort(samples[::-1])
    some = order[np.arange(1, pieces) * len(order) // pieces]
    return sorted(set(zip(*(sample[some].tolist() for sample in samples), strict=True)))


def position_of(columns: Order, edge: Edge) -> int:
    """The first of sorted rows that is not before an edge, or their number.

    >>> position_of((np.array([1, 2, 2, 2]), np.array([9, 3, 5, 7])), (2, 5))
    2
    """
    low, high = 0, len(columns[0])
    *leading, last = zip(columns, edge, strict=True)
    for column, value in leading:
        some, exactly = column[low:high], column.dtype.type(value)
        low, high = low + int(some.searchsorted(exactly)), low + int(some.searchsorted(exactly, side="right"))
    return low + int(last[0][low:high].searchsorted(last[0].dtype.type(last[1])))


def positions_of(columns: Order, edges: Sequence[Edge]) -> Positions:
    """:func:`position_of` of each edge, shape (edges,).

    >>> positions_of((np.array([1, 2, 2, 5]),), [(2,), (3,), (9,)])
    array([1, 3, 4])
    """
    if len(columns) == 1:
        return columns[0].searchsorted(np.array([value for (value,) in edges], columns[0].dtype))  # one search, for all of them
    return np.array([position_of(columns, edge) for edge in edges], np.int64)


def between(values: npt.NDArray[Any], after: int | None, until: int | None) -> tuple[int, int]:
    """The range of sorted values beyond ``after`` and at or before ``until``; None: no bound.

    >>> between(np.array([1, 2, 2, 5]), 1, 2)
    (1, 3)
    """
    low = 0 if after is None else int(np.searchsorted(values, after, side="right"))
    high = len(values) if until is None else int(np.searchsorted(values, until, side="right"))
    return low, high
