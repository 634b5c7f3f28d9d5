"""If Spark does not fit into the cluster, an error says at once which resource is short and what to do."""

from __future__ import annotations

import pytest

from rayad.integrations.spark.fit import GIB, NodeRoom, SparkNeeds, explain_misfit, parse_memory, spark_needs
from rayad.progress import ConfigError


def node(name: str = "a", free: float = 4, cpus: float = 4, free_gib: float = 8, gib: float = 8) -> NodeRoom:
    return NodeRoom(name, free, free_gib * GIB, cpus, gib * GIB)


def test_a_spark_that_fits_is_accepted() -> None:
    assert explain_misfit(SparkNeeds(2, 2, GIB), [node()]) is None
    assert explain_misfit(SparkNeeds(2, 2, GIB), [node(free=2), node("b", free=2)]) is None
    assert explain_misfit(SparkNeeds(1, 0.1, GIB, 0.0, True), [node(free=0.1)]) is None


def test_the_whole_message_when_cpus_are_short() -> None:
    assert explain_misfit(SparkNeeds(3, 2, GIB), [node("head")]) == (
        "Spark does not fit: asked for 3 executors of 2 CPUs and 1.0 GiB memory; 2 of 3 executors of 2 CPUs and 1.0 GiB memory fit "
        "(CPUs are short). Free: node head: 4 of 4 CPUs, 8.0 of 8.0 GiB memory. Ask for fewer or smaller executors, or give Ray more: "
        "ray.init(num_cpus=...) counts cores as you say, or add nodes"
    )


@pytest.mark.parametrize(
    ("needs", "nodes", "words"),
    [
        (SparkNeeds(1, 1, 9 * GIB), [node()], "memory is short"),
        (SparkNeeds(1, 8, 9 * GIB), [node()], "CPUs are short, memory is short"),
        (SparkNeeds(1, 4, 4 * GIB), [node(free=4, free_gib=1), node("b", free=1)], "CPUs and memory are free, but not on one node"),
        (SparkNeeds(1, 1, GIB), [node(free=0)], "RayDP's master needs 1 CPU while it starts, no node has that free"),
        (SparkNeeds(1, 1, GIB), [node(free=0)], "it would fit on idle nodes".capitalize()),
        (SparkNeeds(1, 4, GIB, 1.0, True), [node()], "0 of 1 executor"),
        (SparkNeeds(1, 1, GIB), [], "Free: no nodes"),
    ],
)
def test_what_is_short_is_named(needs: SparkNeeds, nodes: list[NodeRoom], words: str) -> None:
    assert words in str(explain_misfit(needs, nodes))


def test_needs_follow_raydps_settings() -> None:
    assert spark_needs(2, 3, "1g", {}) == SparkNeeds(2, 3.0, GIB, 1.0, False)
    configs = {"spark.ray.raydp_spark_executor.actor.resource.cpu": "0.5", "spark.ray.raydp_spark_master.actor.resource.CPU": "0"}
    assert spark_needs(1, 3, "500m", configs) == SparkNeeds(1, 0.5, 500 << 20, 0.0, True)


@pytest.mark.parametrize("memory", ["", "much", "-1g", 0, True, "1x"])
def test_memory_that_is_no_size_is_refused(memory: str | int) -> None:
    with pytest.raises(ConfigError, match="executor_memory="):
        parse_memory(memory)


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_executors=0"):
        spark_needs(0, 1, "1g", {})
    with pytest.raises(ConfigError, match="executor_cores=True"):
        spark_needs(1, True, "1g", {})
