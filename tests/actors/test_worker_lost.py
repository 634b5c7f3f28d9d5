"""What a worker makes of processes whose connections it has lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rayad.actors.local.bus import VirtualClock
from rayad.actors.worker.lost_peers import LOST_S
from rayad.dataflow.plan import Layout
from tests.actors.one_worker import worker_of_two


def hears_of(made: Any, stages: list[int]) -> None:
    """These have heard of a change to two replicas of each."""
    for stage in stages:
        place = made.hosts[stage].place
        place.plan = place.plan.laid_out(Layout(dict.fromkeys(made.hosts, 2)))


def test_a_peer_of_a_change_that_was_refused_is_not_missed_in_the_next_one() -> None:
    """Regression: one vertex had heard of the second change, and the others not yet; the worker failed for the process of the first one."""
    made = worker_of_two(VirtualClock(random.Random(0)))
    made.link.take_lost = lambda: ["w1"]
    made.turn([])
    made.link.take_lost = list
    made.clock.now_s += 2 * LOST_S
    hears_of(made, list(made.hosts)[:1])
    made.turn([])


@pytest.mark.parametrize("which", [0, 1])
def test_a_peer_that_is_lost_while_any_vertex_knows_of_it_is_missed(which: int) -> None:
    made = worker_of_two(VirtualClock(random.Random(0)))
    hears_of(made, [list(made.hosts)[which]])
    made.link.take_lost = lambda: ["w1"]
    made.turn([])
    made.link.take_lost = list
    made.clock.now_s += 2 * LOST_S
    with pytest.raises(ConnectionError, match=r"^worker 0 lost its connection to worker 1"):
        made.turn([])
