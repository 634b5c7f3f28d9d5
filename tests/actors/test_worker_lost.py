"""What a worker makes of processes whose connections it has lost."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.bus import Bus, Ready, VirtualClock
from rayad.actors.replica.places import Places
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import LOST_S, Worker
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Layout


def worker() -> Any:
    """It holds two vertices, each with one replica in its plan; another worker may get their second ones."""
    flow = rd.Dataflow("two")
    flow.from_items([1], name="numbers").key_by(lambda n: n).count(name="counts").collect("out")
    plan, clock = flow.plan(1), VirtualClock(random.Random(0))
    places = Places(1, {stage.id: 0 for stage in plan.stages})
    link = Bus(random.Random(0), Ready()).link("w0", 1)
    made = Worker("w0", plan, places, RunConfig(), Surroundings(link, clock, lambda: dt.datetime.now(tz=dt.UTC)))
    for stage in plan.stages:
        made.hold(stage.id, 0)
    return made


def hears_of(made: Any, stages: list[int]) -> None:
    """These have heard of a change to two replicas of each."""
    for stage in stages:
        place = made.hosts[stage].place
        place.plan = place.plan.laid_out(Layout(dict.fromkeys(made.hosts, 2)))


def test_a_peer_of_a_change_that_was_refused_is_not_missed_in_the_next_one() -> None:
    """Regression: one vertex had heard of the second change, and the others not yet; the worker failed for the process of the first one."""
    made = worker()
    made.link.take_lost = lambda: ["w1"]
    made.turn([])
    made.link.take_lost = list
    made.clock.now_s += 2 * LOST_S
    hears_of(made, list(made.hosts)[:1])
    made.turn([])


@pytest.mark.parametrize("which", [0, 1])
def test_a_peer_that_is_lost_while_any_vertex_knows_of_it_is_missed(which: int) -> None:
    made = worker()
    hears_of(made, [list(made.hosts)[which]])
    made.link.take_lost = lambda: ["w1"]
    made.turn([])
    made.link.take_lost = list
    made.clock.now_s += 2 * LOST_S
    with pytest.raises(ConnectionError, match=r"^worker 0 lost its connection to worker 1"):
        made.turn([])
