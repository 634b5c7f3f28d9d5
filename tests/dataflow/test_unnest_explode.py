"""``unnest`` and ``explode``: rows and columns give what plain Python gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.thorough import examples

SCHEMA = pa.schema(
    [("k", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("l", pa.list_(pa.int64())), ("z", pa.string())]
)
INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1)
STRUCTS = st.fixed_dictionaries({"a": INTEGERS, "b": st.none() | st.text(max_size=3)})
LISTS = st.lists(INTEGERS, max_size=3)
Record = dict[str, Any]


def records(structs: Any = STRUCTS) -> st.SearchStrategy[list[Record]]:
    fields = {"k": INTEGERS, "s": structs, "l": st.none() | LISTS, "z": st.none() | st.text(max_size=2)}
    return st.lists(st.fixed_dictionaries(fields), max_size=6)


def gave(rows: list[Record] | pa.Table, build: Callable[[rd.Stream], rd.Stream], batch_rows: int = 4096) -> list[Record]:
    flow = rd.Dataflow("fields")
    source = flow.from_arrow(rows, batch_rows=batch_rows) if isinstance(rows, pa.Table) else flow.from_items(rows, batch_rows=batch_rows)
    build(source).collect("out")
    return [record for _, record in flow.run(runtime="local")["out"]]


def exploded(rows: list[Record], *, outer: bool) -> list[Record]:
    return [{**row, "l": item} for row in rows for item in (row["l"] or ([None] if outer else []))]


def unnested(rows: list[Record]) -> list[Record]:
    return [{"k": row["k"], **(row["s"] or {"a": None, "b": None}), "l": row["l"], "z": row["z"]} for row in rows]


@examples(each_run=24, soak=600)
@given(rows=records(), outer=st.booleans(), batch_rows=st.integers(1, 6))
def test_explode_gives_a_record_for_each_item(rows: list[Record], outer: bool, batch_rows: int) -> None:
    for given_rows in (rows, pa.Table.from_pylist(rows, schema=SCHEMA)):
        assert gave(given_rows, lambda stream: stream.explode("l", outer=outer), batch_rows) == exploded(rows, outer=outer)


@examples(each_run=24, soak=600)
@given(rows=records(st.none() | STRUCTS), batch_rows=st.integers(1, 6))
def test_unnest_puts_fields_in_the_place_of_the_struct(rows: list[Record], batch_rows: int) -> None:
    found = gave(pa.Table.from_pylist(rows, schema=SCHEMA), lambda stream: stream.unnest("s"), batch_rows)
    assert found == unnested(rows)
    assert all(list(record) == ["k", "a", "b", "l", "z"] for record in found)
    whole = [row for row in rows if row["s"] is not None]
    assert gave(whole, lambda stream: stream.unnest("s"), batch_rows) == unnested(whole)


LIST_TYPES = [
    pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.large_list_view(pa.int64()), pa.list_(pa.int64(), 2),
]  # fmt: skip


@pytest.mark.parametrize("kind", LIST_TYPES, ids=str)
@pytest.mark.parametrize("outer", [False, True])
def test_lists_of_every_kind(kind: pa.DataType, outer: bool) -> None:
    rows = [{"k": 1, "l": [1, None]}, {"k": 2, "l": None}, {"k": 3, "l": [5, 6]}, {"k": 4, "l": None}]
    table = pa.table({"k": [row["k"] for row in rows], "l": pa.array([row["l"] for row in rows], kind)})
    wanted = exploded([{**row} for row in rows], outer=outer)
    assert gave(table, lambda stream: stream.explode("l", outer=outer)) == wanted
    assert gave(table.slice(1), lambda stream: stream.explode("l", outer=outer)) == [row for row in wanted if row["k"] > 1]


def test_lists_of_structs_become_columns() -> None:
    orders = [{"id": 1, "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]}, {"id": 2, "lines": []}]
    wanted = [{"id": 1, "sku": "a", "n": 2}, {"id": 1, "sku": "b", "n": 1}]
    for rows in (orders, pa.Table.from_pylist(orders)):
        assert gave(rows, lambda stream: stream.explode("lines").unnest("lines")) == wanted


def test_the_schema_is_known() -> None:
    stream = rd.Dataflow().from_arrow(SCHEMA.empty_table())
    assert stream.unnest("s").schema.names == ["k", "a", "b", "l", "z"]
    assert stream.explode("l").schema.field("l").type == pa.int64()
    with pytest.raises(rd.DataflowError, match=r"test_unnest_explode.py:\d+: there is no column 'c' among"):
        stream.unnest("s").key_by("c")


ROW = {"k": 1, "s": {"a": 1, "b": "x"}, "l": [1], "z": "z"}
REFUSED = {
    "no such struct": (ROW, lambda s: s.unnest("t"), "unnest: there is no column 't' among"),
    "no struct": (ROW, lambda s: s.unnest("k"), "unnest: column 'k' is (1|int64): it takes columns of structs"),
    "names": ({**ROW, "a": 2}, lambda s: s.unnest("s"), "unnest would give two columns 'a' of"),
    "no such list": (
        ROW,
        lambda s: s.explode("m"),
        "explode: there is no column 'm' among",
    ),
    "no list": (ROW, lambda s: s.explode("z"), "explode: column 'z' is ('z'|string): it takes a column of lists"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("columns", [False, True])
def test_what_cannot_be_is_refused(case: str, columns: bool) -> None:
    row, build, told = REFUSED[case]
    with pytest.raises(rd.DataflowError, match=told):
        gave(pa.Table.from_pylist([row]) if columns else [row], build)


def test_a_null_among_dicts_is_refused_as_nobody_knows_its_fields() -> None:
    with pytest.raises(rd.DataflowError, match="column 's' is None: in rows nobody knows the fields of a null"):
        gave([ROW, {**ROW, "s": None}], lambda stream: stream.unnest("s"))


def test_arguments_are_refused_when_the_program_is_written() -> None:
    stream = rd.Dataflow().from_items([ROW])
    with pytest.raises(rd.DataflowError, match=r"unnest was given .*: it takes names of columns, at least one"):
        stream.unnest()
    with pytest.raises(rd.DataflowError, match="explode was given 3: it takes the name of a column of lists"):
        stream.explode(3)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="explode: outer"):
        stream.explode("l", outer="yes")  # type: ignore[arg-type]
