"""Node numbers: every node, whatever its Python type, is one int64 inside the graph algorithms.

An integer that fits is its own number. Any other node gets the integer whose stable hash equals the node's: splitmix64
is a bijection, so ``number = unmix(stable_hash(node))``. Hence ``stable_hash(number) == stable_hash(node)``: a batch
that is exchanged by number goes to the replica (and key-group) where the node itself would go, no replica has to ask
another one for a number, and messages are plain int64 columns. What is lost is the name of a node that is no integer;
it travels in a column of its own wherever the receiver may not know it yet.

Two nodes with the same 64-bit hash would have one number (for a million nodes the chance is 3e-8). The names of all nodes, of
every edge, are compared with those known for their numbers, in the replica that owns them: ``Nodes`` refuses the second.
"""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow import DataflowError, stable_hash
from rayad.dataflow.records.key_hashing import hash_array, mix64_array

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_BITS = 1 << 64
_UNMIX_1 = np.uint64(pow(0xBF58476D1CE4E5B9, -1, _BITS))
_UNMIX_2 = np.uint64(pow(0x94D049BB133111EB, -1, _BITS))
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def to_array(column: pa.Array) -> Any:
    """A column of integers or floats without nulls as a numpy array over the same memory, which must not be written to.

    As ``to_numpy`` does it, but that imports pandas when it is first called (0.15 s); so does ``pa.array``.

    >>> to_array(to_column(np.array([3, 4]))).tolist()
    [3, 4]
    """
    return np.from_dlpack(column)


def to_column(values: npt.NDArray[Any]) -> pa.Array:
    """A numpy array of integers or floats as a column over the same memory."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def unmix64_array(hashes: npt.NDArray[np.uint64]) -> Ints:
    """The inverse of :func:`rayad.dataflow.records.key_hashing.mix64_array`.

    >>> unmix64_array(mix64_array(np.array([0, 1, -5]))).tolist()
    [0, 1, -5]
    """
    z = hashes.astype(np.uint64, copy=True)
    with np.errstate(over="ignore"):
        z ^= (z >> np.uint64(31)) ^ (z >> np.uint64(62))
        z *= _UNMIX_2
        z ^= (z >> np.uint64(27)) ^ (z >> np.uint64(54))
        z *= _UNMIX_1
        z ^= (z >> np.uint64(30)) ^ (z >> np.uint64(60))
        z -= np.uint64(0x9E3779B97F4A7C15)
    return z.view(np.int64)


def is_own_number(node: Any) -> bool:
    """Whether a node equals an int64, which then is its number (``True`` and ``1.0`` are the node 1)."""
    return isinstance(node, (int, float, Decimal, Fraction)) and node == node and _INT64_MIN <= node <= _INT64_MAX and int(node) == node


def number_of(node: Any) -> int:
    """The number of one node. Raises DataflowError for None, NaN and what has no stable hash.

    >>> number_of(7), number_of(True), number_of(2.0)
    (7, 1, 2)
    >>> stable_hash(number_of("a")) == stable_hash("a")
    True
    """
    if type(node) is int and _INT64_MIN <= node <= _INT64_MAX:
        return node
    if node is None:
        raise DataflowError("a node is None: an edge has a node at each end; filter such records out before the graph")
    if isinstance(node, np.generic):
        node = node.item()
    if is_own_number(node):
        return int(node)
    return int(unmix64_array(np.array([stable_hash(node)], np.uint64))[0])


def number_column(column: pa.Array) -> Ints:
    """The numbers of a column of nodes; integers are taken as they are, others are hashed once per distinct value."""
    if column.null_count:
        raise DataflowError(
            f"a node column holds {column.null_count} nulls: an edge has a node at each end; filter such rows out before the graph"
        )
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        values: Ints = to_array(column.cast(pa.int64()))
        return values
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise DataflowError("a node column holds NaN: NaN equals nothing; replace it before the graph")
    return unmix64_array(hash_array(column))


def order_key(node: Any) -> tuple[Any, ...]:
    """The order in which "the smallest node" is meant: numbers, then strings, then bytes, then tuples part by part,
    then all else by its hash.

    >>> sorted(["b", 2, "a", (1, "x")], key=order_key)
    [2, 'a', 'b', (1, 'x')]
    """
    if isinstance(node, (int, float, Decimal, Fraction)):
        return (0, node)
    if isinstance(node, str):
        return (1, node)
    if isinstance(node, bytes):
        return (2, node)
    if isinstance(node, tuple):
        return (3, tuple(map(order_key, node)))
    return (4, type(node).__qualname__, stable_hash(node))


def encode_names(names: list[Any]) -> pa.Array:
    """Names as a column: strings as they are, else pickled; null where the node is its own number."""
    if all(type(name) is str for name in names):
        return pa.array(names, pa.string())
    return pa.array([None if is_own_number(name) else pickle.dumps(name, 5) for name in names], pa.binary())


def decode_names(column: pa.Array) -> list[Any]:
    """The inverse of :func:`encode_names`; None stands for a node that is its own number."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_string(column.type):
        return values
    return [None if value is None else pickle.loads(value) for value in values]


def distinct(values: Ints) -> Ints:
    """The distinct values, sorted. (A sort: for integers it is some hundred times faster than numpy's hashing ``unique``.)

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    if len(values) < 2:
        return values
    ordered = np.sort(values)
    keep = np.empty(len(ordered), np.bool_)
    keep[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


def owners(numbers: Ints, parallelism: int, key_groups: int) -> Ints:
    """The replica of each number: what the keyed exchange does with a column of them."""
    if parallelism == 1:
        return np.zeros(len(numbers), np.int64)
    groups = mix64_array(numbers) % np.uint64(key_groups)
    return (groups * np.uint64(parallelism) // np.uint64(key_groups)).astype(np.int64)
