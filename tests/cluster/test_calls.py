"""Random calls on jobs that several drivers share, while processes are killed: some sequences of ``python -m tests.chaos --service``."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest

from tests.chaos import calls
from tests.thorough import amount

CALLS = amount(3, 6)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_each_call_gives_what_the_model_says(nothing_left: Callable[[], None], seed: int) -> None:
    wrong = calls.run(seed, collections.Counter(), CALLS)
    assert not wrong, wrong
