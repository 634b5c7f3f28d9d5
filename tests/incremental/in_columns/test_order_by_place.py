"""Rows by place and then by other numbers: pairs are put in order by comparing, larger groups by sorting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rayad.incremental.columns.weighted_runs import order_by_place


@given(
    places=st.lists(st.integers(0, 6), min_size=1, max_size=14),
    columns=st.integers(0, 3),
    spread=st.integers(1, 4),
    in_order=st.booleans(),
    chance=st.randoms(use_true_random=False),
)
def test_the_order_is_the_stable_one(places: list[int], columns: int, spread: int, in_order: bool, chance: object) -> None:
    draw = np.random.default_rng(chance.randrange(1 << 30))  # type: ignore[attr-defined]
    place = np.array(sorted(places) if in_order else places, np.uint64)
    then = [draw.integers(0, spread, len(place)) for _ in range(columns)]
    expected = np.lexsort((*reversed(then), place))
    found = order_by_place(place, then)
    assert (np.arange(len(place)) if found is None else found).tolist() == expected.tolist()
