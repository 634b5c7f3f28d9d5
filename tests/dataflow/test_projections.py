"""Projections and filters by expressions: rows give what columns give, and plain Python gives both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.records.expressions import Expressions
from tests.every_type.arrays import COLUMNS, ROWS
from tests.every_type.exact import form
from tests.thorough import examples

Record = dict[str, Any]
Build = Callable[[rd.Stream], rd.Stream]
MOMENTS = st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2050, 1, 1))
FIELDS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "i": (st.integers(-(2**31), 2**31), pa.int64()),
    "j": (st.integers(-9, 9), pa.int64()),
    "f": (st.floats(-1e9, 1e9), pa.float64()),
    "s": (st.text("aBß ", max_size=3), pa.string()),
    "y": (st.binary(max_size=2), pa.binary()),
    "b": (st.booleans(), pa.bool_()),
    "d": (st.dates(dt.date(1960, 1, 1), dt.date(2050, 1, 1)), pa.date32()),
    "m": (MOMENTS, pa.timestamp("us")),
    "u": (MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)), pa.timestamp("us", "UTC")),
    "h": (st.times(), pa.time64("us")),
    "p": (st.timedeltas(dt.timedelta(-9), dt.timedelta(9)), pa.duration("us")),
    "c": (st.decimals(-99, 99, places=2), pa.decimal128(6, 2)),
    "l": (st.lists(st.integers(0, 3), min_size=1, max_size=2), pa.list_(pa.int64())),
    "r": (st.fixed_dictionaries({"n": st.integers(0, 3)}), pa.struct([("n", pa.int64())])),
}
SCHEMA = pa.schema([(name, kind) for name, (_, kind) in FIELDS.items()])
RECORDS = st.fixed_dictionaries({name: st.none() | values for name, (values, _) in FIELDS.items()})


def of_known(function: Callable[..., Any], *names: str) -> Callable[[Record], Any]:
    """A function of fields, null where one is null."""
    return lambda record: None if any(record[name] is None for name in names) else function(*(record[name] for name in names))


def either(left: Any, right: Any) -> Any:
    """Kleene's ``or``."""
    return True if True in (left, right) else None if None in (left, right) else False


