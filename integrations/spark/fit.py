"""Whether a Spark of a given size fits on a Ray cluster: pure arithmetic, because RayDP would wait for ever instead of failing.

RayDP asks Ray for one actor for each executor and waits for ever where there is no room. Its master actor needs a CPU for a moment, to be
placed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rayad.progress import ConfigError, show

GIB = 1 << 30
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class SparkNeeds(NamedTuple):
    """The resources that Spark will ask Ray for: executors, CPUs and bytes of each, and CPUs of RayDP's master."""

    executors: int
    cpus: float
    memory_bytes: int
    master_cpus: float = 1.0
    master_stays: bool = False

    def of_cpus_alone(self) -> SparkNeeds:
        """What is needed of CPUs alone."""
        return self._replace(memory_bytes=1)

    def of_memory_alone(self) -> SparkNeeds:
        """What is needed of memory alone."""
        return self._replace(cpus=0.0)


class NodeRoom(NamedTuple):
    """The free and total resources of a node of the Ray cluster."""

    name: str
    free_cpus: float
    free_memory_bytes: float
    cpus: float
    memory_bytes: float


def parse_memory(memory: str | int) -> int:
    """Bytes from ``"500m"``, ``"1g"``, ``"2GB"`` or a number of bytes.

    >>> parse_memory("1g"), parse_memory("500 MB"), parse_memory(1024)
    (1073741824, 524288000, 1024)
    """
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", memory, re.IGNORECASE) if isinstance(memory, str) else None
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size <= 0:
        raise ConfigError(f"spark_session: executor_memory={memory!r}; give a size such as '500m' or '1g'")
    return size


def spark_needs(executors: int, cores: int, memory: str | int, configs: Mapping[str, str]) -> SparkNeeds:
    """The resources that this Spark will ask Ray for. ``configs`` may change the CPUs of an executor or of the master."""
    for name, value in (("num_executors", executors), ("executor_cores", cores)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"spark_session: {name}={show(value)}; give an integer of 1 or more")
    cpus = configs.get("spark.ray.raydp_spark_executor.actor.resource.cpu", configs.get("spark.ray.actor.resource.cpu", str(cores)))
    master = configs.get("spark.ray.raydp_spark_master.actor.resource.CPU")
    return SparkNeeds(executors, float(cpus), parse_memory(memory), float(master) if master is not None else 1.0, master is not None)


def explain_misfit(needs: SparkNeeds, nodes: Sequence[NodeRoom]) -> str | None:
    """Why Spark does not fit on these nodes, and what to do; None where it fits."""
    asked = f"{needs.executors} executor{'s' * (needs.executors > 1)} of {_cpus(needs.cpus)} and {needs.memory_bytes / GIB:.1f} GiB memory"
    fitting = _executors_that_fit(needs, nodes, free=True)
    master = any(node.free_cpus >= needs.master_cpus for node in nodes)
    if master and fitting >= needs.executors:
        return None
    room = "; ".join(
        f"node {n.name}: {n.free_cpus:g} of {_cpus(n.cpus)}, {n.free_memory_bytes / GIB:.1f} of {n.memory_bytes / GIB:.1f} GiB memory"
        for n in nodes
    )
    if not master:
        when = "for itself" if needs.master_stays else "while it starts"
        short = f"RayDP's master needs {_cpus(needs.master_cpus)} {when}, no node has that free"
    else:
        short = f"{fitting} of {asked} fit ({_scarce(needs, nodes)})"
    if _executors_that_fit(needs, nodes, free=False) >= needs.executors and any(n.cpus >= needs.master_cpus for n in nodes):
        advice = "it would fit on idle nodes: stop what holds the resources, or start Spark before the job"
    else:
        advice = "ask for fewer or smaller executors, or give Ray more: ray.init(num_cpus=...) counts cores as you say, or add nodes"
    return f"Spark does not fit: asked for {asked}; {short}. Free: {room or 'no nodes'}. {advice[0].upper()}{advice[1:]}"


def _executors_that_fit(needs: SparkNeeds, nodes: Sequence[NodeRoom], *, free: bool) -> int:
    count = 0
    held = needs.master_cpus if needs.master_stays else 0.0
    for node in sorted(nodes, key=lambda n: n.free_cpus if free else n.cpus):
        cpus, memory = (node.free_cpus, node.free_memory_bytes) if free else (node.cpus, node.memory_bytes)
        if held and cpus >= held:
            cpus, held = cpus - held, 0.0
        by_cpu = int(cpus / needs.cpus + 1e-9) if needs.cpus else needs.executors
        count += max(0, min(by_cpu, int(memory / needs.memory_bytes)))
    return count


def _scarce(needs: SparkNeeds, nodes: Sequence[NodeRoom]) -> str:
    """Which of CPU and memory is short."""
    short = []
    if _executors_that_fit(needs.of_cpus_alone(), nodes, free=True) < needs.executors:
        short.append("CPUs are short")
    if _executors_that_fit(needs.of_memory_alone(), nodes, free=True) < needs.executors:
        short.append("memory is short")
    return ", ".join(short) or "CPUs and memory are free, but not on one node"


def _cpus(count: float) -> str:
    return f"{count:g} CPU{'' if count == 1 else 's'}"


__all__ = ["NodeRoom", "SparkNeeds", "explain_misfit", "parse_memory", "spark_needs"]
