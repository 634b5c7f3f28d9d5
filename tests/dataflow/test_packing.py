"""Two columns grouped as one number give what Arrow's group-by gives of the two."""

import numpy as np
import pyarrow as pa
import pytest

from rayad.dataflow.operators.keys.group_functions import COUNT_ROWS, SUM
from rayad.dataflow.operators.keys.keyed import group
from rayad.dataflow.operators.keys.packing import packed_group

DAY = 86_400_000_000


def table(keys: int, starts: np.ndarray, rows: int = 5000) -> pa.Table:
    draw = np.random.default_rng(keys)
    at = pa.array(draw.choice(starts, rows)).cast(pa.timestamp("us"))
    return pa.table({"key": draw.integers(-3, keys - 3, rows), "at": at, "n": draw.integers(-9, 9, rows)})


@pytest.mark.parametrize(
    ("starts", "is_packed"),
    [
        (np.arange(0, 40) * 2_000_000 + 20_000 * DAY, True),  # of windows: a step of two seconds
        (np.array([20_000 * DAY, 20_001 * DAY]), True),
        (np.array([-DAY]), True),
        (np.arange(0, 40) * 2_000_000 + np.arange(0, 40) % 7, False),  # nearly so
        (np.append(np.arange(0, 4000) * 2_000_000, 1), False),  # one moment in four thousand is between
    ],
    ids=["windows", "two days", "one moment", "no step", "one between"],
)
def test_columns_with_a_step_are_places(starts: np.ndarray, is_packed: bool) -> None:
    given = table(50, starts)
    found = packed_group(given, ["key", "at"], [("n", SUM), (None, COUNT_ROWS)])
    assert (found is not None) == is_packed
    if found is not None:
        wanted = group(given, ["key", "at"], [("n", SUM), (None, COUNT_ROWS)], ["sum", "rows"])
        assert [column.type for column in found] == [column.type for column in wanted.columns]
        assert sorted(zip(*(column.to_pylist() for column in found), strict=True)) == sorted(
            zip(*(column.to_pylist() for column in wanted.columns), strict=True)
        )


@pytest.mark.parametrize("keys", [["key", "at"], ["other", "key", "at"], ["at", "key"]])
@pytest.mark.parametrize(("spread", "is_packed"), [(10, True), (100, True), (20_000, False)])
def test_each_moment_has_a_range_of_keys_of_its_own(keys: list[str], spread: int, is_packed: bool) -> None:
    """As ids of what is there at the time; together they are far apart."""
    draw = np.random.default_rng(spread)
    row = draw.integers(0, 60, 6000)
    at = pa.array(row * 2_000_000 + 20_000 * DAY).cast(pa.timestamp("us"))
    key = pa.array(row * 10_000 - 5_000 + draw.integers(0, spread, 6000), pa.int32())
    given = pa.table({"key": key, "at": at, "other": draw.integers(0, 3, 6000), "n": draw.integers(-9, 9, 6000)})
    found = packed_group(given.select([*keys, "n"]), keys, [("n", SUM), (None, COUNT_ROWS)])
    assert (found is not None) == (is_packed and keys[-1] == "at")
    if found is not None:
        wanted = group(given, keys, [("n", SUM), (None, COUNT_ROWS)], ["sum", "rows"])
        assert [column.type for column in found] == [column.type for column in wanted.columns]
        rows = list(zip(*(column.to_pylist() for column in found), strict=True))
        assert sorted(rows) == sorted(zip(*(column.to_pylist() for column in wanted.columns), strict=True))
        assert [row[len(keys) - 1] for row in rows] == sorted(row[len(keys) - 1] for row in rows)
