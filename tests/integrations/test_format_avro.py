"""``format_avro``: what is written is what ``fastavro`` reads, and what ``parse_avro`` reads back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import rayad as rd
from rayad.integrations.avro.format_column import FormatAvroColumn
from rayad.integrations.avro.types import schema_of_columns
from rayad.progress import DataflowError

pytest.importorskip("fastavro")
from tests.integrations.avro_schemas import as_column, decoded, encoded, messages, parsing, sorted_maps
from tests.integrations.registry_server import RegistryServer, serving_registry

Given = tuple[Any, list[Any]]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving_registry() as one:
        yield one


def formatting(schema: Any, fields: Any = None) -> FormatAvroColumn:
    return FormatAvroColumn("value", fields, schema, None, None, True, 5.0, None)


@settings(max_examples=300, deadline=None)
@given(messages())
def test_columns_become_what_fastavro_reads(given: Given) -> None:
    schema, records = given
    values = [None if record is None else encoded(schema, record) for record in records]
    read = parsing(schema).apply(pa.record_batch({"value": pa.array(values, pa.binary())}))
    for batch in (read, read.slice(1), read.slice(0, 2)):
        written = formatting(schema).apply(batch).column("value")
        assert written.type == pa.binary()
        assert [None if one is None else as_column(schema, decoded(one, schema)) for one in written.to_pylist()] == [
            None if one is None else sorted_maps(schema, one) for one in batch.column("value").to_pylist()
        ]


ROW = {
    "id": 1,
    "name": "ann",
    "day": dt.date(2026, 11, 30),
    "at": dt.datetime(2026, 11, 30, 12, 0, 0, 1, dt.UTC),
    "price": Decimal("-1.50"),
    "lines": [{"n": 2}, {"n": None}],
    "small": -3,
    "single": 0.5,
    "gone": None,
}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.large_string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("lines", pa.list_(pa.struct([("n", pa.int32())]))),
        ("small", pa.int8()),
        ("single", pa.float32()),
        ("gone", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def test_the_schema_is_that_of_the_columns_and_is_registered(server: RegistryServer) -> None:
    flow = rd.Dataflow("formatted")
    rows = flow.from_arrow(pa.Table.from_pylist([ROW, {**ROW, "id": 2}], COLUMNS))
    stream = rows.format_avro("value", COLUMNS.names, registry=server.url, subject="orders-value")
    assert stream.schema == COLUMNS.append(pa.field("value", pa.binary()))
    back = stream.select("value").parse_avro("value", registry=server.url, subject="orders-value").unnest("value")
    back.collect("out")
    found = [row for _, row in flow.run(runtime="local")["out"]]
    assert found == [ROW, {**ROW, "id": 2}]
    registered = json.loads(server.schemas[0].schema)
    assert registered["name"] == "orders_value"
    assert registered["fields"][0] == {"name": "id", "type": ["null", "long"], "default": None}


def test_structs_in_structs_have_names_of_their_own() -> None:
    inner = pa.struct([("x", pa.int64())])
    table = pa.table({"a": [{"b": {"x": 1}}], "a_b": [{"x": 2}]}, pa.schema([("a", pa.struct([("b", inner)])), ("a_b", inner)]))
    flow = rd.Dataflow("nested")
    written = flow.from_arrow(table).format_avro("value", ["a", "a_b"]).select("value")
    writer = schema_of_columns(table.schema, "test")
    written.parse_avro("value", table.schema, writer=writer).unnest("value").collect("out")
    assert [row for _, row in flow.run(runtime="local")["out"]] == table.to_pylist()


def test_rows_and_structs_and_tombstones(server: RegistryServer) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"]}]}
    number = server.add("orders-value", schema)
    values = [{"id": 1, "n": None}, None, {"id": 2, "n": 3}]
    wanted = [None if value is None else encoded(schema, value, number) for value in values]
    step = FormatAvroColumn("value", None, json.dumps(schema), server.url, "orders-value", False, 5.0, None)
    assert [row["value"] for row in step.apply([{"value": value} for value in values])] == wanted
    assert step.apply(pa.record_batch({"value": values})).column("value").to_pylist() == wanted
    named = FormatAvroColumn("out", ["n", "id"], schema, None, None, True, 5.0, None)
    assert named.apply([{"id": 5, "n": 6, "x": 0}]) == [{"id": 5, "n": 6, "x": 0, "out": encoded(schema, {"id": 5, "n": 6})}]


def one(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "column", "says"),
    [
        ("int", pa.array([1, 2**40]), "1099511627776"),
        ("long", pa.array([1, None]), r"value.a is null, and its schema has no null there: long"),
        ("long", pa.array(["x", "y"]), "a"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, pa.array(["a", "c"]), "value.a is 'c', which is no symbol"),
        (
            {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0},
            pa.array([Decimal(1), Decimal(-129)], pa.decimal128(38, 0)),
            "a",
        ),
        ({"type": "array", "items": "int"}, pa.array([[1], [1, None]]), r"value.a\[\] is null"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_or_set_aside(kind: Any, column: pa.Array, says: str) -> None:
    step = formatting(one(kind), ["a"])
    with pytest.raises(ValueError, match=says):
        step.apply(pa.record_batch({"a": column}))
    flow = rd.Dataflow("aside")
    stream = flow.from_arrow(pa.table({"a": column})).format_avro("value", ["a"], schema=one(kind), on_error="skip")
    stream.collect("good")
    stream.errors.collect("bad")
    result = flow.run(runtime="local")
    is_text = pa.types.is_string(column.type) and kind == "long"
    assert (len(result["good"]), len(result["bad"])) == ((0, 2) if is_text else (1, 1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"registry": "http://localhost:1"}, "registry= without subject="),
        ({"subject": "s"}, "subject= without registry="),
        ({"fields": "a"}, "it takes a list of names of columns"),
        ({"fields": ["a", "a"]}, "'a'"),
        ({"fields": ["nix"]}, "there is no column 'nix'"),
        ({"fields": None}, "there is no column 'value'"),
        ({"column": "a", "fields": None}, "column 'a' is int64: it takes a column of structs"),
        ({"schema": "long"}, "it must be a record"),
        ({"schema": one(["int", "string"])}, "is a union of int, string"),
        ({"schema": one("int"), "fields": ["b"]}, "the schema has the field 'a', and there is no such column"),
        ({"schema": one("int"), "fields": ["a", "b"]}, r"the schema has no field for \['b'\]"),
    ],
)
def test_what_is_asked_for_is_checked_when_it_is_written(options: dict[str, Any], says: str) -> None:
    options = {"fields": ["a"], **options}
    rows = rd.Dataflow("asked").from_arrow(pa.table({"a": [1], "b": [2]}))

    def written() -> None:
        rows.format_avro(options.pop("column", "value"), options.pop("fields"), **options)

    with pytest.raises(DataflowError, match=says):
        written()


def test_types_that_are_not_known_need_a_schema() -> None:
    with pytest.raises(DataflowError, match="the types of the columns are not known here: give schema="):
        rd.Dataflow("rows").from_items([{"a": 1}]).format_avro("value", ["a"])


def test_a_schema_that_the_registry_refuses_or_does_not_know(server: RegistryServer) -> None:
    def made(**more: Any) -> None:
        rows = rd.Dataflow("refused").from_arrow(pa.table({"a": [1]}))
        rows.format_avro("value", ["a"], registry=server.url, subject="s", **more)

    with pytest.raises(DataflowError, match=r"the id of a schema under subject 's' .*Schema not found.*register=True would register it"):
        made(register=False)
    made()
    made(register=False)
    server.is_strict = True
    with pytest.raises(DataflowError, match=r"registering a schema under subject 's' .*incompatible with an earlier schema"):
        made(schema=one("string"))
    with pytest.raises(DataflowError, match="register"):
        made(register="yes")
