"""Where a key lives: a stable hash, key-groups, replicas.

A key hashes to one of ``key_groups`` groups (default 256) and each replica owns a contiguous range of them, so that state
can be stored and moved per group. The hash is the same in every process, Python version and run, and for rows and columns, because snapshots
and other processes depend on it. Keys that are equal in Python hash alike: ``1 == 1.0 == True == Decimal(1)``. NaN equals nothing, not even itself, and is
refused. XXH3 (the ``xxhash`` package) hashes bytes; 64-bit integers go through the splitmix64 finaliser, which numpy can do for whole columns.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from rayad.progress import DataflowError

DEFAULT_KEY_GROUPS = 256
_MASK = 0xFFFFFFFFFFFFFFFF
_UInts = npt.NDArray[np.uint64]


def mix64(value: int) -> int:
    """The splitmix64 finaliser of a 64-bit integer (Steele, Lea, Flood 2014).

    >>> mix64(0) != mix64(1)
    True
    """
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def mix64_array(values: npt.NDArray[Any]) -> _UInts:
    """:func:`mix64` of every element of an int64 or uint64 array of shape (n,)."""
    z = values.astype(np.uint64, copy=True)
    with np.errstate(over="ignore"):
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return cast(_UInts, z ^ (z >> np.uint64(31)))


def _bytes(tag: bytes, data: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(tag + data))


def _number(key: int | float | Decimal | Fraction) -> int:
    if key != key:
        raise DataflowError("a key is NaN: NaN equals nothing, so records with it could never meet; replace it (for instance by None) before key_by")
    try:
        whole = int(key)
    except (OverflowError, ValueError):  # infinities
        return _bytes(b"f", repr(float(key)).encode())
    if whole == key:
        if -(2**63) <= whole < 2**63:
            return mix64(whole & _MASK)
        return _bytes(b"I", str(whole).encode())
    # A Decimal or Fraction may equal a float: the exact ratio is what they share.
    if isinstance(key, float):
        return _bytes(b"f", struct.pack("<d", key))
    as_float = float(key)
    if Fraction(as_float) == Fraction(key):
        return _bytes(b"f", struct.pack("<d", as_float))
    ratio = Fraction(key)
    return _bytes(b"q", f"{ratio.numerator}/{ratio.denominator}".encode())


def stable_hash(key: Any) -> int:
    """A 64-bit hash of ``key``: equal keys hash alike, everywhere and always.

    Takes None, numbers, str, bytes, dates, times, UUIDs, enums, tuples and frozensets of these, frozen dataclasses, numpy scalars, and objects
    with a method ``__rayad_hash__()`` that gives one of these. Raises DataflowError for NaN and for everything else.

    >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True)
    True
    >>> stable_hash("a") == stable_hash(b"a")
    False
    """
    kind = type(key)
    if kind is str:
        return int(xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")))
    if kind is int or kind is bool or kind is float:
        return _number(key)
    if key is None:
        return _bytes(b"n", b"")
    if kind is tuple or isinstance(key, tuple):
        return _bytes(b"t", b"".join(stable_hash(part).to_bytes(8, "little") for part in key))
    if isinstance(key, (bytes, bytearray, memoryview)):
        return _bytes(b"b", bytes(key))
    if isinstance(key, np.generic):
        return stable_hash(key.item())
    if isinstance(key, enum.Enum) and not isinstance(key, (int, str)):
        return _bytes(b"e", f"{kind.__qualname__}.{key.name}".encode())
    return _other(key)


def _other(key: Any) -> int:
    kind = type(key)
    if isinstance(key, str):
        return stable_hash(str.__str__(key))
    if isinstance(key, (int, float, Decimal, Fraction)):
        return _number(key)
    if isinstance(key, dt.datetime):
        if key.tzinfo is not None:
            return _bytes(b"z", str(round(key.timestamp() * 1_000_000)).encode())
        return _bytes(b"d", key.isoformat().encode())
    if isinstance(key, (dt.date, dt.time)):
        return _bytes(b"d", key.isoformat().encode())
    if isinstance(key, dt.timedelta):
        return _bytes(b"l", f"{key.days}:{key.seconds}:{key.microseconds}".encode())
    if isinstance(key, uuid.UUID):
        return _bytes(b"u", key.bytes)
    if isinstance(key, frozenset):
        return _bytes(b"s", sum(stable_hash(part) for part in key).to_bytes(16, "little"))
    custom = getattr(key, "__rayad_hash__", None)
    if custom is not None:
        return stable_hash(custom())
    if dataclasses.is_dataclass(key) and getattr(kind, "__dataclass_params__").frozen:
        fields = tuple(getattr(key, f.name) for f in dataclasses.fields(key) if f.compare)
        return _bytes(b"c", kind.__qualname__.encode() + stable_hash(fields).to_bytes(8, "little"))
    raise DataflowError(
        f"a key of type {kind.__module__}.{kind.__qualname__} has no hash that is the same in every process: {key!r:.80}; use a string, number, bytes, "
        "date, UUID, enum, a tuple of these or a frozen dataclass, or give the type a method __rayad_hash__() that returns one of these"
    )


def hash_array(column: pa.Array | pa.ChunkedArray) -> _UInts:
    """:func:`stable_hash` of every element of an Arrow column, shape (n,).

    Integer and integral float columns are hashed by numpy; any other is dictionary-encoded first, so that each distinct value is hashed once.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if column.null_count == 0 and pa.types.is_integer(column.type) and column.type != pa.uint64():
        return mix64_array(column.to_numpy(zero_copy_only=False).astype(np.int64))
    if pa.types.is_dictionary(column.type):
        encoded = column
    else:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
    values = np.fromiter((stable_hash(v) for v in encoded.dictionary.to_pylist()), dtype=np.uint64, count=len(encoded.dictionary))
    indices = encoded.indices
    if indices.null_count:
        with_null = np.append(values, np.uint64(stable_hash(None)))
        return cast(_UInts, with_null[pc.fill_null(indices, len(values)).to_numpy(zero_copy_only=False)])
    return cast(_UInts, values[indices.to_numpy(zero_copy_only=False)]) if len(values) else np.zeros(0, np.uint64)


