"""``parse_avro``: a column has what ``fastavro`` reads, of every type, and what is no message is refused, whatever is beside it."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations.avro import readers

pytest.importorskip("fastavro")
from tests.integrations.avro_schemas import as_column, decimals, decoded, encoded, messages, parsing, read, set_aside, sorted_maps

KINDS = st.sampled_from([None, pa.binary(), pa.large_binary(), pa.binary_view()])
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
    ],
}


def order(at: int) -> dict[str, Any]:
    return {"id": at, "customer": None if at % 3 == 0 else f"c{at}", "lines": [{"a": at / 2, "b": 1.0}] * (at % 4)}


@pytest.mark.parametrize("items_a_round", [0, 100])
@settings(max_examples=200, deadline=None)
@given(messages(), KINDS)
def test_a_column_has_what_fastavro_reads(items_a_round: int, given: tuple[Any, list[Any]], kind: Any) -> None:
    """Items of arrays are read in rounds, or looked for first."""
    schema, records = given
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "ITEMS_A_ROUND", items_a_round)
        check(schema, records, kind)


def check(schema: Any, records: list[Any], kind: Any) -> None:
    values = [None if record is None else encoded(schema, record) for record in records]
    wanted = [None if value is None else as_column(schema, decoded(value, schema)) for value in values]
    found = read(parsing(schema), values, kind)
    assert [None if one is None else sorted_maps(schema, one) for one in found] == wanted


@settings(max_examples=50, deadline=None)
@given(st.integers(25, 76).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits))), st.data())
def test_decimals_of_many_digits(size: tuple[int, int], data: Any) -> None:
    """The bytes are made here: ``fastavro`` reads them with 28 digits unless the context of decimals is another."""
    precision, scale = size
    values = data.draw(st.lists(decimals(precision, scale), min_size=1, max_size=4))
    more = data.draw(st.integers(0, 40))
    schema = one_field({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
    sent = []
    for value in values:
        number = int("".join(map(str, value.as_tuple().digits))) * (-1 if value.is_signed() else 1)
        held = number.to_bytes((number.bit_length() + 8) // 8 + more, "big", signed=True)
        sent.append(encoded(one_field("bytes"), {"a": held}))
    assert [row["a"] for row in read(parsing(schema), sent, pa.binary())] == values


def one_field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "a", "type": kind, **more}]}


def test_logical_types_are_columns_of_their_own() -> None:
    kinds = {
        "timestamp-nanos": pa.timestamp("ns", "UTC"),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "timestamp-millis": pa.timestamp("ms", "UTC"),
        "local-timestamp-nanos": pa.timestamp("ns"),
        "time-micros": pa.time64("us"),
        "no-such": pa.int64(),
        "decimal": pa.int64(),
    }
    for name, kind in kinds.items():
        step = parsing(one_field({"type": "long", "logicalType": name}))
        assert step.kind.field("a").type == kind, name
    nanos = read(
        parsing(one_field({"type": "long", "logicalType": "timestamp-nanos"})), [encoded(one_field("long"), {"a": 1_001})], pa.binary()
    )
    assert nanos[0]["a"].value == 1_001


@pytest.mark.parametrize(
    ("name", "kind", "value", "wanted"),
    [
        ("Date", "int", 20_000, dt.date(2024, 10, 4)),
        ("Timestamp", "long", 1_000, dt.datetime(1970, 1, 1, 0, 0, 1)),
        ("MicroTimestamp", "long", 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        ("MicroTime", "long", 90_000_000_000, 90_000_000_000),
        ("ZonedTimestamp", "string", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z"),
    ],
)
def test_types_of_debezium_by_the_name_that_it_gives_them(name: str, kind: str, value: Any, wanted: Any) -> None:
    schema = one_field(["null", {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.time.{name}"}])
    assert read(parsing(schema), [encoded(schema, {"a": value})], pa.binary()) == [{"a": wanted}]


def test_items_in_several_blocks_with_and_without_their_bytes() -> None:
    """``fastavro`` writes one block; others write several, and say how many bytes a block has by a negative count."""
    for inner, cells in (
        ("long", [b"\x02", b"\x80\x01", b"\x06"]),
        ("string", [b"\x02x", b"\x00", b"\x04\xc3\xa4"]),
        ("boolean", [b"\x01", b"\0", b"\x01"]),
    ):
        schema = one_field({"type": "array", "items": inner})
        rest = b"".join(cells[1:])
        plain = b"\x06" + b"".join(cells) + b"\0"
        two = b"\x02" + cells[0] + b"\x03" + bytes([2 * len(rest)]) + rest + b"\0"
        assert read(parsing(schema), [plain, two, b"\0", two], pa.binary()) == [
            {"a": decoded(one, schema)["a"]} for one in (plain, plain, b"\0", plain)
        ]
        skipped = {"type": "record", "name": "One", "fields": [*schema["fields"], {"name": "b", "type": "int"}]}
        only = {"type": "record", "name": "One", "fields": [{"name": "b", "type": "int"}]}
        assert read(parsing(only, writer=skipped), [plain + b"\x02", two + b"\x04", b"\0\x06"], pa.binary()) == [
            {"b": 1},
            {"b": 2},
            {"b": 3},
        ]


@pytest.mark.parametrize("items_a_round", [0, 100])
def test_long_arrays(items_a_round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ITEMS_A_ROUND", items_a_round)
    schema = one_field({"type": "array", "items": {"type": "array", "items": "long"}})
    values = [{"a": [list(range(-at, at * 300, 7)) for at in range(n)]} for n in (0, 3, 1, 9)]
    assert read(parsing(schema), [encoded(schema, value) for value in values], pa.binary()) == values
    texts = one_field({"type": "array", "items": "string"})
    many = [{"a": [f"t{at}" for at in range(n)]} for n in (2_000, 0, 1)]
    sent = [encoded(texts, value) for value in many]
    assert read(parsing(texts), sent, pa.binary()) == many
    other = {"type": "record", "name": "One", "fields": [*texts["fields"], {"name": "b", "type": "int"}]}
    only = {"type": "record", "name": "One", "fields": [{"name": "b", "type": "int"}]}
    assert read(parsing(only, writer=other), [one + b"\x02" for one in sent], pa.binary()) == [{"b": 1}] * 3


@pytest.mark.parametrize("items_a_round", [0, 100])
def test_blocks_with_their_bytes_inside_others(items_a_round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ITEMS_A_ROUND", items_a_round)
    schema = one_field({"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "string"}}})
    texts = b"\x03\x08\x02x\x02y\0"  # two texts in a block that says it has 4 bytes
    pairs = b"\x01" + bytes([2 * (2 + len(texts))]) + b"\x02k" + texts + b"\0"
    message = b"\x04" + pairs + pairs + b"\0"
    assert read(parsing(schema), [message, b"\0"], pa.binary()) == [{"a": [[("k", ["x", "y"])]] * 2}, {"a": []}]


GOOD = [encoded(ORDER, order(at)) for at in range(8)]


def broken(chance: random.Random) -> bytes:
    """A message that is cut, has more behind it, or has other bytes in it; it may be one that can be read."""
    good = encoded(ORDER, order(chance.randrange(1, 40)))
    match chance.randrange(4):
        case 0:
            return good[: chance.randrange(len(good))]
        case 1:
            return good + chance.randbytes(chance.randrange(1, 5))
        case 2:
            at = chance.randrange(len(good))
            return good[:at] + chance.randbytes(1) + good[at + 1 :]
        case _:
            return chance.randbytes(chance.randrange(30))


REFUSED_HERE_ALONE = ("negative length", "bytes end before its value does")
"""``fastavro`` reads all that is left where a text has a negative length, and passes over whatever number of bytes a block says it has."""


def is_read(value: bytes, schema: Any) -> bool:
    try:
        decoded(value, schema)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_what_is_broken_is_set_aside_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``fastavro`` reads is there as it reads it; of the others, those are refused that it refuses."""
    monkeypatch.setattr(readers, "ITEMS_A_ROUND", 100 * (seed % 2))
    chance = random.Random(seed)
    values = [broken(chance) if chance.random() < 0.4 else chance.choice([*GOOD, None]) for _ in range(40)]
    good, bad = set_aside(values, schema=ORDER)
    for at, value in enumerate(values):
        if at in good:
            assert (None if value is None else as_column(ORDER, decoded(value, ORDER))) == sorted_maps(ORDER, good[at]), value
    for at in bad:
        assert not is_read(values[at] or b"", ORDER) or any(told in bad[at] for told in REFUSED_HERE_ALONE), (values[at], bad[at])
    assert sorted([*good, *bad]) == list(range(len(values)))


