"""How often a record is there, by an expression: in columns as in rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd

ROWS = [{"v": 1}, {"v": 1}, {"v": 2}, {"v": None}, {"v": None}, {"v": None}]
EXPRESSIONS: dict[str, tuple[pc.Expression, dict[Any, int]]] = {
    "a number": (rd.col("1") * 10, {1: 20, 2: 10, None: 30}),
    "true or false": (rd.col("1") >= 2, {1: 1, None: 1}),
    "null is never": (rd.col("1") * rd.col("0", "v"), {1: 2, 2: 2}),
}
FORMS = pytest.mark.parametrize("form", ["rows", "columns"])


def _out(expression: pc.Expression, form: str) -> Counter[Any]:
    flow = rd.Dataflow("threshold")
    stream = flow.from_items(ROWS) if form == "rows" else flow.from_arrow(pa.Table.from_pylist(ROWS))
    stream.as_collection().threshold(expression).collect("out")
    out: Counter[Any] = Counter()
    for _, (record, weight) in flow.run(runtime="local", parallelism=2)["out"]:
        out[record["v"]] += weight
    return out


@FORMS
@pytest.mark.parametrize("what", EXPRESSIONS)
def test_each_record_is_there_as_often_as_the_expression_says(what: str, form: str) -> None:
    expression, want = EXPRESSIONS[what]
    assert _out(expression, form) == want


@FORMS
def test_a_fraction_is_refused(form: str) -> None:
    expression = rd.col("1") * 0.5
    said = r"threshold was given the expression multiply_checked\(1, 0.5\), which gives (double|float): it must give a whole number"
    with pytest.raises(rd.DataflowError, match=said):
        _out(expression, form)


def test_of_a_count_that_goes_from_two_to_three_one_change_comes_out() -> None:
    flow = rd.Dataflow("threshold")
    table = pa.table({"epoch": [0, 0, 1], "v": [1, 1, 1]})
    flow.from_arrow(table, epoch="epoch").select("v").as_collection().threshold(rd.col("1")).collect("out")
    out = [(time.epoch, *change) for time, change in flow.run(runtime="local")["out"]]
    assert out == [(0, {"v": 1}, 2), (1, {"v": 1}, 1)]
