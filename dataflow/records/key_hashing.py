"""Where a key lives: a stable hash, key-groups, replicas.

A key hashes to one of ``key_groups`` groups (default 256) and each replica owns a contiguous range of them, so that state can be stored and
moved per group. The hash is the same in every process, Python version and run, and for rows and columns, because snapshots and other
processes depend on it. Keys that are equal in Python hash alike: ``1 == 1.0 == True == Decimal(1)``. NaN equals nothing, not even itself,
and is refused. Datetimes are the moments that they are (``moments``).

The definition, in full: 64-bit integers, and whatever equals one, go through the splitmix64 finaliser ``mix64``; other floats through
``mix64`` of their bits, salted; a tuple is ``h = SALT + length``, then ``h = mix64(h ^ hash(part))`` for each part. numpy does these
three for whole columns. A string is XXH3 (the ``xxhash`` package) of its UTF-8; everything else XXH3 of 0xff, which no UTF-8 holds, a
letter for the type, and the value's bytes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from rayad.dataflow.records.batches import has_tuples, one_array, take_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.remembered import Remembered
from rayad.dataflow.records.values import fields_of, is_tuple
from rayad.progress import DataflowError, arguments, show

DEFAULT_KEY_GROUPS = 256
FEW_REPLICAS = 8
"""Up to this many replicas, looking for the rows of each is faster than sorting rows by replica."""
_MASK = 0xFFFFFFFFFFFFFFFF
_FLOAT_SALT = 0x6A09E667F3BCC909  # the square roots of 2 and 3: nothing up the sleeve
_TUPLE_SALT = 0xBB67AE8584CAA73B
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
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


_MIX_ADDED, _MIX_FIRST, _MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MIX_30, _MIX_27, _MIX_31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix64_array(values: npt.NDArray[Any]) -> _UInts:
    """:func:`mix64` of every element of an int64 or uint64 array of shape (n,)."""
    if len(values) == 1:  # many times faster than eight calls of numpy
        return np.array([mix64(int(values[0]))], np.uint64)
    z = values.astype(np.uint64, copy=True)
    z += _MIX_ADDED
    z = (z ^ (z >> _MIX_30)) * _MIX_FIRST
    z = (z ^ (z >> _MIX_27)) * _MIX_SECOND
    return cast(_UInts, z ^ (z >> _MIX_31))


def _bytes(tag: bytes, data: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(b"\xff" + tag + data))


def _number(key: int | float | Decimal | Fraction) -> int:
    if (isinstance(key, Decimal) and key.is_nan()) or key != key:
        raise DataflowError(
            "a key is NaN: NaN equals nothing, so records with it could never meet; replace it (for instance by None) before key_by"
        )
    try:
        whole = int(key)
    except (OverflowError, ValueError):  # infinities
        return _float(float(key))
    if whole == key:
        if -(2**63) <= whole < 2**63:
            return mix64(whole & _MASK)
        return _bytes(b"I", b"%x" % whole)
    if isinstance(key, float):
        return _float(key)
    # A Decimal or Fraction may equal a float; else the exact ratio is what equal ones share.
    ratio = Fraction(key)
    try:
        near = float(ratio)
    except OverflowError:
        near = math.inf
    if math.isfinite(near) and Fraction(near) == ratio:
        return _float(near)
    return _bytes(b"q", b"%x/%x" % (ratio.numerator, ratio.denominator))


def _float(key: float) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", key))
    return mix64(bits ^ _FLOAT_SALT)


def stable_hash(key: Any) -> int:
    """A 64-bit hash of ``key``: equal keys hash alike, everywhere and always.

    Takes None, numbers, str, bytes, dates, times, UUIDs, enums, tuples and frozensets of these, frozen dataclasses, numpy scalars, and
    objects with a method ``__rayad_hash__()`` that gives one of these. Raises DataflowError for NaN and for everything else.

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
        state = _TUPLE_SALT + len(key)
        for part in key:
            state = mix64(state ^ stable_hash(part))
        return state
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
            return _bytes(b"z", str((key - _EPOCH) // _MICROSECOND).encode())
        return _bytes(b"d", key.isoformat().encode())
    if isinstance(key, (dt.date, dt.time)):
        return _bytes(b"d", key.isoformat().encode())
    if isinstance(key, dt.timedelta):
        return _bytes(b"l", f"{key.days}:{key.seconds}:{key.microseconds}".encode())
    if isinstance(key, uuid.UUID):
        return _bytes(b"u", key.bytes)
    if isinstance(key, frozenset):
        return _bytes(b"s", sum([stable_hash(part) for part in key]).to_bytes(16, "little"))
    custom = getattr(key, "__rayad_hash__", None)
    if custom is not None:
        return stable_hash(custom())
    if dataclasses.is_dataclass(key) and kind.__dataclass_params__.frozen:
        fields = tuple([getattr(key, f.name) for f in dataclasses.fields(key) if f.compare])
        return _bytes(b"c", kind.__qualname__.encode() + stable_hash(fields).to_bytes(8, "little"))
    raise DataflowError(
        f"a key of type {kind.__module__}.{kind.__qualname__} has no hash that is the same in every process: {show(key)}; use a "
        "string, number, bytes, "
        "date, UUID, enum, a tuple of these or a frozen dataclass, or give the type a method __rayad_hash__() that returns one of these"
    )


def hash_array(column: pa.Array | pa.ChunkedArray) -> _UInts:
    """:func:`stable_hash` of every element of an Arrow column, shape (n,).

    numpy hashes integers and floats; any other column is dictionary-encoded first, so that each distinct value is hashed once.
    """
    if isinstance(column, pa.ChunkedArray):
        column = one_array(column.unify_dictionaries())
    kind = column.type
    if (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        if column.null_count:
            hashes = _hash_numbers(pc.fill_null(column, 0))
            hashes[pc.is_null(column).to_numpy(zero_copy_only=False)] = stable_hash(None)
            return hashes
        return _hash_numbers(column)
    try:
        encoded = _used(column) if pa.types.is_dictionary(kind) else pc.dictionary_encode(column)
    except pa.ArrowNotImplementedError:  # not of every type
        return _hash_each(column)
    values = _hash_each(encoded.dictionary)
    indices = encoded.indices
    if indices.null_count:
        values = np.append(values, np.uint64(stable_hash(None)))
        indices = pc.fill_null(indices.cast(pa.int64()), len(values) - 1)
    return cast(_UInts, values[indices.to_numpy(zero_copy_only=False)]) if len(values) else np.zeros(0, np.uint64)


def hash_values(column: pa.Array) -> _UInts:
    """:func:`hash_array`, in which a struct is the tuple, or the record, that it stands for (``records.values``)."""
    return _hash_structs(column) if pa.types.is_struct(column.type) and column.type.num_fields else hash_array(column)


def hash_keys_of(batch: pa.RecordBatch, columns: list[Any]) -> _UInts:
    """The hashes of these columns of a batch, its keys: structs are keys only where ``mark_tuples`` says that they are values."""
    return hash_values(columns[0]) if has_tuples(batch) else hash_columns(columns)


def _hash_structs(column: pa.StructArray) -> _UInts:
    """Of tuples as of any, of records as the tuple of their (name, value) pairs, sorted by name."""
    kind, parts = column.type, fields_of(column)
    if is_tuple(kind):
        hashes = _hash_tuples(list(map(hash_values, parts)))
    else:
        named = sorted(zip([kind.field(i).name for i in range(kind.num_fields)], parts, strict=True), key=lambda pair: pair[0])
        hashes = _hash_tuples([mix64_array(_salt_of(name) ^ hash_values(part)) for name, part in named])
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = stable_hash(None)
    return hashes


@lru_cache(maxsize=1024)
def _salt_of(name: str) -> np.uint64:
    """What the value of a field of this name is mixed with."""
    return np.uint64(mix64((_TUPLE_SALT + 2) ^ stable_hash(name)))


def _hash_tuples(parts: list[_UInts]) -> _UInts:
    state = np.full(len(parts[0]), _TUPLE_SALT + len(parts), dtype=np.uint64)
    for part in parts:
        state = mix64_array(state ^ part)
    return state


def _used(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """The column with a dictionary of what it holds alone, where another value could be one that is no key: NaN."""
    if not _may_be_nan(column.type.value_type):
        return column
    indices = column.indices.dictionary_encode()
    return pa.DictionaryArray.from_arrays(indices.indices, column.dictionary.take(indices.dictionary))


def _may_be_nan(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _hash_each(values: pa.Array) -> _UInts:
    if (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)) and not values.null_count:
        data = values.cast(pa.large_binary()).to_pylist()
        return np.fromiter(map(xxhash.xxh3_64_intdigest, data), dtype=np.uint64, count=len(data))
    return np.fromiter(map(stable_hash, values.to_pylist()), dtype=np.uint64, count=len(values))


def _hash_numbers(column: pa.Array) -> _UInts:
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind != "f":
        return mix64_array(values.astype(np.int64))
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(values) == values
        small = whole & (values >= -(2.0**63)) & (values < 2.0**63)
        integers = np.where(small, values, 0.0).astype(np.int64)
    out = np.where(small, mix64_array(integers), mix64_array(values.view(np.uint64) ^ np.uint64(_FLOAT_SALT)))
    for i in np.flatnonzero((whole & ~small & np.isfinite(values)) | np.isnan(values)):  # beyond 64 bits; NaN raises
        out[i] = _number(float(values[i]))
    return cast(_UInts, out)


def hash_columns(columns: list[Any]) -> _UInts:
    """The hashes of keys that are one column, or a tuple of several columns."""
    if len(columns) == 1:
        return hash_array(columns[0])
    return _hash_tuples([hash_array(column) for column in columns])


def hash_keys(keys: list[Any]) -> _UInts:
    """:func:`stable_hash` of every key of a list, shape (n,); strings, ints, floats, and tuples of these are hashed in bulk.

    >>> hash_keys(["a", 1, ("b", 2)]).tolist() == [stable_hash("a"), stable_hash(1), stable_hash(("b", 2))]
    True
    """
    kinds = set(map(type, keys))
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind is str:
            return np.fromiter((xxhash.xxh3_64_intdigest(key.encode()) for key in keys), dtype=np.uint64, count=len(keys))
        if kind is int:
            return mix64_array(np.fromiter(keys, dtype=np.int64, count=len(keys)))
    except (OverflowError, UnicodeEncodeError):  # more than 64 bits, surrogates
        pass
    if kind is float:
        return hash_array(pa.array(keys, pa.float64()))
    if kind is tuple and len(set(map(len, keys))) == 1:
        state = np.full(len(keys), _TUPLE_SALT + len(keys[0]), dtype=np.uint64)
        for part in zip(*keys, strict=True):
            state = mix64_array(state ^ hash_keys(list(part)))
        return state
    return np.array(mapped(stable_hash, keys), dtype=np.uint64)


def key_group(key: Any, key_groups: int) -> int:
    """The key-group of a key. Raises DataflowError for keys that :func:`stable_hash` refuses.

    >>> key_group("a", 256) == key_group("a", 256)
    True
    """
    return stable_hash(key) % arguments.whole(key_groups, "key_group: key_groups", least=1)


def groups_of_hashes(hashes: _UInts, key_groups: int) -> npt.NDArray[np.uint16]:
    """The key-group of each hash, shape (n,).

    >>> groups_of_hashes(hash_keys(["a", "b"]), 256).tolist() == [key_group("a", 256), key_group("b", 256)]
    True
    """
    is_power_of_two = key_groups & (key_groups - 1) == 0  # then "and" gives the remainder, fifteen times as fast
    return (hashes & np.uint64(key_groups - 1) if is_power_of_two else hashes % np.uint64(key_groups)).astype(np.uint16)


def replica_of_group(group: int, parallelism: int, key_groups: int) -> int:
    """The replica that owns a key-group: contiguous ranges, sizes differing by at most one.

    >>> [replica_of_group(g, 3, 8) for g in range(8)]
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * parallelism // key_groups


@lru_cache(maxsize=64)
def replicas_of_groups(parallelism: int, key_groups: int) -> tuple[int, ...]:
    """:func:`replica_of_group` of each."""
    return tuple(replica_of_group(group, parallelism, key_groups) for group in range(key_groups))


def groups_of_replica(replica: int, parallelism: int, key_groups: int) -> range:
    """The key-groups of one replica, the inverse of :func:`replica_of_group`.

    >>> groups_of_replica(1, 3, 8)
    range(3, 6)
    """
    low = -(-replica * key_groups // parallelism)
    high = -(-(replica + 1) * key_groups // parallelism)
    return range(low, high)


class Router:
    """Key -> replica, with the answers for keys already seen remembered. ``owners``: the replica of each key-group."""

    def __init__(self, parallelism: int, key_groups: int, owners: Sequence[int] | None = None) -> None:
        self.parallelism = parallelism
        self.key_groups = key_groups
        self._cache = Remembered[int]()
        if owners is None:
            owners = replicas_of_groups(parallelism, key_groups)
        self._owners = list(owners)
        self._owner_of_group = np.array(self._owners, dtype=np.uint16)

    def route(self, key: Any) -> int:
        """The replica of one key. Raises DataflowError for NaN, unhashable and unstable keys."""
        try:
            replica = self._cache.get(key)
        except TypeError as error:
            raise DataflowError(
                f"a key is not hashable: {show(key)} of type {type(key).__name__}; key_by must give hashable values (a tuple "
                "instead of a list)"
            ) from error
        return self._learn(key) if replica is None else replica

    def _learn(self, key: Any) -> int:
        return self._cache.keep(key, self._owners[stable_hash(key) % self.key_groups])

    def split_rows(self, rows: list[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
        """Distribute records by ``key(record)``: one list per replica, order kept."""
        cache = self._cache
        keys = mapped(key, rows)
        try:
            owners = mapped(cache.get, keys)
        except TypeError:
            owners = [self.route(key) for key in keys]  # says what is wrong with which
        if None in owners:
            cache.make_room()
            owners = [self._learn(key) if owner is None else owner for key, owner in zip(keys, owners, strict=True)]
        if self.parallelism == 1:
            return [rows]
        return [[row for row, owner in zip(rows, owners, strict=True) if owner == replica] for replica in range(self.parallelism)]

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
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            floats = column.dictionary_decode() if kind is not column.type else column
            if pa.types.is_floating(kind) and pc.any(pc.is_nan(floats)).as_py():
                raise DataflowError(f"key column {name!r} holds NaN: NaN equals nothing; replace it (for instance by null) before key_by")
        if self.parallelism == 1:
            return [batch]
        replicas = self._owner_of_group.take(groups_of_hashes(hash_keys_of(batch, keys), self.key_groups))
        if self.parallelism <= FEW_REPLICAS:
            chosen = [np.flatnonzero(replicas == replica) for replica in range(self.parallelism)]
            return [batch if len(rows) == len(replicas) else take_rows(batch, pa.array(rows)) for rows in chosen]
        order = np.argsort(replicas, kind="stable")  # 16 bits: a radix sort
        bounds = np.searchsorted(replicas[order], np.arange(self.parallelism + 1))
        taken = take_rows(batch, pa.array(order))
        return [taken.slice(int(bounds[i]), int(bounds[i + 1] - bounds[i])) for i in range(self.parallelism)]
