"""Results as tables, on a terminal and in a notebook."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.status.laid_out import laid_out

T = dt.datetime(2026, 11, 24, 8)


def ran() -> Any:
    flow = rd.Dataflow()
    words = flow.from_epochs([["to", "be"], ["[b]or[/b]", "<be>", "be"]])
    words.key_by(lambda word: word).count().collect("counts")
    flow.from_arrow(pa.table({"day": [dt.date(2026, 11, 24)], "price": [Decimal("1.50")]})).collect("prices", columnar=True)
    words.filter(lambda word: False).collect("none")
    return flow.run(runtime="local")


def test_a_result_is_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """What looks like markup of a terminal is text."""
    result = ran()
    result.show("counts", rows=4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "counts"
    cells = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in lines if line.startswith("│")]
    assert cells[:2] == [["0", "to", "1"], ["0", "be", "1"]]
    assert sorted(cells[2:]) == [["1", "<be>", "1"], ["1", "[b]or[/b]", "1"]] or ["1", "be", "2"] in cells[2:]
    assert lines[-1].strip() == "4 of 5 records"
    result.show()
    out = capsys.readouterr().out
    assert all(part in out for part in ("counts", "prices", "2026-11-24", "1.50", "none", "epoch"))


def test_a_notebook_shows_each_result_and_no_markup_of_the_data() -> None:
    html = ran()._repr_html_()
    assert "&lt;be&gt;" in html
    assert "<be>" not in html
    assert html.count("<table>") == 3


@pytest.mark.parametrize(
    ("value", "names", "rows"),
    [
        ([(rd.Timestamp(2), {"a": 1}), (rd.Timestamp(2), {"b": None})], ("epoch", "a", "b"), (("2", "1", ""), ("2", "", "None"))),
        ([(rd.Timestamp(2, (1,)), 5)], ("time", "record"), ((str(rd.Timestamp(2, (1,))), "5"),)),
        ([(rd.Timestamp(0), rd.Window(1, 2))], ("epoch", "start", "end"), (("0", "1", "2"),)),
        ([(rd.Timestamp(0), (1, 2)), (rd.Timestamp(0), "x\ny")], ("epoch", "record"), (("0", "(1, 2)"), ("0", "'x\\ny'"))),
        ([(rd.Timestamp(0), (("ann", rd.Window(T, T)), 1.5))], ("epoch", "0", "1"), (("0", f"(ann, [{T}, {T}))", "1.5"),)),
        ([], ("epoch", "record"), ()),
        (None, ("result",), (("None",),)),
        ([1, 2], ("result",), (("[1, 2]",),)),
        (pa.table([[1], [2]], names=["a", "a"]), ("a", "a"), (("1", "2"),)),
    ],
)
def test_fields_and_places_are_columns(value: Any, names: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    found = laid_out(value, 20)
    assert (found.names, found.rows, found.left_out) == (names, rows, "")


def test_a_result_that_is_not_there() -> None:
    with pytest.raises(rd.DataflowError, match="there is no result 'count': the sinks of this dataflow are"):
        ran().show("count")
    with pytest.raises(rd.DataflowError, match="show: rows is 0"):
        ran().show(rows=0)
