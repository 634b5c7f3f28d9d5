"""From a user's edges to columns of node numbers, and the checks of what the graph functions are given.

A prepared batch has the int64 columns ``src`` and ``dst`` (int32 where all of it fits, to halve what travels) and, where nodes are
no integers, their names as ``src_name`` and ``dst_name`` (see ``numbers.py``). Preparing is a stateless step that runs fused
into whatever makes the edges.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow import Dataflow, DataflowError, KeyedStream, Stream, show, stable_hash
from rayad.dataflow.logical_graph import check_count
from rayad.dataflow.records.batches import ROWS_KEY
from rayad.dataflow.records.remembered import Remembered
from rayad.graphs.numbers import Ints, encode_names, number_column, number_of, to_column

SRC, DST, SRC_NAME, DST_NAME = "src", "dst", "src_name", "dst_name"


class NumberEdges:
    """A function for ``map_batches``: edges as rows or columns in, prepared batches out. ``columns`` are the two
    columns, by default the first two."""

    def __init__(self, columns: tuple[str, str] | None = None, *, undirected: bool = False) -> None:
        self.columns = columns
        self.undirected = undirected
        self._cache = Remembered[int]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": Remembered[int]()}

    def __call__(self, batch: Any) -> pa.RecordBatch:
        if isinstance(batch, pa.RecordBatch):
            src, dst = self._two_columns(batch)
            prepared = _prepared(number_column(src), number_column(dst), _column_names(src), _column_names(dst))
        else:
            prepared = self._rows(batch)
        if not self.undirected:
            return prepared
        turned = dict(zip((DST, SRC, DST_NAME, SRC_NAME), prepared.columns, strict=False))
        return pa.concat_batches([prepared, pa.record_batch({name: turned[name] for name in prepared.schema.names})])

    def _two_columns(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        names = self.columns or tuple(batch.schema.names[:2])
        missing = [name for name in names if name not in batch.schema.names]
        if len(names) < 2 or missing:
            raise DataflowError(
                f"these are no edges: columns {missing or 'for two nodes'} are missing in a batch with the columns {batch.schema.names}; "
                "give columns=(source, target)"
            )
        return batch.column(names[0]), batch.column(names[1])

    def _rows(self, rows: list[Any]) -> pa.RecordBatch:
        pairs = [self.pair(row) for row in rows]
        sources, targets = [u for u, _ in pairs], [v for _, v in pairs]
        src, dst = self._whole(sources), self._whole(targets)
        if src is not None and dst is not None:
            return _prepared(src, dst, None, None)
        return _prepared(self._numbers(sources), self._numbers(targets), encode_names(_plain(sources)), encode_names(_plain(targets)))

    def pair(self, row: Any) -> tuple[Any, Any]:
        """The two nodes of one record."""
        if type(row) is tuple and len(row) == 2:
            return row
        if isinstance(row, dict):
            names = self.columns or tuple(row)[:2]
            if len(names) == 2 and all(name in row for name in names):
                return row[names[0]], row[names[1]]
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            return row[0], row[1]
        raise DataflowError(f"{show(row)} is no edge: an edge is a pair (u, v) of nodes, or a row with two columns")

    @staticmethod
    def _whole(nodes: list[Any]) -> Ints | None:
        """Plain integers as an array; None where they are something else."""
        if set(map(type, nodes)) != {int}:
            return None
        try:
            return np.array(nodes, np.int64)
        except OverflowError:
            return None

    def _numbers(self, nodes: list[Any]) -> Ints:
        cache = self._cache
        cache.make_room()
        numbers = np.empty(len(nodes), np.int64)
        for index, node in enumerate(nodes):
            try:
                number = cache.get(node)
            except TypeError:
                stable_hash(node)  # says what is wrong with it
                raise
            if number is None:
                number = cache.keep(node, number_of(node))
            numbers[index] = number
        return numbers


def _plain(nodes: list[Any]) -> list[Any]:
    return [node.item() if isinstance(node, np.generic) else node for node in nodes]


def _column_names(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return None
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return column.cast(pa.string())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column if pa.types.is_string(kind) else encode_names(column.to_pylist())


def _prepared(src: Ints, dst: Ints, src_name: pa.Array | None, dst_name: pa.Array | None) -> pa.RecordBatch:
    if fits_int32(src) and fits_int32(dst):
        columns = {SRC: to_column(src.astype(np.int32)), DST: to_column(dst.astype(np.int32))}
    else:
        columns = {SRC: to_column(src), DST: to_column(dst)}
    if src_name is not None or dst_name is not None:
        columns[SRC_NAME], columns[DST_NAME] = _alike(src_name, dst_name, len(src))
    return pa.record_batch(columns)


def fits_int32(numbers: Ints) -> bool:
    """Whether the numbers can travel in half the bytes."""
    return not len(numbers) or (int(numbers.min()) >= -(1 << 31) and int(numbers.max()) < 1 << 31)


def _alike(left: pa.Array | None, right: pa.Array | None, count: int) -> tuple[pa.Array, pa.Array]:
    """Two columns of names with one type; one that is missing is all null: nodes that are their own numbers."""
    if left is None or right is None:
        present: Any = right if left is None else left
        nulls = pa.nulls(count, present.type)
        return (nulls, present) if left is None else (present, nulls)
    if left.type == right.type:
        return left, right
    pickled = [
        column if pa.types.is_binary(column.type) else pa.array([pickle.dumps(name, 5) for name in column.to_pylist()], pa.binary())
        for column in (left, right)
    ]
    return pickled[0], pickled[1]


def named_edges(src: Ints, dst: Ints, names: tuple[list[Any], list[Any]] | None) -> pa.RecordBatch:
    """A prepared batch from numbers and, where nodes are no integers, the names of both ends."""
    return _prepared(src, dst, *((None, None) if names is None else map(encode_names, names)))


def sides(batch: Any) -> Iterator[tuple[str, pa.Array | None]]:
    """The two columns of nodes of a prepared batch, by name, with their columns of names where there are such."""
    for side, names in ((SRC, SRC_NAME), (DST, DST_NAME)):
        yield side, batch.column(names) if names in batch.schema.names else None


def result_batch(names: list[Any] | Ints, values: Any) -> Any:
    """Result records ``(node, value)``: columnar where each side has one plain type, else rows. Arrays and lists of names alike."""
    sides: list[Any] = [_result_column(side) for side in (names, values)]
    if any(side is None for side in sides):
        rows = [side.tolist() if isinstance(side, np.ndarray) else side for side in (names, values)]
        return list(zip(*rows, strict=True))
    schema = pa.schema([("node", sides[0].type), ("value", sides[1].type)], metadata={ROWS_KEY: b"keyed:1"})
    return pa.RecordBatch.from_arrays(sides, schema=schema)


def _result_column(side: Any) -> pa.Array | None:
    if isinstance(side, np.ndarray):
        return to_column(side)
    return pa.array(side, pa.string()) if all(type(value) is str for value in side) else None


# -- what the functions are given ---------------------------------------------------------
def check_edges(function: str, edges: Any, columns: Any) -> tuple[str, str] | None:
    """``edges`` must be a Stream, ``columns`` None or two names; gives the columns."""
    if not isinstance(edges, Stream):
        hint = ": give the stream before key_by; the graph functions exchange it themselves" if isinstance(edges, KeyedStream) else ""
        raise DataflowError(f"{function}() was given {show(edges, 60)}: it takes a Stream of edges (u, v){hint}")
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise DataflowError(f"{function}() was given columns={columns!r}: give the names of two columns, (source, target)")
    names = tuple(columns)
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise DataflowError(f"{function}() was given columns={columns!r}: give the names of two columns, (source, target)")
    return names


def check_rounds(function: str, argument: str, value: Any) -> int:
    """A count of rounds: an int of at least 1."""
    return check_count(value, f"{function}: {argument}")


def unused_name(flow: Dataflow, name: str | None, base: str) -> str:
    """``name``, or else ``base``, with a number where it or a name made from it is taken."""
    if name is not None:
        return name
    taken = {node.name for node in flow.graph.nodes} | {scope.name for scope in flow.graph.scopes}
    number, candidate = 1, base
    while any(used == candidate or used.startswith(f"{candidate}.") for used in taken):
        number += 1
        candidate = f"{base}-{number}"
    return candidate


def prepared_edges(edges: Stream, columns: tuple[str, str] | None, name: str, *, undirected: bool = False) -> Stream:
    """``edges`` as prepared batches."""
    return edges.map_batches(NumberEdges(columns, undirected=undirected), name=f"{name}.edges")
