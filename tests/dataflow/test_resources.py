"""Resources that an operator asks for: how they are written, which stages they make, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.dataflow.config import ScalingConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.dataflow.resources import Need, unplaceable

pytestmark = pytest.mark.filterwarnings("ignore:what was asked for with:UserWarning")  # in the local runtime: test_settings


def embedding(**asked: Any) -> rd.Dataflow:
    flow = rd.Dataflow("embedding")
    words = flow.from_items(["a", "b", "c"] * 4, name="words", parts=3).map(str.upper, name="upper")
    large = words.map(lambda w: (w, ord(w)), name="embed", **asked).filter(lambda r: r[1] > 65, name="large")
    large.key_by(lambda r: r[0]).count(name="counts").collect("out")
    return flow


def stages(plan: Plan) -> dict[str, tuple[int, rd.Resources | None]]:
    return {stage.name: (stage.parallelism, stage.resources) for stage in plan.stages}


def test_an_operator_that_asks_for_resources_begins_a_stage_in_which_later_operators_run() -> None:
    plan = embedding(num_gpus=1, resources={"disk": 0.5}).plan(scaling=ScalingConfig(parallelism={"embed": 2, "words": 3}))
    asked = rd.Resources(num_gpus=1, resources={"disk": 0.5})
    assert stages(plan) == {"words": (3, None), "embed": (2, asked), "counts": (1, None)}
    assert next(stage for stage in plan.stages if stage.name == "embed").kind is NodeKind.EXCHANGE
    assert stages(embedding().plan()) == {"words": (1, None), "counts": (1, None)}
    assert plan.needs(0.01)[1] == Need("embed", 2, {"CPU": 0.01, "GPU": 1, "disk": 0.5})


def test_an_operator_with_resources_has_by_default_the_parallelism_of_its_input() -> None:
    assert stages(embedding(num_cpus=1).plan(3))["embed"][0] == 3


@pytest.mark.parametrize("asked", [{}, {"num_cpus": 1}])
def test_resources_change_no_result(asked: dict[str, Any]) -> None:
    result = embedding(**asked).run(runtime="local", parallelism=2)
    assert sorted(record for _, record in result["out"]) == [("B", 4), ("C", 4)]


def test_an_error_names_the_operator_and_not_the_nodes_it_consists_of() -> None:
    flow = rd.Dataflow("failing")
    flow.from_items([0]).map(lambda n: 1 / n, name="divide", num_cpus=1).collect("out")
    with pytest.raises(rd.DataflowError, match=r"^'divide'"):
        flow.run(runtime="local")


def test_resources_work_in_loops_and_behind_exchanges() -> None:
    flow = rd.Dataflow("loop")
    stream = flow.from_items([3, 5], name="items").rebalance()

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        less = inner.map(lambda n: n - 1, name="less", num_cpus=0.5)
        return less.filter(lambda n: n > 0), less.filter(lambda n: n == 0)

    stream.map_batches(lambda batch: batch, name="batches", memory=1e6).iterate(body).collect("out")
    plan = flow.plan(2)
    assert stages(plan)["batches"] == (2, rd.Resources(memory=1e6))
    assert "rebalance" not in " ".join(stages(plan)), "the exchange is the stage's own input"
    assert stages(plan)["less"][1] == rd.Resources(num_cpus=0.5)
    assert [record for _, record in flow.run(runtime="local", parallelism=2)["out"]] == [0, 0]


def test_vertices_and_sources_ask_for_resources_and_a_run_adds_to_them_by_name() -> None:
    flow = rd.Dataflow("vertices")

    class Pass(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            self.send_by(0, batch, time)

    passed = flow.from_items([1], name="items").vertex(Pass, name="pass", num_gpus=0.5, resources={"a": 1})
    passed.key_by(lambda n: n).count(name="n").collect("out")
    run = {"pass": rd.Resources(num_cpus=2, resources={"b": 1}), "n": rd.Resources(memory=2**30)}
    plan = flow.plan().needing(run)
    assert stages(plan)["pass"][1] == rd.Resources(num_cpus=2, num_gpus=0.5, resources={"a": 1, "b": 1})
    assert stages(plan)["n"][1] == rd.Resources(memory=2**30)
    with pytest.raises(rd.DataflowError) as caught:
        flow.plan().needing({"m": rd.Resources()})
    assert str(caught.value) == "RunConfig.resources names 'm': the vertices of 'vertices' are ['items', 'n', 'pass']"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"num_cpus": -1}, "num_cpus is -1: it must be a number of at least 0"),
        ({"num_gpus": 1.5}, "num_gpus is 1.5: above one it must be a whole number"),
        ({"memory": "1 GB"}, "memory is '1 GB': it must be a number of at least 0"),
        ({"resources": 3}, "resources is 3: it must be a dict from a resource's name to a number"),
        ({"resources": {"GPU": 1}}, "resources names 'GPU': say num_gpus=1 instead"),
        ({"resources": {"disk": True}}, "resources['disk'] is True: it must be a number of at least 0"),
    ],
)
def test_invalid_resources_are_refused_where_they_are_written(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(rd.DataflowError) as caught:
        embedding(**asked)
    assert str(caught.value) == told


def test_a_misspelled_keyword_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError) as caught:
        embedding(nun_gpus=1)
    assert str(caught.value) == (
        "map() got an unexpected keyword argument 'nun_gpus'; what a replica needs is asked for by num_cpus, num_gpus, memory, resources: "
        "did you mean 'num_gpus'?"
    )


def test_the_sum_of_resources_may_be_too_large_although_each_fits() -> None:
    needs = [Need("a", 1, {"CPU": 1}), Need("b", 3, {"CPU": 2})]
    assert unplaceable(needs, [{"CPU": 4}, {"CPU": 3}]) == ""
    assert unplaceable(needs, [{"CPU": 4}, {"CPU": 2}]) == (
        "all replicas together ask for 7 CPU, most of it 'b' with 3 x 2 CPU, and the cluster has 6 CPU"
    )
    assert unplaceable([Need("a", 1, {"memory": 2**31})], []) == (
        "the replica of 'a' asks for 2 GiB of memory, which no node has: there is no node"
    )
