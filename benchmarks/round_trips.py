"""Round trips between the driver and Ray actors, to compare with."""

from __future__ import annotations

import time
from typing import Any

import ray


class Echo:
    """Answers."""

    def ping(self) -> None:
        """Answer with nothing."""


def start(count: int) -> list[Any]:
    """Start actors that answer, and call each once."""
    made: Any = ray.remote(num_cpus=0)(Echo)
    actors = [made.remote() for _ in range(count)]
    ray.get([actor.ping.remote() for actor in actors for _ in range(20)])
    return actors


def stop(actors: list[Any]) -> None:
    """End them."""
    for actor in actors:
        ray.kill(actor)


def round_trips_us(actors: list[Any], count: int) -> list[float]:
    """Microseconds of each of ``count`` calls of one actor, one after another."""
    actor, clock = actors[0], time.perf_counter
    out = []
    for _ in range(count):
        began = clock()
        ray.get(actor.ping.remote())
        out.append(1e6 * (clock() - began))
    return out


def barriers_us(actors: list[Any], count: int) -> list[float]:
    """The same for a barrier made of Ray calls: all actors have answered before any is asked again."""
    clock = time.perf_counter
    out = []
    for _ in range(count):
        began = clock()
        ray.get([actor.ping.remote() for actor in actors])
        out.append(1e6 * (clock() - began))
    return out