BAD: list[tuple[Any, bytes, str]] = [
    ("long", b"", "bytes end before"),
    ("long", b"\x80", "bytes end before"),
    ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
    ("long", b"\xff" * 12, "more than 64 bits"),
    ("long", b"\x02\x02", "ends before its bytes do"),
    ("int", b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
    ("boolean", b"\x02", "neither 0 nor 1"),
    ("double", b"\0" * 7, "bytes end before"),
    ("string", b"\x01", "negative length"),
    ("string", b"\x04a", "bytes end before"),
    ("string", b"\x04a\xff", "not UTF-8"),
    ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more than 2 GiB"),
    (["null", "long"], b"\x04", "branch that its union does not have"),
    (["null", "long"], b"\x01", "branch that its union does not have"),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x02", "symbol that its schema does not have"),
    ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more items than"),
    ({"type": "array", "items": "string"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "number of items that cannot be"),
    ({"type": "array", "items": "long"}, b"\x06\x02\x80\x80", "bytes end before"),
    ({"type": "map", "values": "long"}, b"\x02\x02a", "bytes end before"),
    ({"type": "int", "logicalType": "time-millis"}, b"\x01", "no time of a day"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}, b"\x02\x64", "more digits"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}, b"\x24" + b"\x01" * 18, "more digits"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "says"), BAD)
