"""What runs in the driver on machine 1 and in the job's actors: everything here can be imported on all machines."""

from __future__ import annotations

import collections
from typing import Any

import ray

import rayad as rd
from rayad.actors.protocol import replica_name
from tests.cluster.recovering import Paced
from tests.machines.driver import KEPT


def alive() -> list[str]:
    """Addresses of the nodes that Ray believes alive."""
    return sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])


def hosts(name: str) -> dict[str, str]:
    """At which address each replica of a running job listens."""
    job = KEPT[name]
    names = [replica_name(stage.id, replica) for stage in job.plan.stages for replica in range(stage.parallelism)]
    return {replica: job._ask("where", replica, 60.0)[0].host for replica in names}


def count_words(parallelism: int) -> list[tuple[str, int]]:
    """A whole small job."""
    flow = rd.Dataflow("words")
    words = flow.from_items(["to be", "or not to be", "that is"] * 50, name="lines").rebalance().flat_map(str.split)
    words.key_by(lambda word: word).count(name="counts").collect("counts")
    return sorted(record for _, record in flow.run(parallelism=parallelism, timeout_s=60)["counts"])


def submit_counting(name: str, epochs: int, **config: Any) -> None:
    """A keyed count over a paced source, which goes on while the caller does something to the machines."""
    data = [[(31 * epoch + 7 * i) % 23 for i in range(20)] for epoch in range(epochs)]
    flow = rd.Dataflow(name)
    flow.source(Paced(data, parts=2, pause_s=0.02), name="ticks").key_by(lambda n: n % 5).count(name="counts").collect("counts")
    KEPT[name] = flow.submit(rd.RunConfig(**config), parallelism=2)


def counted(epochs: int) -> list[tuple[int, int, int]]:
    """What :func:`submit_counting` comes to: epoch, key, count."""
    seen: collections.Counter[int] = collections.Counter()
    out = []
    for epoch in range(epochs):
        numbers = [((31 * epoch + 7 * i) % 23) % 5 for i in range(20)]
        seen.update(numbers)
        out += [(epoch, key, seen[key]) for key in set(numbers)]
    return sorted(out)


def finish(name: str, timeout_s: float) -> list[tuple[int, int, int]]:
    """The result of a job that was submitted before."""
    result = KEPT.pop(name).wait(timeout_s=timeout_s)
    return sorted((time.epoch, *record) for time, record in result["counts"])
