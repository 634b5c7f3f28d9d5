"""``parse_json``: what is in a text is in the columns, as Python's own reader has it, and each value is one object or refused."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations.json_column import ParseJsonColumn
from rayad.integrations.lines import ParseJson

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.bool_()),
        ("d", pa.float64()),
        ("e", pa.list_(pa.int32())),
        ("f", pa.struct([("x", pa.string()), ("y", pa.struct([("z", pa.int64())]))])),
    ]
)
VALUES = {
    "a": st.integers(-(2**63), 2**63 - 1),
    "b": st.text(),
    "c": st.booleans(),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "e": st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3),
    "f": st.fixed_dictionaries({"x": st.none() | st.text(max_size=3), "y": st.none() | st.fixed_dictionaries({"z": st.integers(0, 9)})}),
}
OBJECTS = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in VALUES.items()})
MORE = st.dictionaries(st.sampled_from(["more", "z z"]), st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=2)))


def parsed(values: list[Any], kind: pa.DataType | None, schema: pa.Schema = SCHEMA, unexpected: str = "ignore") -> list[Any]:
    """What becomes of values in a column of this type, or in rows."""
    step = ParseJsonColumn("value", schema, unexpected)
    rows = [{"at": at, "value": value} for at, value in enumerate(values)]
    batch: Any = rows if kind is None else pa.record_batch({"at": range(len(values)), "value": pa.array(values, kind)})
    out = step.apply(batch)
    made = out if kind is None else out.to_pylist()
    assert [row["at"] for row in made] == list(range(len(values)))
    return [row["value"] for row in made]


def wanted(value: Any) -> Any:
    """The object of a text, with all fields of the schema and no others."""
    if value is None:
        return None
    found = json.loads(value)
    return {name: found.get(name) for name in SCHEMA.names}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.tuples(OBJECTS, MORE, st.sampled_from([None, 1]), st.booleans()), max_size=6),
    st.sampled_from([None, "str", pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]),
)
def test_values_are_what_python_reads(given: list[Any], kind: Any) -> None:
    texts = [
        None if one is None else json.dumps({**one[0], **one[1]}, indent=one[2], ensure_ascii=one[3]).encode(errors="surrogatepass")
        for one in given
    ]
    if kind == "str" or (isinstance(kind, pa.DataType) and "string" in str(kind)):
        texts = [None if text is None else text.decode() for text in texts]  # type: ignore[misc]
    assert parsed(texts, None if kind == "str" else kind) == [wanted(text) for text in texts]


def test_other_types_are_those_of_read_json() -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("took", pa.duration("ms")),
            ("n", pa.int8()),
        ]
    )
    text = '{"day": "2026-11-30", "at": "2026-11-30 12:00:00.000001Z", "price": "1.50", "took": 1500, "n": -128}'
    value = {
        "day": dt.date(2026, 11, 30),
        "at": dt.datetime(2026, 11, 30, 12, 0, 0, 1, dt.UTC),
        "price": Decimal("1.50"),
        "took": dt.timedelta(seconds=1.5),
        "n": -128,
    }
    for kind in (None, pa.string()):
        assert parsed([text, None], kind, schema) == [value, None]


BAD = [
    "", " ", "null", "1", "[]", '"{}"', "{", "}", '{"a":1', ',"b":"x"}', '{"a":1}{"a":2}', '{"a":1} {}', "{}x", '{"a":1.5}', '{"a":"1"}',
    '{"a":9223372036854775808}', '{"b":1}', '{"b":"}', '{"b":"x\n"}', '{"c":1}', '{"e":[1.5]}', '{"e":{}}', '{"f":{"y":{"z":"1"}}}',
    "{}\n{}", '{"b":"}\n{"}', '{,"b":"1"}', "{}{}{}",
]  # fmt: skip
"""What is no object of the schema."""


@pytest.mark.parametrize("kind", [None, pa.binary()])
@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_does_not_fit_is_shown(bad: str, kind: Any) -> None:
    good = ['{"a": 1}'] * 5
    with pytest.raises(ValueError, match=r"parse_json\('value'\): .* does not fit: ") as told:
        parsed([*good, bad.encode() if kind is not None else bad, *good], kind)
    assert repr(bad)[1:5] in str(told.value)


@pytest.mark.parametrize("kind", [None, pa.string()])
def test_levels_that_have_no_end_end_no_process(kind: Any) -> None:
    assert parsed(['{"more":' + "[" * 500_000 + "]" * 500_000 + ',"a":1}', '{"m":' * 200_000 + "1" + "}" * 200_000], kind)[0]["a"] == 1
    with pytest.raises(ValueError, match="does not fit"):
        parsed(['{"a":' + "[" * 500_000 + "]" * 500_000 + "}"], kind)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x\\xff.* does not fit: Invalid UTF8"):
        parsed([b'{"b": "x"}', b'{"b": "x\xff"}'], pa.binary())


def test_what_does_not_fit_is_set_aside_and_nothing_else_whatever_is_beside_it() -> None:
    """An object that is not closed does not go on in the next value."""
    for seed in range(30):
        chance = random.Random(seed)
        texts = [chance.choice(BAD) if chance.random() < 0.4 else json.dumps({"a": at}) for at in range(12)]
        flow = rd.Dataflow("aside")
        messages = flow.from_arrow(pa.table({"at": range(12), "value": texts})).parse_json("value", SCHEMA, on_error="skip")
        messages.collect("good")
        messages.errors.collect("bad")
        result = flow.run(runtime="local")
        assert {row["at"]: row["value"]["a"] for _, row in result["good"]} == {at: at for at in range(12) if texts[at] not in BAD}
        assert sorted(row["record"]["at"] for _, row in result["bad"]) == [at for at in range(12) if texts[at] in BAD]


def test_so_it_is_with_lines_of_files() -> None:
    step = ParseJson(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    with pytest.raises(ValueError, match="not a JSON object"):
        step.apply(['{"a":1', ',"b":"x"}', '{"a":1}{"a":2}'])


def test_fields_that_are_not_expected_are_an_error_where_that_is_said() -> None:
    for kind in (None, pa.string()):
        assert parsed(['{"a": 1, "more": {}}'], kind)[0]["a"] == 1
        with pytest.raises(ValueError, match="more"):
            parsed(['{"a": 1}', '{"a": 1, "more": {}}'], kind, unexpected="error")


def test_the_columns_behind_it_are_known() -> None:
    flow = rd.Dataflow("known")
    table = pa.table({"at": [1], "value": ['{"a": 1}']})
    stream = flow.from_arrow(table).parse_json("value", pa.schema([("a", pa.int64())]))
    assert stream.schema == pa.schema([("at", pa.int64()), ("value", pa.struct([("a", pa.int64())]))])
    assert stream.unnest("value").schema == pa.schema([("at", pa.int64()), ("a", pa.int64())])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("value", None), "give a pyarrow.Schema"),
        (("value", pa.schema([])), "give a pyarrow.Schema"),
        (("value", pa.schema([("a", pa.binary())])), "JSON does not hold values of binary, the type of the field 'a'"),
        (("value", pa.schema([("a", pa.int64()), ("a", pa.int64())])), "'a'"),
        (("nix", SCHEMA), "there is no column 'nix' among"),
        (("at", SCHEMA), "column 'at' is int64: it takes columns of texts or bytes"),
        (("value", SCHEMA, "drop"), "unexpected"),
    ],
)
def test_what_is_asked_for_is_checked_when_it_is_written(arguments: tuple[Any, ...], says: str) -> None:
    flow = rd.Dataflow("asked")
    column, schema, *more = arguments
    with pytest.raises(rd.DataflowError, match=says):
        flow.from_arrow(pa.table({"at": [1], "value": ["{}"]})).parse_json(column, schema, **({"unexpected": more[0]} if more else {}))


def test_rows_that_have_no_such_text_are_refused() -> None:
    step = ParseJsonColumn("value", SCHEMA, "ignore")
    with pytest.raises(rd.DataflowError, match="field 'value' is 1: it takes texts or bytes"):
        step.apply([{"value": 1}])
    with pytest.raises(rd.DataflowError, match="there is no column 'value'"):
        step.apply([{"valu": "{}"}])
