"""The examples of docs/sql.md run and hold what they assert; the functions that it names as called for each row are those."""

from __future__ import annotations

import re

import pytest

from rayad.sql.values.functions import FUNCTIONS
from tests.checkout import ROOT

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    exec(compile(EXAMPLES[number], f"docs/sql.md example {number}", "exec"), {"__name__": f"example_{number}"})


def test_what_is_called_for_each_row() -> None:
    told = re.search(r"called for each row: `([^`]*)`", PAGE)
    assert told is not None
    found = {name for name, function in FUNCTIONS.items() if getattr(function, "__qualname__", "").startswith("_each")}
    assert set(told[1].split()) == found | {"strpos"}
    assert len(EXAMPLES) == 2
