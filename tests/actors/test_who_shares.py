"""Who shares a process: what a placement and a number of processors make of a plan."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead.placing import placed
from rayad.actors.replica.places import Places
from rayad.progress import ConfigError


class Waits(rd.Source):
    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> Any:
        raise NotImplementedError


class Model:
    def __call__(self, batch: Any) -> Any:
        return batch


def counting(*, wide: bool = False) -> rd.Dataflow:
    flow = rd.Dataflow("shares")
    words = flow.from_items(list("abcdefgh"), name="letters", parts=4 if wide else 2).key_by(lambda word: word)
    words.count(name="counts").as_records().key_by(lambda pair: pair[1]).count(name="again").collect("out")
    return flow


def shared(flow: rd.Dataflow, placement: Any, cpus: float | None, parallelism: Any = 2) -> tuple[int, dict[str, int]]:
    plan = flow.plan(scaling=rd.ScalingConfig(parallelism=parallelism))
    places = placed(plan, placement, cpus)
    return places.workers, {plan.stage(stage).name: offset for stage, offset in places.offsets.items()}


def test_auto_shares_when_there_are_more_replicas_than_processors() -> None:
    assert shared(counting(), "auto", 6.0) == (0, {}), "six replicas, and a processor for each"
    assert shared(counting(), "auto", 2.0) == (2, {"letters": 0, "counts": 0, "again": 0})
    assert shared(counting(), "auto", 1.0) == (2, {"letters": 0, "counts": 0, "again": 0}), "no fewer than the widest has replicas"
    assert shared(counting(), "auto", None) == (0, {}), "it is not known"
    assert shared(counting(), "auto", float("inf")) == (0, {}), "nodes can be added"


def test_auto_leaves_no_processor_idle_where_the_vertices_are_narrower() -> None:
    assert shared(counting(), "auto", 4.0) == (4, {"letters": 0, "counts": 2, "again": 0})
    assert shared(counting(), "auto", 5.5) == (5, {"letters": 0, "counts": 2, "again": 4})
    plan = counting().plan(scaling=rd.ScalingConfig(parallelism=2))
    assert len(placed(plan, "auto", 5.5).processes(plan)) == 5


def test_workers_are_as_many_as_the_widest_vertex_has_replicas() -> None:
    assert shared(counting(), "workers", 64.0) == (2, {"letters": 0, "counts": 0, "again": 0})
    assert shared(counting(wide=True), "workers", 64.0, {"letters": 4, "counts": 2, "again": 1}) == (
        4,
        {"letters": 0, "counts": 0, "again": 2},
    )


def test_what_takes_long_by_its_nature_is_by_itself_unless_it_is_named() -> None:
    flow = rd.Dataflow("long")
    asked = flow.source(Waits(), name="asked").rebalance(name="plain").map(str)
    asked.rebalance(name="model").map_batches(Model).key_by(lambda word: word).count(name="counts").collect("out")
    for placement in ("auto", "workers"):
        assert shared(flow, placement, 1.0)[1] == {"plain": 0, "counts": 0}
    named = {"asked": "workers", "model": "auto"}
    assert set(shared(flow, named, 1.0)[1]) == {"asked", "model"}
    tried = rd.Dataflow("tried")
    tried.from_items([1], name="items").rebalance(name="model").map_batches(Model, on_error="skip").collect("out")
    assert set(shared(tried, "auto", 1.0)[1]) == {"items"}, "with what sets bad records aside around it"


@pytest.mark.parametrize("placement", ["auto", "vertices"])
def test_upstream_recovery_shares_nothing(placement: Any) -> None:
    plan = counting().plan()
    assert placed(plan, placement, 1.0, upstream=True) == Places()
    with pytest.raises(ConfigError, match="upstream"):
        placed(plan, "workers", 1.0, upstream=True)
