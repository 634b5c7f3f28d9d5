"""A worker alone."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import rayad as rd
from rayad.actors.local.bus import Bus, Ready
from rayad.actors.replica.places import Places
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.dataflow.config import RunConfig


def worker_of_two(clock: Any, around: Callable[[Any], Any] = lambda link: link) -> Any:
    """It holds two vertices, each with one replica in its plan; another worker may get their second ones. ``around`` wraps its link."""
    flow = rd.Dataflow("two")
    flow.from_items([1], name="numbers").key_by(lambda n: n).count(name="counts").collect("out")
    plan = flow.plan(1)
    places = Places(1, {stage.id: 0 for stage in plan.stages})
    link = around(Bus(random.Random(0), Ready()).link("w0", 1))
    made = Worker("w0", plan, places, RunConfig(), Surroundings(link, clock, lambda: dt.datetime.now(tz=dt.UTC)))
    for stage in plan.stages:
        made.hold(stage.id, 0)
    return made