def test_a_value_that_does_not_fit_is_shown(kind: Any, value: bytes, says: str) -> None:
    """Beside others of the same batch, in columns and in rows."""
    schema = one_field(kind)
    good = {"long": b"\x02", "int": b"\x02", "boolean": b"\x01", "double": b"\0" * 8, "string": b"\x02a"}.get(str(kind), b"\0")
    if isinstance(kind, dict) and kind.get("logicalType") == "decimal":
        good = b"\x02\x05"
    for form in (None, pa.binary()):
        with pytest.raises(ValueError, match=says) as told:
            read(parsing(schema), [good, good, value, good], form)
        assert f"parse_avro('value'): {value!r}"[:60] in str(told.value)


def test_levels_without_end_and_items_without_bytes_end_no_process() -> None:
    """Of a type that is skipped: a list of a million links, and a count of items that take no bytes."""
    link = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
    empty = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}
    for kind, sent in ((link, b"\x02" * 100_000 + b"\0"), (empty, b"\xfe\xff\xff\xff\x0f\0")):
        writer = {"type": "record", "name": "One", "fields": [{"name": "x", "type": kind}, {"name": "a", "type": "int"}]}
        few = b"\x02\0" if kind is link else b"\x06\0"
        good, bad = set_aside([few + b"\x02", sent + b"\x02", few + b"\x04"], schema=one_field("int"), writer=writer)
        assert (good, list(bad)) == ({0: {"a": 1}, 2: {"a": 2}}, [1])


def test_values_in_rows_have_to_be_bytes() -> None:
    with pytest.raises(rd.DataflowError, match="it takes bytes"):
        read(parsing(ORDER), ["text"])  # type: ignore[list-item]


def test_the_columns_behind_it_are_known() -> None:
    flow = rd.Dataflow("known")
    stream = flow.from_arrow(pa.table({"at": [1], "value": [GOOD[0]]})).parse_avro("value", ORDER)
    lines = pa.list_(pa.map_(pa.string(), pa.float64()))
    wanted = pa.struct([("id", pa.int64()), ("customer", pa.string()), ("lines", lines)])
    assert stream.schema == pa.schema([("at", pa.int64()), ("value", wanted)])
    assert stream.unnest("value").schema.names == ["at", "id", "customer", "lines"]


TREE = {"type": "record", "name": "T", "fields": [{"name": "t", "type": {"type": "array", "items": "T"}}]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give schema="),
        ({"schema": ORDER, "subject": "s"}, "each says what is read"),
        ({"subject": "s"}, "without registry="),
        ({"schema": ORDER, "writer": ORDER, "registry": "http://localhost:1"}, "the id in front of each message says it"),
        ({"schema": pa.schema([("a", pa.int64())])}, "columns do not say how messages were written"),
        ({"schema": pa.schema([]), "writer": ORDER}, "without fields"),
        ({"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())]), "writer": ORDER}, "'a'"),
        ({"schema": pa.schema([("a", pa.month_day_nano_interval())]), "writer": ORDER}, "Avro does not have"),
        ({"schema": "{"}, "no schema of Avro"),
        ({"schema": {"type": "record", "fields": []}}, "no schema of Avro"),
        ({"schema": one_field("Unknown")}, "no schema of Avro"),
        ({"schema": "long"}, "it must be a record"),
        ({"schema": TREE}, "the record 'T' contains itself"),
        ({"schema": one_field(["null", "long", "string"])}, r"schema\.a is a union of null, long, string: a column has values of one type"),
        ({"schema": one_field({"type": "array", "items": ["int", "string"]})}, r"schema\.a\[\] is a union"),
        ({"schema": one_field({"type": "array", "items": "null"})}, "array of nulls"),
        ({"schema": one_field({"type": "record", "name": "E", "fields": []})}, "has no fields"),
        ({"schema": one_field({"type": "bytes", "logicalType": "decimal", "precision": 77, "scale": 0})}, "1 to 76 digits"),
        ({"schema": one_field("int"), "writer": one_field("string")}, "value.a was written as string, which is not read as int"),
        ({"schema": one_field("int", default="x"), "writer": one_field("int")}, "default"),
        ({"schema": ORDER, "writer": one_field("int")}, "names differ"),
        ({"schema": ORDER, "column": "at"}, "column 'at' is int64: it takes columns of bytes"),
        ({"schema": ORDER, "column": "nix"}, "there is no column 'nix' among"),
    ],
)
def test_what_is_asked_for_is_checked_when_it_is_written(options: dict[str, Any], says: str) -> None:
    flow = rd.Dataflow("asked")
    table = pa.table({"at": [1], "value": [b""]})
    with pytest.raises(rd.DataflowError, match=says):
        flow.from_arrow(table).parse_avro(options.pop("column", "value"), options.pop("schema", None), **options)


def test_values_are_exact() -> None:
    """A decimal keeps its zeros, a float is the single one."""
    schema = one_field({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    assert str(read(parsing(schema), [encoded(schema, {"a": Decimal("1.50")})], pa.binary())[0]["a"]) == "1.50"
