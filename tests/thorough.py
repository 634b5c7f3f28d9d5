"""How much of a thing that repeats itself is tried: some of it in ``make test``, all of it in ``make soak``.

For tests whose seconds are many and whose examples go the same way: fewer of them in each run, none of them given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
IN_SOAK = os.environ.get("HYPOTHESIS_PROFILE", "ci") != "ci"  # also with deep and explore: whoever asks for more gets all


def amount(each_run: T, soak: T) -> T:
    """How many, or which. ``make soak`` runs the tests of a module that asks for it again, with the second figure."""
    return soak if IN_SOAK else each_run


def mark(items: list[pytest.Item]) -> None:
    """Mark the tests of modules that ask for an :func:`amount` as ``thorough``."""
    for item in items:
        if isinstance(item, pytest.Function) and vars(item.module).get("amount") is amount:
            item.add_marker(pytest.mark.thorough)


def examples(each_run: int, soak: int) -> Callable[[Any], Any]:
    """In the place of ``@settings(max_examples=soak)``."""

    def decorate(test: Any) -> Any:
        return pytest.mark.thorough(settings(max_examples=amount(each_run, soak), deadline=None)(test))

    return decorate
