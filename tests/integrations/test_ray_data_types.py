"""Ray Data measures its blocks: columns whose size pyarrow cannot measure are converted to types of the same values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rayad.integrations import ray_data
from tests.every_type.arrays import COLUMNS

NESTED = pa.array([[{"a": "x"}], None]).cast(pa.list_(pa.struct([("a", pa.string_view())])))
VIEWS = {
    "string_view": (COLUMNS["string_view"], pa.large_string()),
    "binary_view": (COLUMNS["binary_view"], pa.large_binary()),
    "list_view": (COLUMNS["list_view"], pa.list_(pa.int64())),
    "large_list_view": (COLUMNS["large_list_view"].slice(1), pa.large_list(pa.int64())),
    "nested": (NESTED, pa.list_(pa.struct([("a", pa.large_string())]))),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_that_cannot_be_measured_become_columns_with_the_same_values(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(ray_data, "_is_measured", lambda column: False)
    array, expected = VIEWS[kind]
    table = pa.table({"n": range(len(array)), "x": array})
    found = ray_data.measurable(table)
    assert found.schema == pa.schema([("n", pa.int64()), ("x", expected)])
    assert found.to_pylist() == table.to_pylist()
    assert found.nbytes > 0


def test_every_type_can_be_measured_with_its_values() -> None:
    for kind, column in COLUMNS.items():
        table = pa.table({"x": column})
        found = ray_data.measurable(table)
        assert found.nbytes >= 0, kind
        assert found.schema == table.schema or found.to_pylist() == table.to_pylist(), kind
