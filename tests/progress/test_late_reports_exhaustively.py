"""Tiny jobs with cycles, through every order of handlers and deliveries: safe in every state, complete in every last one."""

from functools import partial

import pytest

from rayad.progress import ProgressGraph
from tests.progress.exploration import Behaviour, aggregating, crossing, explore, inner_and_outer, two_epochs
from tests.progress.graphs import loop, nested_loops


@pytest.mark.parametrize(
    ("graph", "behaviour", "workers", "states"),
    [
        pytest.param(loop(), crossing, 2, 52, id="one-token"),
        pytest.param(loop(max_rounds=3), crossing, 2, 52, id="one-token-in-a-bounded-loop"),
        pytest.param(loop(replicas=2), crossing, 2, 4_045, id="two-tokens"),
        pytest.param(loop(), two_epochs, 2, 3_457, id="two-epochs"),
        pytest.param(loop(), partial(crossing, workers=3), 3, 61, id="three-workers"),
        pytest.param(loop(replicas=2), partial(crossing, workers=3), 3, 4_731, id="two-tokens-three-workers"),
        pytest.param(loop(), aggregating, 2, 138, id="aggregation"),
        pytest.param(loop(replicas=2), aggregating, 2, 2_657, id="aggregation-of-two-sources"),
        pytest.param(nested_loops(), inner_and_outer, 2, 263, id="nested-loops"),
    ],
)
def test_every_schedule_is_safe_and_completes(graph: ProgressGraph, behaviour: Behaviour, workers: int, states: int) -> None:
    """The number of states is part of the claim: fewer would mean that schedules are no longer tried."""
    visited, overtaken = explore(graph, behaviour, workers)
    assert visited == states
    assert overtaken > states // 10
