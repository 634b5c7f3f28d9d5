"""Equal keys have equal hashes, in rows and in columns, and in every version of Rayad; each key-group has exactly one owner."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.records.key_hashing import (
    Router,
    groups_of_replica,
    hash_array,
    hash_columns,
    mix64,
    mix64_array,
    replica_of_group,
    stable_hash,
)
from rayad.dataflow.records.remembered import Remembered
from rayad.dataflow.source import content_digest
from tests.thorough import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
MICROS = st.datetimes(min_value=dt.datetime(1900, 1, 1), max_value=dt.datetime(2200, 1, 1))


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int
    note: str = dataclasses.field(default="", compare=False)


class Custom:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __rayad_hash__(self) -> Any:
        return ("custom", self.name)


def golden() -> list[Any]:
    return [
        None, 0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**70), 0.5, -1.25, 1e300, float("inf"), Decimal("0.1"), Fraction(1, 3), "", "a",
        "key-17",
        "\u00fc\u4e2d", b"", b"a", (), (1,), ("a", 1), (("a",), None), dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 0, 5),
        dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), dt.timedelta(days=1, microseconds=7), dt.time(1, 2, 3), uuid.UUID(int=5), Colour.RED,
        frozenset({1, 2}), Point(1, 2),
    ]  # fmt: skip


@examples(each_run=40, soak=100)
@given(INT64)
def test_equal_numbers_of_any_type_hash_alike(n: int) -> None:
    expected = stable_hash(n)
    assert stable_hash(Decimal(n)) == stable_hash(Fraction(n)) == stable_hash(np.int64(n)) == expected
    if float(n) == n:
        assert stable_hash(float(n)) == expected


@examples(each_run=40, soak=100)
@given(st.floats(allow_nan=False))
def test_floats_hash_like_the_decimals_and_fractions_that_equal_them(x: float) -> None:
    assert stable_hash(Decimal(x)) == stable_hash(x)
    if not np.isinf(x):
        assert stable_hash(Fraction(x)) == stable_hash(x)
    assert stable_hash(np.float64(x)) == stable_hash(x)


@examples(each_run=40, soak=100)
@given(
    st.lists(st.integers(-5, 5) | st.floats(-3, 3).filter(lambda x: x == x) | st.booleans() | st.text(max_size=2) | st.none(), max_size=30)
)
def test_equal_keys_hash_alike(keys: list[Any]) -> None:
    for a in keys:
        for b in keys:
            if a == b:
                assert stable_hash(a) == stable_hash(b)
                assert stable_hash((a, 1)) == stable_hash((b, True))


def test_equal_moments_in_different_zones_hash_alike() -> None:
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    assert stable_hash(moment) == stable_hash(moment.astimezone(dt.timezone(dt.timedelta(hours=5))))
    assert stable_hash(dt.datetime(2024, 5, 1)) != stable_hash(dt.date(2024, 5, 1))


def test_fields_that_equality_ignores_do_not_change_the_hash() -> None:
    assert stable_hash(Point(1, 2, "a")) == stable_hash(Point(1, 2, "b"))
    assert stable_hash(frozenset({1, 2, 3})) == stable_hash(frozenset({3.0, True, 2}))
    assert stable_hash(Custom("x")) == stable_hash(("custom", "x"))


def test_keys_that_differ_in_kind_or_structure_have_different_hashes() -> None:
    keys = [*golden(), Custom("x"), "1", b"1", ("1",), (b"1",), (1, "a"), ("a", 1, None), ((), ()), ((),), (None,), "None", "n", b"n"]
    assert len({stable_hash(key) for key in keys}) == len({(type(key), repr(key)) for key in keys})


COLUMNS: dict[str, tuple[Any, pa.DataType]] = {
    "int64": (INT64, pa.int64()),
    "int8": (st.integers(-128, 127), pa.int8()),
    "uint64": (st.integers(0, 2**64 - 1), pa.uint64()),
    "float64": (st.floats(allow_nan=False), pa.float64()),
    "float32": (st.floats(allow_nan=False, width=32), pa.float32()),
    "bool": (st.booleans(), pa.bool_()),
    "string": (st.text(max_size=4), pa.string()),
    "string_view": (st.text(max_size=4), pa.string_view()),  # a null had the hash of an empty string
    "binary_view": (st.binary(max_size=3), pa.binary_view()),
    "large_string": (st.text(max_size=4), pa.large_string()),
    "binary": (st.binary(max_size=3), pa.binary()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (MICROS, pa.timestamp("us")),
    "timestamp with zone": (MICROS.map(lambda t: t.replace(tzinfo=dt.UTC)), pa.timestamp("us", "Europe/Zurich")),
    "timestamp ns": (MICROS, pa.timestamp("ns")),
    "duration": (st.timedeltas(dt.timedelta(days=-999), dt.timedelta(days=999)), pa.duration("us")),
    "decimal": (st.decimals(-1000, 1000, places=2), pa.decimal128(10, 2)),
    "dictionary": (st.sampled_from(["a", "b", "c"]), pa.dictionary(pa.int8(), pa.string())),
    "null": (st.nothing(), pa.null()),
}


@pytest.mark.parametrize("name", COLUMNS)
@examples(each_run=40, soak=100)
@given(data=st.data())
def test_columns_and_rows_agree(name: str, data: st.DataObject) -> None:
    values, kind = COLUMNS[name]
    rows = data.draw(st.lists(st.none() if name == "null" else st.none() | values, max_size=12))
    column = pa.array(rows, kind)
    expected = [stable_hash(value) for value in column.to_pylist()]
    assert hash_array(column).tolist() == expected
    assert hash_array(pa.chunked_array([column[:3], column[3:]])).tolist() == expected
    assert hash_array(column[1:]).tolist() == expected[1:]
    assert expected == [stable_hash(value) for value in rows]
    other = pa.array(range(len(rows)), pa.int16())
    assert hash_columns([column, other]).tolist() == [stable_hash(pair) for pair in zip(rows, range(len(rows)), strict=True)]


@examples(each_run=40, soak=100)
@given(st.lists(INT64))
def test_the_vectorised_finaliser_is_the_scalar_one(values: list[int]) -> None:
    assert mix64_array(np.array(values, np.int64)).tolist() == [mix64(v & 0xFFFFFFFFFFFFFFFF) for v in values]


@pytest.mark.parametrize("key_groups", [1, 2, 7, 256, 1000])
def test_ranges_of_replicas_partition_the_key_groups_exactly(key_groups: int) -> None:
    for parallelism in range(1, min(key_groups, 40) + 1):
        ranges = [groups_of_replica(replica, parallelism, key_groups) for replica in range(parallelism)]
        assert [group for groups in ranges for group in groups] == list(range(key_groups))
        assert {len(groups) for groups in ranges} <= {key_groups // parallelism, -(-key_groups // parallelism)}
        for replica, groups in enumerate(ranges):
            assert {replica_of_group(group, parallelism, key_groups) for group in groups} == {replica}


@examples(each_run=40, soak=100)
@given(st.lists(st.tuples(st.none() | st.text(max_size=2), st.none() | st.integers(-3, 3)), max_size=30), st.integers(1, 9))
def test_rows_and_columns_are_split_alike_and_keep_their_order(rows: list[tuple[Any, Any]], parallelism: int) -> None:
    router = Router(parallelism, 32)
    numbered = [(*row, i) for i, row in enumerate(rows)]
    schema = pa.schema([("s", pa.string()), ("n", pa.int64()), ("i", pa.int64())])
    batch = pa.RecordBatch.from_pylist([dict(zip("sni", row, strict=True)) for row in numbered], schema=schema)
    for columns, key in ((["s"], lambda r: r[0]), (["n"], lambda r: r[1]), (["s", "n"], lambda r: r[:2])):
        by_rows = router.split_rows(numbered, key)
        by_columns = router.split_columns(batch, columns)
        assert [[r[2] for r in part] for part in by_rows] == [part.column("i").to_pylist() for part in by_columns]


def test_keys_spread_over_the_groups() -> None:
    for keys in (range(20_000), [f"user-{i}" for i in range(20_000)], [i / 7 for i in range(20_000)], [(i, "x") for i in range(20_000)]):
        counts = np.bincount([stable_hash(key) % 256 for key in keys], minlength=256)
        assert counts.min() > 40
        assert counts.max() < 130


NAN = "a key is NaN: NaN equals nothing, so records with it could never meet; replace it (for instance by None) before key_by"


@pytest.mark.parametrize("key", [float("nan"), (1, float("nan")), np.float32("nan"), Decimal("NaN"), Decimal("sNaN")], ids=repr)
def test_nan_is_refused(key: Any) -> None:
    with pytest.raises(rd.DataflowError) as caught:
        stable_hash(key)
    assert str(caught.value) == NAN


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "column", [pa.array([1.0, float("nan")]), pa.array([1.0, float("nan")]).dictionary_encode()], ids=["plain", "dictionary"]
)
def test_nan_is_refused_in_columns(parallelism: int, column: pa.Array) -> None:
    with pytest.raises(rd.DataflowError) as caught:
        Router(parallelism, 8).split_columns(pa.record_batch({"k": column}), ["k"])
    assert str(caught.value) == "key column 'k' holds NaN: NaN equals nothing; replace it (for instance by null) before key_by"


def test_keys_without_a_stable_hash_are_refused() -> None:
    class Plain:
        def __repr__(self) -> str:
            return "Plain()"

    with pytest.raises(rd.DataflowError) as caught:
        stable_hash(Plain())
    assert str(caught.value) == (
        f"a key of type {Plain.__module__}.{Plain.__qualname__} has no hash that is the same in every process: Plain(); use a "
        "string, number, bytes, "
        "date, UUID, enum, a tuple of these or a frozen dataclass, or give the type a method __rayad_hash__() that returns one of these"
    )


def test_unhashable_keys_are_refused() -> None:
    with pytest.raises(rd.DataflowError) as caught:
        Router(2, 8).split_rows([{"k": [1]}], lambda row: row["k"])
    assert str(caught.value) == "a key is not hashable: [1] of type list; key_by must give hashable values (a tuple instead of a list)"


def test_the_cache_of_a_router_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembered, "ENTRIES_MAX", 10)
    router = Router(3, 16)
    parts = router.split_rows(list(range(100)), lambda n: n)
    assert sum(map(len, parts)) == 100
    assert len(router._cache) <= 10


def test_the_cache_of_a_router_keeps_few_keys_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembered, "ENTRIES_MAX", 640)
    for large in [(n, "a") for n in range(100)], ["a" * 100 + str(n) for n in range(100)]:
        router = Router(3, 16)
        for _ in range(3):
            owners = [router.route(key) for key in large]
            parts = router.split_rows(large, lambda key: key)
            assert [large.index(key) for part in parts for key in part] == sorted(range(100), key=owners.__getitem__)
            assert len(router._cache) <= 10


# Snapshots depend on these: a change here is a change of the format.
HASHES = [
    ("None", "9a9f104a9e0cf667"),
    ("0", "e220a8397b1dcdaf"),
    ("1", "910a2dec89025cc1"),
    ("-1", "e4d971771b652c20"),
    ("9223372036854775807", "2a67d7552e039ea7"),
    ("-9223372036854775808", "481ec0a212a9f3db"),
    ("9223372036854775808", "aa021463a142ed88"),
    ("-1180591620717411303424", "6a591aef98109f34"),
    ("0.5", "c23e7fce5503e674"),
    ("-1.25", "f11c2b0eb1d8ea4b"),
    ("1e+300", "8cbef7b18844fbc5"),
    ("inf", "c9aeb602a996d537"),
    ("Decimal('0.1')", "d7712ce11400fbff"),
    ("Fraction(1, 3)", "73aa713f9fd6cded"),
    ("''", "2d06800538d394c2"),
    ("'a'", "e6c632b61e964e1f"),
    ("'key-17'", "3a508c6b5b52965c"),
    ("'ü中'", "c87790142faba3c5"),
    ("b''", "85737ee4b7b7908a"),
    ("b'a'", "1710399f7b095940"),
    ("()", "bb67ae8584caa73b"),
    ("(1,)", "69157a755cf50b24"),
    ("('a', 1)", "4e619c25ee67b2db"),
    ("(('a',), None)", "214b8fe5662cfa6b"),
    ("datetime.date(2024, 2, 29)", "db2223b4e06a1dc6"),
    ("datetime.datetime(2024, 2, 29, 12, 30, 0, 5)", "286c8266698a7e58"),
    ("datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc)", "f103c01c6fe02639"),
    ("datetime.timedelta(days=1, microseconds=7)", "9b8521c7b6d79271"),
    ("datetime.time(1, 2, 3)", "562493c461e0fa20"),
    ("UUID('00000000-0000-0000-0000-000000000005')", "f385f00cb537f1e8"),
    ("<Colour.RED: 1>", "75392390eaaf9b26"),
    ("frozenset({1, 2})", "428a3997ca9c71e6"),
    ("Point(x=1, y=2, note='')", "a133452ad3c3702c"),
]


def test_hashes_are_what_they_were() -> None:
    assert [(repr(key), f"{stable_hash(key):016x}") for key in golden()] == HASHES


class Grade(enum.IntEnum):
    GOOD = 3


class Word(enum.StrEnum):
    YES = "yes"


class Pair(NamedTuple):
    left: str
    right: int


def more_keys() -> dict[str, Any]:
    """The key types that are not in :func:`golden`, and strings and bytes of every length for which XXH3 has code of its own."""
    texts = {f"text of {length}": ("Rayad-" * 200)[:length] for length in (1, 3, 4, 8, 9, 16, 17, 32, 128, 129, 240, 241, 512, 1024)}
    data = {f"bytes of {length}": bytes(range(256))[:length] * (length // 256 or 1) for length in (1, 8, 16, 17, 128, 240, 256, 1024)}
    return texts | data | {
        "True": True, "a surrogate": "\ud800", "IntEnum": Grade.GOOD, "StrEnum": Word.YES, "NamedTuple": Pair("a", 1),
        "Custom": Custom("x"), "bytearray": bytearray(b"a"),
        "memoryview": memoryview(b"a"), "np.int16": np.int16(-7), "np.float32": np.float32(0.1),
        "np.bool": np.bool_(True), "np.str": np.str_("a"), "np.datetime64": np.datetime64("2024-02-29T12:30", "us"),
    }  # fmt: skip


def golden_columns() -> dict[str, pa.Array]:
    """A column of each type that a key may have."""
    moment, zoned = dt.datetime(2024, 2, 29, 12, 30, 0, 5), dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    whole = {str(kind): pa.array([0, 7, None], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())}
    texts = {str(kind): pa.array(["", "key-17", None], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    data = {str(kind): pa.array([b"", b"a", None], kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())}
    return whole | texts | data | {
        "float": pa.array([0.5, 1e30, None], pa.float32()),
        "double": pa.array([0.1, 2.0**63, None]),
        "bool": pa.array([True, False, None]),
        "date32": pa.array([moment.date(), None], pa.date32()),
        "timestamp": pa.array([moment, None], pa.timestamp("us")),
        "timestamp ns": pa.array([moment, None], pa.timestamp("ns")),
        "timestamp with zone": pa.array([zoned, None], pa.timestamp("us", "Europe/Zurich")),
        "time64": pa.array([moment.time(), None], pa.time64("us")),
        "duration": pa.array([dt.timedelta(days=1, microseconds=7), None], pa.duration("us")),
        "decimal128": pa.array([Decimal("0.10"), Decimal("7.00"), None], pa.decimal128(10, 2)),
        "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
        "null": pa.nulls(2),
    }  # fmt: skip


HASHES_OF_TYPES = {
    "text of 1": "2a84a3b55430d50b",
    "text of 3": "d6877adc4f1de4af",
    "text of 4": "f5c93956e2d33224",
    "text of 8": "f3ea3a8e702dc44e",
    "text of 9": "4f42fd86d2c28a02",
    "text of 16": "df2f4858bc85a22f",
    "text of 17": "545c2ccc101c2fbc",
    "text of 32": "d75f013f75bfd479",
    "text of 128": "a61d8303147efba8",
    "text of 129": "f885f054551fa461",
    "text of 240": "1631790c324fd84e",
    "text of 241": "d6fc75474c525a37",
    "text of 512": "d9cc255c2c2579f8",
    "text of 1024": "2bd537c098822b0e",
    "bytes of 1": "6dd88a3971900c06",
    "bytes of 8": "7e288b3b5b7aa034",
    "bytes of 16": "625e735873345442",
    "bytes of 17": "4a4e8e230dd972c0",
    "bytes of 128": "3271166e08bddfda",
    "bytes of 240": "4dbfe78985b98af7",
    "bytes of 256": "51d9ee44e4353514",
    "bytes of 1024": "f3cd53f31edc94f1",
    "True": "910a2dec89025cc1",
    "a surrogate": "daab8382539269d0",
    "IntEnum": "1d0b14e4db018fed",
    "StrEnum": "bb9db50d5f73a9df",
    "NamedTuple": "4e619c25ee67b2db",
    "Custom": "59651ac6e4c329e0",
    "bytearray": "1710399f7b095940",
    "memoryview": "1710399f7b095940",
    "np.int16": "6c1e186443822970",
    "np.float32": "1617987c9675360d",
    "np.bool": "910a2dec89025cc1",
    "np.str": "e6c632b61e964e1f",
    "np.datetime64": "9b8729e849c499d4",
}
HASHES_OF_COLUMNS = {
    "int8": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "int16": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "int32": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "int64": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "uint8": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "uint64": "e220a8397b1dcdaf 63cbe1e459320dd7 9a9f104a9e0cf667",
    "string": "2d06800538d394c2 3a508c6b5b52965c 9a9f104a9e0cf667",
    "large_string": "2d06800538d394c2 3a508c6b5b52965c 9a9f104a9e0cf667",
    "string_view": "2d06800538d394c2 3a508c6b5b52965c 9a9f104a9e0cf667",
    "binary": "85737ee4b7b7908a 1710399f7b095940 9a9f104a9e0cf667",
    "large_binary": "85737ee4b7b7908a 1710399f7b095940 9a9f104a9e0cf667",
    "binary_view": "85737ee4b7b7908a 1710399f7b095940 9a9f104a9e0cf667",
    "float": "c23e7fce5503e674 5302a65240d3f526 9a9f104a9e0cf667",
    "double": "aacb1b8b56e26276 aa021463a142ed88 9a9f104a9e0cf667",
    "bool": "910a2dec89025cc1 e220a8397b1dcdaf 9a9f104a9e0cf667",
    "date32": "db2223b4e06a1dc6 9a9f104a9e0cf667",
    "timestamp": "286c8266698a7e58 9a9f104a9e0cf667",
    "timestamp ns": "286c8266698a7e58 9a9f104a9e0cf667",
    "timestamp with zone": "f103c01c6fe02639 9a9f104a9e0cf667",
    "time64": "4ab6779716409ffb 9a9f104a9e0cf667",
    "duration": "9b8521c7b6d79271 9a9f104a9e0cf667",
    "decimal128": "d7712ce11400fbff 63cbe1e459320dd7 9a9f104a9e0cf667",
    "dictionary": "e6c632b61e964e1f 9a9f104a9e0cf667 575a0b1c44d8843f e6c632b61e964e1f",
    "null": "9a9f104a9e0cf667 9a9f104a9e0cf667",
}


def test_a_snapshot_finds_its_key_groups_with_any_version_of_xxhash_numpy_and_pyarrow() -> None:
    """``pyproject.toml`` gives ranges of versions; ``make lowest`` runs this test at both ends of each."""
    found = {name: f"{stable_hash(key):016x}" for name, key in more_keys().items()}
    assert found == HASHES_OF_TYPES
    found = {name: " ".join(f"{one:016x}" for one in hash_array(column).tolist()) for name, column in golden_columns().items()}
    assert found == HASHES_OF_COLUMNS
    assert content_digest([None, 1, 0.5, "key-17", b"a", ("a", 1), {"a": [True]}]) == "d0643e8cf8d096a7"