EXPRESSIONS: dict[str, tuple[pc.Expression, Callable[[Record], Any]]] = {
    "sum": (pc.field("i") + pc.field("j"), of_known(lambda i, j: i + j, "i", "j")),
    "product": (pc.field("i") * pc.field("j"), of_known(lambda i, j: i * j, "i", "j")),
    "half": (pc.field("f") / 2, of_known(lambda f: f / 2, "f")),
    "whole half": (pc.field("i") / 2, of_known(lambda i: abs(i) // 2 * (1 if i >= 0 else -1), "i")),
    "mixed": (pc.field("j") + pc.field("f"), of_known(lambda j, f: j + f, "j", "f")),
    "upper": (pc.ascii_upper(pc.field("s")), of_known(lambda s: "".join(c.upper() if c.isascii() else c for c in s), "s")),
    "length": (pc.binary_length(pc.field("y")), of_known(len, "y")),
    "not": (~pc.field("b"), of_known(lambda b: not b, "b")),
    "or": (pc.field("b") | (pc.field("j") > 0), lambda r: either(r["b"], None if r["j"] is None else r["j"] > 0)),
    "is null": (pc.field("d").is_null(), lambda r: r["d"] is None),
    "year": (pc.year(pc.field("d")), of_known(lambda d: d.year, "d")),
    "hour": (pc.hour(pc.field("u")), of_known(lambda u: u.hour, "u")),
    "later": (pc.field("m") + pc.field("p"), of_known(lambda m, p: m + p, "m", "p")),
    "minute": (pc.minute(pc.field("h")), of_known(lambda h: h.minute, "h")),
    "cents": (pc.field("c") + Decimal("0.01"), of_known(lambda c: c + Decimal("0.01"), "c")),
    "first": (pc.list_element(pc.field("l"), 0), of_known(lambda some: some[0], "l")),
    "inner": (pc.field("r", "n"), of_known(lambda r: r["n"], "r")),
    "or 0": (pc.coalesce(pc.field("j"), pc.scalar(0)), lambda r: 0 if r["j"] is None else r["j"]),
    "sign": (pc.if_else(pc.field("j") < 0, "-", "+"), of_known(lambda j: "-" if j < 0 else "+", "j")),
    "text": (pc.field("i").cast(pa.string()), of_known(str, "i")),
    "seven": (pc.scalar(7), lambda r: 7),
}
CONDITIONS = ("not", "or", "is null")
READS = {
    "sum": "ij", "product": "ij", "half": "f", "whole half": "i", "mixed": "jf", "upper": "s", "length": "y", "not": "b", "or": "bj",
    "is null": "d", "year": "d", "hour": "u", "later": "mp", "minute": "h", "cents": "c", "first": "l", "inner": "r", "or 0": "j",
    "sign": "j", "text": "i", "seven": "",
}  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[str], Build, Callable[[list[Record]], list[Record]]]:
    """A few steps, each as the operator and as a function of a list of dicts; and what they are called."""
    names, told = list(FIELDS), []
    built: list[Build] = []
    models: list[Callable[[list[Record]], list[Record]]] = []
    for number in range(draw(st.integers(1, 4))):
        usable = [name for name, read in READS.items() if set(read) <= set(names)]
        step = draw(st.sampled_from(["select", "with_columns", "rename", "drop", "filter"]))
        if step == "filter":
            condition = draw(st.sampled_from([name for name in usable if name in CONDITIONS] or ["seven"]))
            expression, function = EXPRESSIONS[condition]
            if condition == "seven":
                expression, function = expression == 7, lambda r: True
            built.append(lambda s, e=expression: s.filter(e))
            models.append(lambda rows, f=function: [row for row in rows if f(row)])
        elif step == "rename":
            free = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
            renamed = {name: f"{name}{number}" for name in free}
            built.append(lambda s, n=renamed: s.rename(n))
            models.append(lambda rows, n=renamed: [{n.get(name, name): value for name, value in row.items()} for row in rows])
            names = [renamed.get(name, name) for name in names]
        elif step == "drop" and len(names) > 1:
            gone = draw(st.lists(st.sampled_from(names), min_size=1, max_size=min(3, len(names) - 1), unique=True))
            built.append(lambda s, g=gone: s.drop(*g))
            models.append(lambda rows, g=gone: [{name: value for name, value in row.items() if name not in g} for row in rows])
            names = [name for name in names if name not in gone]
        else:
            chosen = draw(st.lists(st.sampled_from(usable), min_size=1, max_size=3, unique=True))
            made = {f"{name} {number}" if draw(st.booleans()) else draw(st.sampled_from(names)): name for name in chosen}
            expressions = {name: EXPRESSIONS[of][0] for name, of in made.items()}
            functions: Mapping[str, Any] = {name: EXPRESSIONS[of][1] for name, of in made.items()}
            if step == "select":
                kept = [name for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if name not in made]
                built.append(lambda s, k=kept, e=expressions: s.select(*k, e))
                models.append(lambda rows, k=kept, f=functions: [{**{n: r[n] for n in k}, **{n: f[n](r) for n in f}} for r in rows])
                names = kept
            else:
                built.append(lambda s, e=expressions: s.with_columns(e))
                models.append(lambda rows, f=functions: [{**r, **{n: f[n](r) for n in f}} for r in rows])
            # A field that is another one now is not read any more: the expressions above expect its own values.
            names = [*(name for name in names if name not in made), *(name for name in made if name not in FIELDS)]
        told.append(step)
        if not names:
            break

    def build(stream: rd.Stream) -> rd.Stream:
        for step in built:
            stream = step(stream)
        return stream

    def model(rows: list[Record]) -> list[Record]:
        for step in models:
            rows = step(rows)
        return rows

    return told, build, model


def run(source: Any, build: Build, *, batch_rows: int = 2, parallelism: int = 1, columnar: bool = False) -> Any:
    flow = rd.Dataflow()
    build(flow.from_epochs([source], batch_rows=batch_rows)).collect("out", columnar=columnar)
    result = flow.run(runtime="local", parallelism=parallelism)["out"]
    return result if columnar else [record for _, record in result]


def forms(records: list[Any]) -> list[Any]:
    return [form(record) for record in records]


@examples(each_run=24, soak=400)
@given(program=programs(), records=st.lists(RECORDS, max_size=5), batch_rows=st.integers(1, 5))
def test_rows_and_columns_give_what_plain_python_gives(program: Any, records: list[Record], batch_rows: int) -> None:
    told, build, model = program
    expected = forms(model(records))
    batch = pa.RecordBatch.from_pylist(records, schema=SCHEMA)
    assert forms(run(batch, build, batch_rows=batch_rows)) == expected, told
    assert forms(run(records, build, batch_rows=batch_rows)) == expected, told


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("name", ["is_null", "chosen", "equal"])
def test_expressions_over_each_type_give_the_same_in_rows_and_columns_or_are_refused(kind: str, name: str) -> None:
    x, v = pc.field("x"), pc.field("v")
    expression = {"is_null": x.is_null(), "chosen": pc.if_else(v > 5, x, x), "equal": x == x}[name]
    batch = pa.record_batch({"v": pa.array(range(ROWS)), "x": COLUMNS[kind]})
    found = []
    for source in (batch, batch.to_pylist()):
        try:
            found.append(forms(run(source, lambda s: s.select("v", {"e": expression}))))
        except rd.DataflowError:
            found.append([])
    if all(found):
        assert found[0] == found[1]
    if kind in PLAIN_TYPES:
        assert all(found)


PLAIN_TYPES = {
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string", "large_string",
    "binary", "large_binary", "date32", "timestamp[s]", "timestamp[ms]", "timestamp[us]", "timestamp[us, UTC]", "duration[us]",
    "decimal128(38, 9)",
}  # fmt: skip
"""Of these no expression of the test above is refused."""


def test_what_comes_as_columns_leaves_as_columns_of_their_types() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2], pa.int8()), "b": pa.array(["x", None], pa.large_string()), "c": [0.5, None]})

    def build(stream: rd.Stream) -> rd.Stream:
        return stream.with_columns({"n": pc.field("a") + pc.field("a")}).drop("c").rename({"b": "t"})

    out = run(batch, build, columnar=True)
    assert out.schema == pa.schema([("a", pa.int8()), ("t", pa.large_string()), ("n", pa.int8())])
    assert out.to_pydict() == {"a": [1, 2], "t": ["x", None], "n": [2, 4]}


