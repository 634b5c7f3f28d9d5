"""Messages of other schemas are read as the one that is asked for: as ``fastavro`` resolves them, or exactly, or refused."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd

pytest.importorskip("fastavro")
from tests.integrations.avro_schemas import Names, as_column, decoded, encoded, parsing, read, recorded, set_aside, sorted_maps, typed

DEFAULTS: list[tuple[Any, Any]] = [
    ("long", -7),
    ("double", 1.5),
    ("string", "ä"),
    ("bytes", "\xff\x00"),
    (["null", "string"], None),
    (["string", "null"], "x"),
    ({"type": "enum", "name": "New", "symbols": ["a", "b"]}, "b"),
    ({"type": "fixed", "name": "Four", "size": 2}, "\x01\xff"),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "array", "items": "int"}, []),
    ({"type": "map", "values": "string"}, {"a": "b"}),
    ({"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 5}]}, {"x": 3}),
]
PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}


def evolved(draw: Any, schema: Any, names: Names) -> Any:
    """A reader's schema: fields in another order, some left out or new, numbers wider, null where there was none."""
    out = copy.deepcopy(schema)
    fields = draw(st.permutations(out["fields"]))
    fields = fields[: draw(st.integers(1, len(fields)))]
    for field in fields:
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "record":
            field["type"] = evolved(draw, kind, names)
        elif isinstance(kind, str) and kind in PROMOTED and draw(st.booleans()):
            field["type"] = draw(st.sampled_from(PROMOTED[kind]))
        if not isinstance(field["type"], list) and draw(st.booleans()):
            field["type"] = ["null", field["type"]]
    if draw(st.booleans()):
        kind, default = draw(st.sampled_from(DEFAULTS))
        kind = copy.deepcopy(kind)
        if isinstance(kind, dict) and "name" in kind:
            kind["name"] = names.new("N")
        fields = [*fields, {"name": names.new("new"), "type": kind, "default": default}]
    out["fields"] = fields
    return out


@st.composite
def pairs(draw: Any) -> tuple[Any, Any, list[Any]]:
    """A writer's schema, a reader's, and records."""
    names = Names()
    schema, values = draw(recorded(names))
    return schema, evolved(draw, schema, names), draw(st.lists(values, max_size=5))


def without_defaults_as_text(schema: Any, value: Any) -> Any:
    """``fastavro`` gives defaults as JSON has them: bytes as text, and what a record's default leaves out is not there. Numbers that it
    promotes to float keep more digits than a float has."""
    if schema == "float":
        return float(np.array([value]).astype(np.float32)[0])
    if isinstance(schema, list):
        return None if value is None else without_defaults_as_text(next(one for one in schema if one != "null"), value)
    if schema in ("bytes",) or (isinstance(schema, dict) and schema["type"] == "fixed" and "logicalType" not in schema):
        return value.encode("latin-1") if isinstance(value, str) else value
    if isinstance(schema, dict) and schema["type"] == "record":
        return {
            one["name"]: without_defaults_as_text(one["type"], value[one["name"]] if one["name"] in value else one.get("default"))
            for one in schema["fields"]
        }
    return value


@settings(max_examples=300, deadline=None)
@given(pairs())
def test_records_are_resolved_as_fastavro_does(given: tuple[Any, Any, list[Any]]) -> None:
    writer, reader, records = given
    values = [encoded(writer, record) for record in records]
    wanted = [as_column(reader, without_defaults_as_text(reader, decoded(value, writer, reader))) for value in values]
    found = read(parsing(reader, writer=writer), values, pa.binary())
    assert [sorted_maps(reader, one) for one in found] == wanted


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_is_not_read_is_skipped_whatever_it_is(data: Any) -> None:
    names = Names()
    kinds = [data.draw(typed(names)) for _ in range(3)]
    union = data.draw(st.sampled_from([["null", "long", "string"], ["int", {"type": "map", "values": ["null", "string", "double"]}]]))
    kinds.append((union, st.sampled_from([None, 5, "x"]) if "null" in union else st.sampled_from([3, {"a": None, "b": "x", "c": 1.5}])))
    fields = [{"name": f"x{at}", "type": kind} for at, (kind, _) in enumerate(kinds)]
    last = {"name": "a", "type": "int"}
    writer = {"type": "record", "name": "One", "fields": [*fields, last]}
    records = data.draw(
        st.lists(st.fixed_dictionaries({**{f"x{at}": some for at, (_, some) in enumerate(kinds)}, "a": st.integers(0, 99)}))
    )
    sent = [encoded(writer, record) for record in records]
    found = read(parsing({"type": "record", "name": "One", "fields": [last]}, writer=writer), sent, pa.binary())
    assert found == [{"a": record["a"]} for record in records]


