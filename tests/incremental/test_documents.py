"""The examples of docs/collections.md run and hold what they assert."""

from __future__ import annotations

import re

import pytest

from tests.checkout import ROOT

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "collections.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    exec(compile(EXAMPLES[number], f"docs/collections.md example {number}", "exec"), {"__name__": f"example_{number}"})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4
