"""Schemas of Avro as values: parsed by ``fastavro``, which knows the rules of names, and made a tree whose names are resolved.

Source: Apache Avro 1.12, "Schema Declaration".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayad.progress import ConfigError, DataflowError, say, show

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")


@dataclass(eq=False, slots=True)
class AvroType:
    """One type of a schema. ``inner`` are the branches of a union, the items of an array, the values of a map.

    A record that contains itself is in the ``fields`` of its own tree.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    inner: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()

    @property
    def short_name(self) -> str:
        """Its name without the namespace."""
        return self.name.rpartition(".")[2]

    def told(self) -> str:
        """How errors name it."""
        if self.kind == "union":
            return f"a union of {', '.join(one.told() for one in self.inner)}"
        named = f" {self.name!r}" if self.name else ""
        return f"{self.kind}{named}{f' ({self.logical})' if self.logical else ''}"


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record. ``default``: as JSON; ``has_default`` says whether there is one."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = field(default=None)


def library(where: str) -> Any:
    """The package ``fastavro``. Raises ConfigError where it is not installed."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise ConfigError(f"{where} needs the package fastavro: pip install 'rayad[avro]' ({error})") from error
    return fastavro


def parsed(schema: Any, where: str, references: Sequence[Any] = ()) -> AvroType:
    """The tree of a schema, given as JSON text or as what ``json.loads`` makes of it. Raises DataflowError for what is no schema.

    ``references``: schemas whose names it uses.

    >>> parsed('{"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}', "example").told()
    "record 'shop.Order'"
    """
    fastavro = library(where)
    names: dict[str, Any] = {}
    try:
        for one in (*references, schema):
            made = fastavro.parse_schema(_plain(one), named_schemas=names)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError, TypeError, KeyError) as error:
        raise DataflowError(f"{where}: {show(schema, 200)} is no schema of Avro: {type(error).__name__}: {say(error)}") from error
    return _Making(names).of(made)


def _plain(schema: Any) -> Any:
    if not isinstance(schema, str) or schema in PRIMITIVE:
        return schema
    return json.loads(schema)


class _Making:
    """Makes trees of what ``fastavro`` has parsed: dicts with full names, and names alone where they are used again."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._made: dict[str, AvroType] = {}

    def of(self, node: Any) -> AvroType:
        if isinstance(node, str):
            if node in PRIMITIVE:
                return AvroType(node)
            return self._made[node] if node in self._made else self.of(self._names[node])
        if isinstance(node, list):
            return AvroType("union", inner=tuple(map(self.of, node)))
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self.of(kind)
        kind = "record" if kind == "error" else kind
        if kind not in PRIMITIVE and kind not in (*NAMED, "array", "map"):
            return self.of(kind)
        out = AvroType(kind, logical=_logical(node))
        if out.logical == "decimal":
            out.precision, out.scale = int(node.get("precision", 0)), int(node.get("scale", 0))
        if kind in NAMED:
            self._fill(out, node)
        elif kind == "array":
            out.inner = (self.of(node["items"]),)
        elif kind == "map":
            out.inner = (self.of(node["values"]),)
        return out

    def _fill(self, out: AvroType, node: Mapping[str, Any]) -> None:
        out.name, out.aliases = node["name"], tuple(node.get("aliases", ()))
        self._made[out.name] = out  # a field may be of it
        if out.kind == "fixed":
            out.size = int(node["size"])
        elif out.kind == "enum":
            out.symbols, out.default = tuple(node["symbols"]), node.get("default")
        else:
            out.fields = tuple(
                AvroField(one["name"], self.of(one["type"]), tuple(one.get("aliases", ())), "default" in one, one.get("default"))
                for one in node["fields"]
            )


DEBEZIUM_LOGICAL = {
    ("int", "io.debezium.time.Date"): "date",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "local-timestamp-nanos",
}
"""Numbers that Debezium marks by ``connect.name`` alone. Its times of day are not here: MySQL has such of more than a day."""
KNOWN_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{f"{local}timestamp-{unit}": ("long",) for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}
"""Logical types that are columns of their own, and of which types they are; all others are read as the types that they stand on."""


def _logical(node: Mapping[str, Any]) -> str:
    kind, said = node["type"], node.get("logicalType")
    if isinstance(said, str) and kind in KNOWN_LOGICAL.get(said, ()):
        return said
    return DEBEZIUM_LOGICAL.get((kind, str(node.get("connect.name"))), "")


__all__ = ["NAMED", "PRIMITIVE", "AvroField", "AvroType", "library", "parsed"]