def hash_columns(columns: list[Any]) -> _UInts:
    """The hashes of keys that are one column, or a tuple of several columns."""
    if len(columns) == 1:
        return hash_array(columns[0])
    parts = np.stack([hash_array(c) for c in columns], axis=1).astype("<u8")
    flat = parts.tobytes()
    width = 8 * len(columns)
    digest = xxhash.xxh3_64_intdigest
    seen: dict[bytes, int] = {}
    out = np.empty(len(parts), np.uint64)
    for i in range(len(parts)):
        piece = flat[i * width : (i + 1) * width]
        value = seen.get(piece)
        if value is None:
            value = seen[piece] = digest(b"t" + piece)
        out[i] = value
    return out


def replica_of_group(group: int, parallelism: int, key_groups: int) -> int:
    """The replica that owns a key-group: contiguous ranges, sizes differing by at most one.

    >>> [replica_of_group(g, 3, 8) for g in range(8)]
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * parallelism // key_groups


def groups_of_replica(replica: int, parallelism: int, key_groups: int) -> range:
    """The key-groups of one replica, the inverse of :func:`replica_of_group`.

    >>> groups_of_replica(1, 3, 8)
    range(3, 6)
    """
    low = -(-replica * key_groups // parallelism)
    high = -(-(replica + 1) * key_groups // parallelism)
    return range(low, high)


class MutableRouter:
    """Key -> replica, with the answers for keys already seen kept in a dict (bounded)."""

    CACHE_ENTRIES_MAX = 1 << 20

    def __init__(self, parallelism: int, key_groups: int) -> None:
        self.parallelism = parallelism
        self.key_groups = key_groups
        self._cache: dict[Any, int] = {}

    def route(self, key: Any) -> int:
        """The replica of one key. Raises DataflowError for NaN, unhashable and unstable keys."""
        try:
            replica = self._cache.get(key)
        except TypeError as error:
            raise DataflowError(
                f"a key is not hashable: {key!r:.80} of type {type(key).__name__}; key_by must give hashable values (a tuple instead of a list)"
            ) from error
        if replica is None:
            replica = stable_hash(key) % self.key_groups * self.parallelism // self.key_groups
            if len(self._cache) >= self.CACHE_ENTRIES_MAX:
                self._cache.clear()
            self._cache[key] = replica
        return replica

    def split_rows(self, rows: list[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
        """Distribute records by ``key(record)``: one list per replica, order kept."""
        out: list[list[Any]] = [[] for _ in range(self.parallelism)]
        lookup, route = self._cache.get, self.route
        for row in rows:
            value = key(row)
            try:
                replica = lookup(value)
            except TypeError:
                replica = None
            out[route(value) if replica is None else replica].append(row)
        return out

    def culprit(self, rows: list[Any], key: Callable[[Any], Any]) -> Any:
        """The first record that cannot be routed, for the error message; None when each can."""
        for row in rows:
            try:
                self.route(key(row))
            except Exception:
                return row
        return None

    def split_columns(self, batch: pa.RecordBatch, columns: list[str]) -> list[pa.RecordBatch]:
        """Distribute the rows of a columnar batch by its key columns: one batch per replica, order kept, no Python object per row."""
        keys = [batch.column(name) for name in columns]
        for name, column in zip(columns, keys, strict=True):
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise DataflowError(f"key column {name!r} holds NaN: NaN equals nothing; replace it (for instance by null) before key_by")
        if self.parallelism == 1:
            return [batch]
        groups = hash_columns(keys) % np.uint64(self.key_groups)
        replicas = (groups * np.uint64(self.parallelism) // np.uint64(self.key_groups)).astype(np.int32)
        if self.parallelism == 2:
            first = replicas == 0
            return [batch.filter(pa.array(first)), batch.filter(pa.array(~first))]
        order = np.argsort(replicas, kind="stable")
        bounds = np.searchsorted(replicas[order], np.arange(self.parallelism + 1))
        taken = batch.take(pa.array(order))
        return [taken.slice(int(bounds[i]), int(bounds[i + 1] - bounds[i])) for i in range(self.parallelism)]
