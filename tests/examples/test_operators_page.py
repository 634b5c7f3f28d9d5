"""The page on operators: its examples give the results printed there, and no operator is missing."""

from __future__ import annotations

import doctest
import re

import pytest

import rayad as rd
from tests.checkout import ROOT

PAGE = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")


def test_each_example_gives_the_result_in_its_comment() -> None:
    """In one process and one namespace, as a reader would type them."""
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "docs/operators.md", "docs/operators.md", 0)
    assert len(test.examples) > 40
    told: list[str] = []
    failed = doctest.DocTestRunner(verbose=False).run(test, out=told.append).failed
    assert not failed, "".join(told)


INSIDE = {"flow", "name", "scope", "through", "tried", "materialised", "each_epoch", "reading", "require_records", "value_of",
          "require_columns", "require_order", "require_no_ttl", "in_order"}  # fmt: skip
"""For operators, not for users' programs."""


@pytest.mark.parametrize("stream", [rd.Stream, rd.KeyedStream, rd.WindowedStream])
def test_each_operator_is_on_the_page(stream: type) -> None:
    names = {name for name in vars(stream) if not name.startswith("_")} - INSIDE
    missing = sorted(name for name in names if not re.search(rf"`{name}\b", PAGE))
    assert not missing, f"{stream.__name__}: {missing}"
