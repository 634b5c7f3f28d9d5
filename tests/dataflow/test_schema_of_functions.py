"""``schema=`` of operators with a function: columns are known behind it, what does not fit is refused or set aside, and is told exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.in_schema import SchemaMismatch
from rayad.dataflow.operators.stateless import Map
from tests.every_type.arrays import COLUMNS
from tests.every_type.exact import counted
from tests.thorough import examples

SALE = pa.schema({"shop": pa.string(), "price": pa.int64()})
HERE = r"test_schema_of_functions\.py:\d+"
LINES = ["ulm 3", "bonn 5", "ulm 4"]


def parse(line: str) -> dict[str, Any]:
    shop, price = line.split()
    return {"shop": shop, "price": int(price) if price.isdigit() else price}


async def parse_soon(line: str) -> dict[str, Any]:
    return parse(line)


class Parse:
    def __call__(self, batch: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([parse(line) for line in batch])


def lines(texts: list[str] = LINES) -> rd.Stream:
    return rd.Dataflow().from_epochs([texts[:2], texts[2:]])


def records(stream: rd.Stream, **options: Any) -> list[Any]:
    stream.collect("out")
    return [record for _, record in stream.flow.run(runtime="local", **options)["out"]]


OPERATORS: dict[str, Callable[..., rd.Stream]] = {
    "map": lambda s, **options: s.map(parse, schema=SALE, **options),
    "flat_map": lambda s, **options: s.flat_map(lambda line: [parse(line)], schema=SALE, **options),
    "map_async": lambda s, **options: s.map_async(parse_soon, schema=SALE, **options),
    "map_batches": lambda s, **options: s.map_batches(lambda batch: [parse(line) for line in batch], schema=SALE, **options),
    "a class for batches": lambda s, **options: s.map_batches(Parse, schema=SALE, **options),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_columns_are_known_and_leave(operator: str) -> None:
    made = OPERATORS[operator](lines())
    assert made.schema == SALE
    types = made.map_batches(lambda batch: [batch.schema], name="types")
    types.collect("types")
    made.filter(pc.field("price") > 3).key_by("shop").sum("price").as_columns().collect("sums", columnar=True)
    assert f"columns leave {made.name!r}" in made.flow.explain()
    result = made.flow.run(runtime="local")
    assert {schema for _, schema in result["types"]} == {SALE}
    assert sorted(result["sums"].to_pylist(), key=repr) == [{"shop": "bonn", "sum(price)": 5}, {"shop": "ulm", "sum(price)": 4}]


@pytest.mark.parametrize("operator", OPERATORS)
def test_later_steps_are_checked_when_the_program_is_written(operator: str) -> None:
    made = OPERATORS[operator](lines())
    with pytest.raises(rd.DataflowError, match=rf"key_by at {HERE}: there is no column 'shops' among .*: did you mean 'shop'\?"):
        made.key_by("shops")
    with pytest.raises(rd.DataflowError, match=rf"sum at {HERE}: the column 'shop' is string"):
        made.key_by("price").sum("shop")
    with pytest.raises(rd.DataflowError, match=rf"at {HERE}: select: the expression .* failed"):
        made.select({"more": pc.field("shop") + 1})


def test_where_no_schema_is_given_nothing_is_known_and_functions_run_as_they_did() -> None:
    made = lines().map(parse)
    assert made.schema is None
    assert type(made.flow.graph.nodes[made.node].op) is Map
    assert "leave" not in made.flow.explain()
    assert records(made) == [parse(line) for line in LINES]


MISFITS: dict[str, tuple[Any, str]] = {
    "a type": ({"shop": "ulm", "price": "3"}, "column 'price' cannot hold '3', a str, as int64: "),
    "a fraction": ({"shop": "ulm", "price": 3.5}, "column 'price' cannot hold 3.5, a float, as int64: it would become 3"),
    "a bool": ({"shop": "ulm", "price": True}, "column 'price' cannot hold True, a bool, as int64: "),
    "a large number": ({"shop": "ulm", "price": 1 << 63}, "column 'price' cannot hold 9223372036854775808, an int, as int64: "),
    "an unknown field": ({"shop": "ulm", "prize": 3}, r"fields \['prize'\] are not in it"),
    "a long tuple": (("ulm", 3, 4), "the records have 3 values, it has 2 columns"),
    "no fields": (3, "the records have 1 values, it has 2 columns"),
    "None": (None, "the records have 1 values, it has 2 columns"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_a_record_that_does_not_fit_ends_the_job_with_record_field_types_operator_and_line(kind: str) -> None:
    value, why = MISFITS[kind]
    made = rd.Dataflow().from_items([{"shop": "ulm", "price": 1}, value]).map(lambda record: record, schema=SALE, name="parse")
    on_record = f" on record {value!r}" if value is not None else ""
    told = re.escape(f"{on_record}: map gave {value!r}: ")
    says = re.escape("; its schema= says {shop: string, price: int64}: give that, or correct schema=")
    with pytest.raises(rd.DataflowError, match=rf"^'parse'\[0\] \({HERE}\) failed at \(0\){told}{why}.*{says}$"):
        records(made)


@pytest.mark.parametrize("operator", OPERATORS)
def test_records_that_do_not_fit_are_set_aside(operator: str) -> None:
    made = OPERATORS[operator](lines([*LINES, "essen dear", "ulm 1", "torn"]), on_error="skip")
    assert made.schema == SALE
    made.collect("good")
    made.map_batches(lambda batch: [batch.schema], name="types").collect("types")
    made.errors.collect("bad")
    result = made.flow.run(runtime="local")
    assert sorted((record for _, record in result["good"]), key=repr) == sorted(map(parse, [*LINES, "ulm 1"]), key=repr)
    assert {schema for _, schema in result["types"]} == {SALE}
    bad = {one["record"]: one for _, one in result["bad"]}
    assert bad.keys() == {"essen dear", "torn"}
    assert bad["torn"]["error"].startswith("ValueError: ")
    base = "map_batches" if "batches" in operator else operator
    told, one = bad["essen dear"]["error"], "a batch of" if "class" in operator else "{'shop': 'essen', 'price': 'dear'}"
    assert told.startswith(f"SchemaMismatch: {base} gave {one}")
    assert "column 'price'" in told
    assert re.fullmatch(HERE, bad["essen dear"]["line"])
    assert bad["essen dear"]["operator"] == base


def test_more_than_max_errors_end_the_job() -> None:
    made = lines(["a b", "c d", "e 1"]).map(parse, schema=SALE, on_error="skip", max_errors=1)
    with pytest.raises(rd.DataflowError, match=r"'map' .* has set aside 2 records, and max_errors=1; the last: SchemaMismatch: map gave"):
        records(made)


def test_of_a_record_that_gives_several_of_which_one_does_not_fit_there_are_none() -> None:
    def several(n: int) -> list[Any]:
        return [("a", n), ("b", "x" if n == 2 else n)]

    made = rd.Dataflow().from_items([1, 2, 3]).flat_map(several, schema=SALE, on_error="skip")
    made.errors.collect("bad")
    made.collect("good")
    result = made.flow.run(runtime="local")
    assert [record for _, record in result["good"]] == [{"shop": s, "price": n} for n in (1, 3) for s in "ab"]
    assert [one["record"] for _, one in result["bad"]] == [2]


VALUES = st.none() | st.integers(-3, 3) | st.sampled_from([1.0, 1.5, "1", True, 1 << 63, Decimal("2.0")])
FIELDS = st.fixed_dictionaries({}, optional={"shop": st.sampled_from(["a", None]), "price": VALUES})
RECORDS = FIELDS | st.tuples(st.just("a"), VALUES)


@examples(each_run=21, soak=60)
@given(given_records=st.lists(RECORDS, max_size=12), size=st.integers(1, 12))
def test_what_fits_does_not_depend_on_batches(given_records: list[Any], size: int) -> None:
    def run(batches: list[list[Any]]) -> tuple[list[Any], list[Any]]:
        made = rd.Dataflow().from_epochs(batches).map(lambda record: record, schema=SALE, on_error="skip")
        made.collect("good")
        made.errors.collect("bad")
        result = made.flow.run(runtime="local")
        return [record for _, record in result["good"]], [(repr(one["record"]), one["error"]) for _, one in result["bad"]]

    together = run([given_records[at : at + size] for at in range(0, len(given_records), size)])
    assert together == run([[record] for record in given_records])
    assert len(together[0]) + len(together[1]) == len(given_records)


HAVE_NO_ROWS = {"time64[ns]", "sparse_union", "dense_union", "bool8"}
"""Types that Python's values are not made of, or that are not made of Python's values."""


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_of_every_type_leave_as_they_came_or_are_refused(kind: str) -> None:
    table = pa.table({"i": range(len(COLUMNS[kind])), "v": COLUMNS[kind]})
    ways: dict[str, Callable[[rd.Stream], rd.Stream]] = {
        "rows": lambda s: s.map(lambda row: row, schema=table.schema),
        "columns": lambda s: s.map_batches(lambda batch: batch, schema=table.schema),
    }
    for way, build in ways.items():
        flow = rd.Dataflow()
        build(flow.from_arrow(table)).collect("out", columnar=True)
        if way == "rows" and kind in HAVE_NO_ROWS:
            with pytest.raises(rd.DataflowError, match=r"column 'v' (cannot hold|of type)"):
                flow.run(runtime="local")
            continue
        found = flow.run(runtime="local")["out"]
        assert found.schema == table.schema
        assert counted(plain(found)) == counted(plain(table))


def plain(table: pa.Table) -> list[Any]:
    """Its values, of times of nanoseconds as numbers."""
    column = table.column("v")
    return (column.cast(pa.int64()) if column.type == pa.time64("ns") else column).to_pylist()  # type: ignore[no-any-return]


def test_a_batch_of_which_nothing_comes_gives_nothing_also_of_types_without_empty_columns() -> None:
    table = pa.table({"v": COLUMNS["sparse_union"]})
    assert records(rd.Dataflow().from_arrow(table).flat_map(lambda row: [], schema=table.schema)) == []
    assert records(rd.Dataflow().from_items([1]).map(lambda n: "x", schema=SALE, on_error="skip")) == []


def batches_of(columns: dict[str, Any], **options: Any) -> list[Any]:
    return records(rd.Dataflow().from_items([1]).map_batches(lambda batch: pa.table(columns), schema=SALE, **options))


def test_columns_have_their_places_by_name_and_are_cast_where_no_value_changes() -> None:
    assert batches_of({"price": pa.array([3], pa.int8()), "shop": ["a"]}) == [{"shop": "a", "price": 3}]
    assert batches_of({"price": [3.0], "shop": pa.array(["a"], pa.large_string())}) == [{"shop": "a", "price": 3}]
    assert batches_of({"price": pa.nulls(1)}) == [{"shop": None, "price": None}]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"shop": ["a"], "price": ["3"]}, "column 'price' is string and not int64"),
        ({"shop": ["a"], "price": [3.5]}, "column 'price' of type double cannot become int64: "),
        ({"shop": ["a"], "price": [True]}, "column 'price' is bool and not int64"),
        ({"shop": ["a"], "prize": [3]}, r"fields \['prize'\] are not in it"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaMismatch, match=rf"^'map_batches'\[0\] \({HERE}\) failed at \(0\): map_batches gave a batch of .*: {why}"):
        batches_of(columns)


def test_a_column_without_nulls_has_none() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    made = rd.Dataflow().from_items([1, None]).map(lambda n: n, schema=schema, on_error="skip")
    made.errors.map(lambda bad: bad["error"]).collect("bad")
    assert records(made) == [{"n": 1}]
    with pytest.raises(SchemaMismatch, match="column 'n' holds 1 nulls, and the schema says that it has none"):
        records(rd.Dataflow().from_items([1]).map_batches(lambda batch: pa.table({"n": pa.nulls(1, pa.int64())}), schema=schema))


@pytest.mark.parametrize("bad", [{"a": int}, pa.schema([]), SALE.names, pa.schema([("a", pa.int8()), ("a", pa.int8())])])
@pytest.mark.parametrize("operator", ["map", "flat_map", "map_batches", "map_async"])
def test_what_is_no_schema_is_refused_at_the_users_line(operator: str, bad: Any) -> None:
    stream = lines()
    nodes = len(stream.flow.graph.nodes)
    with pytest.raises(rd.DataflowError, match=rf"{operator}\(schema=...\) at {HERE} "):
        getattr(stream, operator)(parse_soon if operator == "map_async" else parse, schema=bad)
    assert len(stream.flow.graph.nodes) == nodes


def test_behind_it_rows_and_columns_give_the_same_after_a_restore_and_a_change_of_layout(tmp_path: Any) -> None:
    epochs = [[f"{shop} {at}" for shop in "abcdefgh"] for at in range(6)]

    def sums(schema: pa.Schema | None) -> rd.Stream:
        made = rd.Dataflow("sums").from_epochs(epochs).map(parse, schema=schema, name="parse")
        return made.key_by("shop").sum("price", name="sums")

    wanted = sorted(records(sums(None)), key=repr)
    assert sorted(records(sums(SALE), parallelism=3), key=repr) == wanted
    for steps in (10, 30, 50):
        run = rd.RunConfig(storage_path=str(tmp_path / str(steps)))
        out = sums(SALE)
        out.collect("out")
        job = out.flow.submit(run, runtime="local", parallelism=2)
        for _ in range(steps):
            job.step()
        job.rescale("sums", 3)
        job.savepoint()
        job.cancel()
        again = sums(SALE)
        again.collect("out")
        result = again.flow.run(run, runtime="local", resume="latest", parallelism=3)
        assert sorted((record for _, record in result["out"]), key=repr) == wanted