def test_a_records_result_does_not_depend_on_the_records_beside_it() -> None:
    halves = {"half": pc.field("n") / 2}
    records = [{"n": 5}, {"n": 1.5}, {"n": None}, {"n": 2**62}, {"n": 7, "more": object}]
    for batch_rows in range(1, 6):
        out = run(records, lambda s: s.with_columns(halves).drop("n"), batch_rows=batch_rows)
        assert [form(record["half"]) for record in out] == forms([2, 0.75, None, 2**61, 3]), batch_rows
        assert out[4]["more"] is object


def test_a_large_batch_keeps_its_order() -> None:
    numbers = pa.record_batch({"n": pa.array(range(200_000))})
    out = run(numbers, lambda s: s.filter(pc.field("n") >= 7).select({"m": pc.field("n") * 2}), batch_rows=1 << 20)
    assert [record["m"] for record in out] == list(range(14, 400_000, 2))


def test_a_filter_keeps_the_event_time_and_the_records_themselves() -> None:
    kept = [{"t": 1, "o": object}]
    assert run(kept, lambda s: s.filter(pc.field("t") > 0))[0] is kept[0]
    timed = run([{"t": 1}, {"t": 12}], lambda s: s.assign_timestamps("t").filter(pc.field("t") > 5).window(rd.windows.tumbling(10)).count())
    assert timed == [(rd.Window(10, 20), 1)]


