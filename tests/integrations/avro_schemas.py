"""Schemas of Avro, drawn by hypothesis, with values of them, and what ``fastavro`` makes of messages."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations.avro.parse_column import ParseAvroColumn

EPOCH = dt.datetime(1970, 1, 1)
SINGLE = st.floats(width=32, allow_nan=False)
PLAIN: list[tuple[Any, Any]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", SINGLE),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=200)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.integers(0, 86_399_999).map(lambda ms: (EPOCH + dt.timedelta(milliseconds=ms)).time()),
    ),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
]
for _unit, _per_s in (("millis", 1_000), ("micros", 1_000_000)):
    _moments = st.integers(-(10**10) * _per_s, 10**11 * _per_s).map(
        lambda n, per_s=_per_s: EPOCH + dt.timedelta(microseconds=n * (1_000_000 // per_s))  # type: ignore[misc]
    )
    PLAIN.append(({"type": "long", "logicalType": f"local-timestamp-{_unit}"}, _moments))
    PLAIN.append(({"type": "long", "logicalType": f"timestamp-{_unit}"}, _moments.map(lambda at: at.replace(tzinfo=dt.UTC))))


class Names:
    """Names that no two types of one schema have."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Of so many digits, all of them used at times."""
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale) if precision < 28 else Decimal(f"{n}e-{scale}"))


@st.composite
def typed(draw: Any, names: Names, levels: int = 3) -> tuple[Any, Any]:
    """A type, and a strategy of its values."""
    kinds = ["plain", "plain", "plain", "decimal", "enum", "fixed", "null"]
    kind = draw(st.sampled_from(kinds + (["record", "array", "map"] if levels else [])))
    if kind == "plain":
        return draw(st.sampled_from(PLAIN))  # type: ignore[no-any-return]
    if kind == "decimal":
        precision = draw(st.integers(1, 24))
        scale = draw(st.integers(0, precision))
        said = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if draw(st.booleans()):
            return {"type": "bytes", **said}, decimals(precision, scale)
        return {"type": "fixed", "name": names.new("D"), "size": 12, **said}, decimals(precision, scale)
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
        return {"type": "enum", "name": names.new("E"), "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 9))
        return {"type": "fixed", "name": names.new("F"), "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "null":
        inner, values = draw(typed(names, levels - 1 if levels else 0).filter(lambda one: not isinstance(one[0], list)))
        return (["null", inner] if draw(st.booleans()) else [inner, "null"]), st.none() | values
    if kind == "record":
        return draw(recorded(names, levels - 1))  # type: ignore[no-any-return]
    inner, values = draw(typed(names, levels - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=5)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)


@st.composite
def recorded(draw: Any, names: Names, levels: int = 3) -> tuple[Any, Any]:
    """A record, and a strategy of its values."""
    fields, values = [], {}
    name = names.new("R")
    for number in range(draw(st.integers(1, 4))):
        kind, some = draw(typed(names, levels))
        fields.append({"name": f"f{number}", "type": kind})
        values[f"f{number}"] = some
    return {"type": "record", "name": f"some.space.{name}", "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def messages(draw: Any, most: int = 6) -> tuple[Any, list[Any]]:
    """A schema, and records of it, some of them null."""
    schema, values = draw(recorded(Names()))
    return schema, draw(st.lists(st.none() | values, max_size=most))


def encoded(schema: Any, record: Any, number: int | None = None) -> bytes:
    """A message as ``fastavro`` writes it; with the id of its schema in front."""
    out = io.BytesIO()
    if number is not None:
        out.write(b"\0" + struct.pack(">I", number))
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return out.getvalue()


def decoded(message: bytes, writer: Any, reader: Any = None) -> Any:
    """The record in a message as ``fastavro`` reads it."""
    parsed = None if reader is None else fastavro.parse_schema(reader)
    stream = io.BytesIO(message)
    out = fastavro.schemaless_reader(stream, fastavro.parse_schema(writer), parsed)
    assert not stream.read(), "there is more than one record"
    return out


def as_column(schema: Any, value: Any) -> Any:
    """What ``to_pylist`` of a column gives of a value of ``fastavro``: maps are lists of pairs, UUIDs their texts."""
    if isinstance(schema, list):
        if value is None:
            return None
        return as_column(next(one for one in schema if one != "null"), value)
    if not isinstance(schema, dict):
        return value
    if schema["type"] == "record":
        return {field["name"]: as_column(field["type"], value[field["name"]]) for field in schema["fields"]}
    if schema["type"] == "array":
        return [as_column(schema["items"], one) for one in value]
    if schema["type"] == "map":
        return sorted((key, as_column(schema["values"], one)) for key, one in value.items())
    return str(value) if schema.get("logicalType") == "uuid" else value


def sorted_maps(schema: Any, value: Any) -> Any:
    """The same of what a column gives."""
    if isinstance(schema, list):
        return None if value is None else sorted_maps(next(one for one in schema if one != "null"), value)
    if not isinstance(schema, dict) or value is None:
        return value
    if schema["type"] == "record":
        return {field["name"]: sorted_maps(field["type"], value[field["name"]]) for field in schema["fields"]}
    if schema["type"] == "array":
        return [sorted_maps(schema["items"], one) for one in value]
    if schema["type"] == "map":
        return sorted(((key, sorted_maps(schema["values"], one)) for key, one in value), key=lambda pair: pair[0])
    return value


def parsing(schema: Any, *, writer: Any = None, registry: Any = None, subject: Any = None, version: Any = "latest") -> ParseAvroColumn:
    """The step."""
    return ParseAvroColumn("value", schema, writer, registry, subject, version, 5.0)


def read(step: ParseAvroColumn, values: Sequence[bytes | None], kind: Any = None) -> list[Any]:
    """What becomes of values in a column of this type, or in rows."""
    rows = [{"at": at, "value": value} for at, value in enumerate(values)]
    batch: Any = rows if kind is None else pa.record_batch({"at": range(len(values)), "value": pa.array(values, kind)})
    made = step.apply(batch)
    made = made if kind is None else made.to_pylist()
    assert [row["at"] for row in made] == list(range(len(values)))
    return [row["value"] for row in made]


def set_aside(values: Sequence[bytes | None], **options: Any) -> tuple[dict[int, Any], dict[int, str]]:
    """What is read, and what is said of the values that are set aside, by their places."""
    flow = rd.Dataflow("aside")
    table = pa.table({"at": range(len(values)), "value": pa.array(values, pa.binary())})
    stream = flow.from_arrow(table).parse_avro("value", on_error="skip", **options)
    stream.collect("good")
    stream.errors.collect("bad")
    result = flow.run(runtime="local")
    return {row["at"]: row["value"] for _, row in result["good"]}, {row["record"]["at"]: row["error"] for _, row in result["bad"]}
