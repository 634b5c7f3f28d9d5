"""Every Arrow type x every operator x rows and columns x every source and sink, beside plain Python: exact or refused, nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
from functools import cache

import pyarrow as pa
import pytest

from tests.every_type.__main__ import PAGE
from tests.every_type.arrays import COLUMNS
from tests.every_type.combinations import INEXACT, Tried, tried
from tests.every_type.exact import form
from tests.every_type.table import BEGIN, END, cells, markdown
from tests.thorough import IN_SOAK

ABSENT_TYPES = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}
"""Of Arrow's three interval types pyarrow has only the third."""


ONE_OF_EACH = (
    "null", "time64[ns]", "int8", "string", "sparse_union", "float16", "binary", "date32", "time32[s]", "timestamp[ns]", "duration[s]",
    "month_day_nano_interval", "decimal256(76, 20)", "dictionary of integers", "run_end_encoded", "list_view", "struct", "map",
)  # fmt: skip
"""Of each row of each table on the page one type at least, so of each way in which types differ. ``make soak`` tries all."""
TRIED = tuple(COLUMNS) if IN_SOAK else ONE_OF_EACH


@cache
def found(kind: str) -> list[Tried]:
    """All of one type, once in a process."""
    return tried(kind)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TRIED)
def test_every_combination_is_exact_or_refused(kind: str) -> None:
    assert [f"{one.role}, {one.operator}, {one.how}: {one.problem}" for one in found(kind) if one.problem] == []
    assert len(found(kind)) >= 80


def written() -> str:
    """The tables of the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def test_of_each_row_of_the_page_a_type_is_tried() -> None:
    page = cells(written())
    assert {kind for _, kind in page} == set(COLUMNS)
    rows = {(table, row) for (table, _), row in page.items()}
    assert rows == {(table, row) for (table, kind), row in page.items() if kind in ONE_OF_EACH}


@pytest.mark.timeout(600)  # where it runs alone it tries everything
def test_what_the_page_says_of_these_types_is_what_was_tried() -> None:
    said = {place: row for place, row in cells(written()).items() if place[1] in TRIED}
    assert said == cells(markdown([one for kind in TRIED for one in found(kind)])), "write it again: python -m tests.every_type"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_table_in_the_documents_is_what_was_tried() -> None:
    assert written() == markdown([one for kind in COLUMNS for one in found(kind)]).strip(), "write it again: python -m tests.every_type"


def test_no_arrow_type_is_missing() -> None:
    numbers = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    covered = {column.type.id for column in COLUMNS.values()}
    assert {name for name, number in numbers.items() if number not in covered} == ABSENT_TYPES


def test_values_that_python_cannot_hold_are_known() -> None:
    lossy = set()
    for kind, column in COLUMNS.items():
        if pa.types.is_time64(column.type):
            whole = pa.array(column.to_pylist(), column.type)
            lossy |= set() if whole.equals(column) else {kind}
    assert lossy == INEXACT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, decimal.Decimal(1)),
        (0.1, 0.1 + 2**-56),
        ("a", b"a"),
        (dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)),
        ([1], [True]),
    ],
)
def test_the_comparison_tells_kinds_and_last_digits_apart(one: object, other: object) -> None:
    assert form(one) != form(other)
    assert form([one]) == form((one,))