REFUSED: dict[str, tuple[Build, str]] = {
    "a missing name": (lambda s: s.select("prise"), "select: there is no column 'prise' among ['price', 'name']: did you mean 'price'?"),
    "a missing name to drop": (lambda s: s.drop("x"), "drop: there is no column 'x' among ['price', 'name']"),
    "a missing name to rename": (lambda s: s.rename({"x": "y"}), "rename: there is no column 'x' among ['price', 'name']"),
    "a missing name in an expression": (
        lambda s: s.with_columns({"n": pc.field("nam")}),
        "with_columns: there is no column 'nam' among ['price', 'name']: did you mean 'name'?",
    ),
    "a missing name in a filter": (lambda s: s.filter(pc.field("x") > 1), "filter: there is no column 'x' among ['price', 'name']"),
    "a name that is taken": (
        lambda s: s.rename({"price": "name"}),
        "rename would give two columns 'name' of ['price', 'name']: names must differ; drop one of them first",
    ),
    "nothing left": (
        lambda s: s.drop("price", "name"),
        "drop leaves none of the columns ['price', 'name']: keep one, or use map for records without fields",
    ),
    "a division by zero": (
        lambda s: s.select({"n": pc.field("price") / 0, "m": pc.field("price") + 1}),
        "select: the expression divide_checked(price, 0) failed on columns {price: int64}: divide by zero",
    ),
    "64 bits": (
        lambda s: s.select({"n": pc.field("price") + (2**63 - 1)}),
        "select: the expression add_checked(price, 9223372036854775807) failed on columns {price: int64}: overflow",
    ),
    "a kernel of another type": (
        lambda s: s.filter(pc.ascii_is_upper(pc.field("price"))),
        "filter: the expression ascii_is_upper(price) failed on columns {price: int64}: Function 'ascii_is_upper' has no kernel matching "
        "input types (int64)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("columns", [False, True])
def test_what_cannot_be_is_refused_in_the_job(case: str, columns: bool) -> None:
    build, message = REFUSED[case]
    records = [{"price": 3, "name": "a"}]
    with pytest.raises(rd.DataflowError) as caught:
        run(pa.RecordBatch.from_pylist(records) if columns else records, build)
    assert str(caught.value).endswith(message)
    assert "(test_projections.py:" in str(caught.value)


@pytest.mark.parametrize("columns", [False, True])
def test_records_whose_values_are_refused_can_be_set_aside(columns: bool) -> None:
    records = [{"n": 6, "by": 2}, {"n": 5, "by": 0}, {"n": None, "by": 0}, {"n": -(2**63), "by": -1}, {"n": 9, "by": 3}]
    ratio = pc.field("n") / pc.field("by")
    for build, good in (
        (lambda s: s.select({"r": ratio}, on_error="skip"), [{"r": 3}, {"r": 3}]),
        (lambda s: s.with_columns({"by": ratio}, on_error="skip"), [{"n": 6, "by": 3}, {"n": 9, "by": 3}]),
        (lambda s: s.filter(ratio > 2, on_error="skip"), [records[0], records[4]]),
    ):
        flow = rd.Dataflow()
        out = build(flow.from_epochs([pa.RecordBatch.from_pylist(records) if columns else records], batch_rows=2))
        out.collect("good")
        out.errors.collect("bad")
        result = flow.run(runtime="local")
        bad = {bad["record"]["n"]: bad["error"].rpartition(": ")[2] for _, bad in result["bad"]}
        assert bad == {5: "divide by zero", -(2**63): "overflow"}
        assert [record for _, record in result["good"] if record.get("n", 0) is not None and None not in record.values()] == good


def test_conditions_are_true_or_false() -> None:
    for source, got in ((pa.record_batch({"n": [1]}), "int64"), ([{"n": 1}], "2")):
        with pytest.raises(rd.DataflowError) as caught:
            run(source, lambda s: s.filter(pc.field("n") + 1))
        assert str(caught.value).endswith(f"filter was given the expression add_checked(n, 1), which gives {got}: it must be true or false")


def test_records_without_names_are_refused_in_both_forms() -> None:
    for source in ([{"k": 1}], pa.record_batch({"k": [1]})):
        with pytest.raises(
            rd.DataflowError, match=r"select was given .* which in rows are tuples|select was given \(1, 1\): it takes records"
        ):
            run(source, lambda s: s.key_by("k").count().select("k"))
        assert run(source, lambda s: s.key_by("k").count().as_columns("k", "n").select("n")) == [{"n": 1}]


WRONG: dict[str, tuple[Callable[[rd.Stream], Any], str]] = {
    "an aggregation": (
        lambda s: s.select({"n": pc.sum(pc.field("a"))}),
        "select ('n') was given the expression sum(a): sum looks at all values of a column, which is here one batch of many; for totals "
        "use key_by(...) or window(...)",
    ),
    "a position": (
        lambda s: s.filter(pc.field(0) > 1),
        "filter was given the expression (FieldPath(0) > 1), which cannot be sent to replicas: Serialization of non-name field_refs; "
        "columns have names, as in pyarrow.compute.field('n')",
    ),
    "a text": (
        lambda s: s.with_columns({"n": "a"}),
        "with_columns ('n') was given 'a': it takes an expression such as pyarrow.compute.field('n') + 1: a column is "
        "pyarrow.compute.field('a'), a text pyarrow.compute.scalar('a')",
    ),
    "a name twice": (lambda s: s.select("a", {"a": pc.scalar(1)}), "select was given 'a' twice: name each column that is to stay, once"),
    "nothing": (lambda s: s.select(), "select was given no column: name each column that is to stay, once"),
    "an expression without a name": (
        lambda s: s.select(pc.field("a")),
        "select was given <pyarrow.compute.Expression a>: it takes names of columns, and an expression with its name, "
        "{'twice': pyarrow.compute.field('n') * 2}",
    ),
    "no dict": (lambda s: s.rename("a"), "rename was given 'a': it takes a dict of names, {'old': 'new'}"),
    "no names": (lambda s: s.drop(), "drop was given []: it takes names of columns, at least one"),
    "a number as a name": (
        lambda s: s.with_columns({1: pc.scalar(1)}), "with_columns was given 1 as the name of a column: it must be a string"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_whatever_comes_is_refused_when_the_program_is_written(case: str) -> None:
    build, message = WRONG[case]
    stream = rd.Dataflow().from_items([])
    with pytest.raises(rd.DataflowError) as caught:
        build(stream)
    assert str(caught.value) == message
    assert len(stream.flow.graph.nodes) == 1  # a call that is refused adds nothing


def test_a_short_decimal_of_an_int_needs_a_short_column() -> None:
    short = pa.schema({"x": pa.int32()})

    def shortened(records: Any, schema: pa.Schema | None = None) -> list[Any]:
        flow = rd.Dataflow()
        items = flow.from_items(records) if schema is None else flow.from_items(records).map(lambda record: record, schema=schema)
        items.select({"d": pc.field("x").cast(pa.decimal128(10, 0))}).collect("out")
        return [record for _, record in flow.run(runtime="local")["out"]]

    assert shortened([{"x": 7}], short) == [{"d": Decimal(7)}]
    with pytest.raises(rd.DataflowError) as caught:
        shortened([{"x": 7}])
    assert str(caught.value).endswith(
        "failed on columns {x: int64}: Precision is not great enough for the result. It should be at least 19; an int of a record is an "
        "int64, which has up to 19 digits: ask for as many before the point, or say that it is shorter with schema=, as map takes it"
    )


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, "a", True, None],
        [1 << 62, -(1 << 63)],
        ["ß", "a"],
        [b"y"],
        [None, None],
        [dt.date(2000, 1, 1)],
        [[1]],
        [{"n": 1}],
    ],
    ids=str,
)
def test_fields_alone_are_in_rows_what_expressions_give(values: list[Any]) -> None:
    rows = [{"s": {"v": value}, "v": value} for value in values]
    plain = Expressions([pc.field("s", "v"), pc.field("v")], "select")
    arrow = Expressions([pc.field("s", "v"), pc.field("v"), pc.field("v").is_null()], "select")
    assert form(plain.of_rows(rows)) == form(arrow.of_rows(rows)[:2])


def test_fields_alone_are_in_columns_what_expressions_give() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, 2, 3])], names=["v"], mask=pa.array([False, True, False]))
    batch = pa.record_batch({"s": struct, "t": pa.StructArray.from_arrays([struct], names=["s"])})
    plain = Expressions([pc.field("s", "v"), pc.field("t", "s", "v"), pc.field("t")], "select")
    arrow = Expressions([*plain.expressions, pc.field("t").is_null()], "select")
    assert plain.of_columns(batch) == arrow.of_columns(batch)[:3]
    assert plain.of_columns(batch)[0].to_pylist() == [1, None, 3]


@pytest.mark.parametrize("path", [("w",), ("s", "w"), ("v", "w")])
def test_a_field_that_is_missing_is_an_error_that_names_it(path: tuple[str, ...]) -> None:
    plain = Expressions([pc.field(*path)], "select")
    with pytest.raises((rd.DataflowError, pa.ArrowInvalid), match="w"):
        plain.of_rows([{"s": {"v": 1}, "v": 1}])
    with pytest.raises((rd.DataflowError, pa.ArrowInvalid), match="w"):
        plain.of_columns(pa.RecordBatch.from_pylist([{"s": {"v": 1}, "v": 1}]))