def one(kind: Any, name: str = "One", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": kind, **more}]}


def test_a_union_of_several_types_is_read_where_the_value_fits() -> None:
    writer = one(["null", "int", "string", "double"])
    sent = [encoded(writer, {"a": value}) for value in (None, 3, "x", 1.5, 4)]
    good, bad = set_aside(sent, schema=one(["null", "long"]), writer=writer)
    assert good == {0: {"a": None}, 1: {"a": 3}, 4: {"a": 4}}
    assert sorted(bad) == [2, 3]
    assert "value.a was written as string, which is not read as long" in bad[2]
    good, bad = set_aside(sent, schema=one("double"), writer=writer)
    assert (good, sorted(bad)) == ({1: {"a": 3.0}, 3: {"a": 1.5}, 4: {"a": 4.0}}, [0, 2])
    assert "is null, and the schema that is read has none there" in bad[0]


def test_symbols_and_aliases() -> None:
    def kinds(*symbols: str, **more: Any) -> Any:
        return one({"type": "enum", "name": "E", "symbols": list(symbols), **more})

    sent = [encoded(kinds("a", "b", "c"), {"a": symbol}) for symbol in "abc"]
    assert set_aside(sent, schema=kinds("c", "a"), writer=kinds("a", "b", "c"))[0] == {0: {"a": "a"}, 2: {"a": "c"}}
    with pytest.raises(ValueError, match="has no symbol 'b', and no default"):
        read(parsing(kinds("c", "a"), writer=kinds("a", "b", "c")), sent, pa.binary())
    found = read(parsing(kinds("c", "a", default="c"), writer=kinds("a", "b", "c")), sent, pa.binary())
    assert [row["a"] for row in found] == ["a", "c", "c"]
    renamed = {**one("long", "new.Name"), "aliases": ["old.One"]}
    renamed["fields"] = [{"name": "b", "aliases": ["a"], "type": "long"}]
    assert read(parsing(renamed, writer=one("int")), [encoded(one("int"), {"a": 3})], pa.binary()) == [{"b": 3}]
    elsewhere = {**one("long"), "namespace": "other.space"}
    assert read(parsing(elsewhere, writer=one("int")), [encoded(one("int"), {"a": 3})], pa.binary()) == [{"a": 3}]


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


def test_moments_of_another_unit_are_the_same_moments_or_refused() -> None:
    """``fastavro`` takes the number of one unit for that of the other."""
    moment = dt.datetime(2026, 11, 30, 12, 0, 0, 5000, dt.UTC)
    for writer, reader in ((MILLIS, MICROS), (MICROS, MILLIS)):
        assert read(parsing(one(reader), writer=one(writer)), [encoded(one(writer), {"a": moment})], pa.binary()) == [{"a": moment}]
    odd = encoded(one(MICROS), {"a": moment + dt.timedelta(microseconds=1)})
    with pytest.raises(ValueError, match=r"is none of .*ms.* exactly"):
        read(parsing(one(MILLIS), writer=one(MICROS)), [odd], pa.binary())
    with pytest.raises(rd.DataflowError, match="was written as date32"):
        parsing(one(MILLIS), writer=one({"type": "int", "logicalType": "date"}))
    assert read(parsing(one("long"), writer=one(MICROS)), [encoded(one("long"), {"a": 9})], pa.binary()) == [{"a": 9}]
    assert read(parsing(one(MILLIS), writer=one("int")), [encoded(one("int"), {"a": 0})], pa.binary())[0]["a"].year == 1970


def test_decimals_keep_their_scale() -> None:
    def dec(precision: int, scale: int, **more: Any) -> Any:
        return one({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, **more})

    sent = [encoded(dec(5, 2), {"a": Decimal("123.45")})]
    assert read(parsing(dec(20, 2), writer=dec(5, 2)), sent, pa.binary()) == [{"a": Decimal("123.45")}]
    for reader in (dec(20, 3), dec(4, 2)):
        with pytest.raises(rd.DataflowError, match="was written as decimal"):
            parsing(reader, writer=dec(5, 2))


def test_columns_as_the_schema_that_is_read() -> None:
    """Records and enums of any name; what is missing is null; numbers become the type that is asked for, or are refused."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["x", "y"]}}],
    }
    writer = {
        "type": "record",
        "name": "Envelope",
        "namespace": "server.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "n", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        ],
    }
    order = pa.struct([("id", pa.int64()), ("kind", pa.string()), ("more", pa.string())])
    columns = pa.schema(
        [
            ("after", order),
            ("before", order),
            ("n", pa.int8()),
            ("at", pa.timestamp("ns", "UTC")),
            ("price", pa.decimal128(38, 2)),
            ("none", pa.list_(pa.date32())),
        ]
    )
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def sent(n: int) -> bytes:
        return encoded(writer, {"before": None, "after": {"id": 1, "kind": "y"}, "n": n, "at": moment, "price": Decimal("1.50")})

    step = parsing(columns, writer=writer)
    assert step.kind == pa.struct(list(columns))
    found = read(step, [sent(3), None, sent(-128)], pa.binary())
    after = {"id": 1, "kind": "y", "more": None}
    assert found[0] == {"after": after, "before": None, "n": 3, "at": moment, "price": Decimal("1.50"), "none": None}
    assert (found[1], found[2]["n"]) == (None, -128)
    with pytest.raises(ValueError, match=r"128"):
        read(step, [sent(3), sent(128), sent(4)], pa.binary())
    good, bad = set_aside([sent(3), sent(128), sent(4)], schema=columns, writer=writer)
    assert (sorted(good), sorted(bad)) == ([0, 2], [1])
    needed = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("new", pa.int64(), nullable=False)])
    with pytest.raises(rd.DataflowError, match="is not in the schema that it was written with, and has no default"):
        parsing(needed, writer=writer)
