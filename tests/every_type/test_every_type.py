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
from tests.every_type.table import BEGIN, END, markdown

ABSENT_TYPES = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}
"""Of Arrow's three interval types pyarrow has only the third."""


@cache
def found(kind: str) -> list[Tried]:
    """All of one type, once in a process."""
    return tried(kind)


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_combination_is_exact_or_refused(kind: str) -> None:
    assert [f"{one.role}, {one.operator}, {one.how}: {one.problem}" for one in found(kind) if one.problem] == []
    assert len(found(kind)) >= 80


@pytest.mark.timeout(600)  # where it runs alone it tries everything
def test_the_table_in_the_documents_is_what_was_tried() -> None:
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert written == markdown([one for kind in COLUMNS for one in found(kind)]).strip(), "write it again: python -m tests.every_type"


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
