"""The resources of one replica of a vertex, spelled as in Ray Data, and whether a cluster has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from rayad.dataflow.records.calling import WrongCall, did_you_mean
from rayad.progress import DataflowError, arguments, show


class Asked(TypedDict, total=False):
    """The keywords of operators and vertices."""

    num_cpus: float
    num_gpus: float
    memory: float
    resources: Mapping[str, float]


class Step(Asked, total=False):
    """Of :meth:`Stream.map` and other steps with a function."""

    name: str | None
    on_error: Literal["raise", "skip"]
    max_errors: int | None
    after_crashes: int | None


class OfKeyedVertex(TypedDict, total=False):
    """Of :meth:`KeyedStream.vertex`."""

    name: str | None
    parallelism: int | None


class OfVertex(OfKeyedVertex, Asked, total=False):
    """Of :meth:`Dataflow.vertex`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What Ray reserves for each replica of a vertex. None: the default of the run (``RunConfig.cpus_per_replica``), or nothing.

    Args:
        num_cpus, num_gpus: may be fractions.
        memory: in bytes; reserved, not enforced.
        resources: custom ones by name, as nodes are started with (``ray start --resources``).
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("num_cpus", "num_gpus", "memory"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, arguments.number(value, name, zero=True))
        if self.num_gpus is not None and self.num_gpus > 1 and self.num_gpus != int(self.num_gpus):
            raise DataflowError(f"num_gpus is {self.num_gpus!r}: above one it must be a whole number")
        if not isinstance(self.resources, Mapping):
            raise DataflowError(f"resources is {show(self.resources)}: it must be a dict from a resource's name to a number")
        for name, value in self.resources.items():
            arguments.text(name, "a name in resources")
            if name in _NAMES.values():
                spelled = next(key for key, ray_name in _NAMES.items() if ray_name == name)
                raise DataflowError(f"resources names {name!r}: say {spelled}={show(value)} instead")
        custom = {name: arguments.number(value, f"resources[{name!r}]", zero=True) for name, value in self.resources.items()}
        object.__setattr__(self, "resources", custom)

    def over(self, other: Resources | None) -> Resources:
        """These resources, with those of ``other`` wherever a field is None."""
        if other is None:
            return self
        plain = {name: getattr(self if getattr(self, name) is not None else other, name) for name in _NAMES}
        return Resources(**plain, resources={**other.resources, **self.resources})

    def told(self) -> str:
        """As it was asked for.

        >>> Resources(num_cpus=0.5, resources={"disk": 2}).told()
        "num_cpus=0.5, resources={'disk': 2}"
        """
        return ", ".join(f"{one.name}={value!r}" for one in fields(self) if (value := getattr(self, one.name)) not in (None, {}))

    def by_name(self, cpus: float) -> dict[str, float]:
        """By the names that Ray's nodes have for them; ``cpus`` where no number of CPUs was asked for.

        >>> Resources(num_gpus=1, resources={"disk": 2}).by_name(0.5)
        {'CPU': 0.5, 'GPU': 1, 'disk': 2}
        """
        plain = {"CPU": cpus if self.num_cpus is None else self.num_cpus, "GPU": self.num_gpus or 0, "memory": self.memory or 0}
        return {name: value for name, value in {**plain, **self.resources}.items() if value}


_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


def resources_asked(what: str, asked: Mapping[str, Any]) -> Resources | None:
    """The resources that an operator was given as keywords; None for none. Raises WrongCall for another keyword."""
    known = [one.name for one in fields(Resources)]
    wrong = [name for name in asked if name not in known]
    if wrong:
        spelled = ", ".join(known)
        near = did_you_mean(wrong[0], [*known, "name", "parallelism"])
        raise WrongCall(f"{what}() got an unexpected keyword argument {wrong[0]!r}; what a replica needs is asked for by {spelled}{near}")
    return Resources(**asked) if any(value is not None for value in asked.values()) else None


@dataclass(frozen=True, slots=True)
class Need:
    """Of one vertex: how many replicas, and what each of them needs, by Ray's names."""

    vertex: str
    replicas: int
    each: Mapping[str, float]


def unplaceable(needs: Iterable[Need], nodes: Sequence[Mapping[str, float]]) -> str:
    """Why these cannot be placed on nodes of this size even if nothing else runs there; "" if they can.

    >>> unplaceable([Need("embed", 2, {"CPU": 1, "GPU": 1})], [{"CPU": 2}, {"CPU": 8, "disk": 1}])
    "each of the 2 replicas of 'embed' asks for 1 CPU and 1 GPU, which no node has: the nodes have 2 CPU; 8 CPU, 1 disk"
    """
    needs = list(needs)
    for need in needs:
        if not any(holds(node, need.each) for node in nodes):
            each = f"each of the {need.replicas} replicas" if need.replicas > 1 else "the replica"
            return f"{each} of {need.vertex!r} asks for {told_resources(need.each, ' and ')}, which no node has: {told_nodes(nodes)}"
    for name in {name: None for need in needs for name in need.each}:
        asked, there = sum(need.replicas * need.each.get(name, 0) for need in needs), sum(node.get(name, 0) for node in nodes)
        if asked > there + 1e-6:
            most = max(needs, key=lambda need: need.replicas * need.each.get(name, 0))
            return (
                f"all replicas together ask for {told_resources({name: asked})}, most of it {most.vertex!r} with {most.replicas} x "
                f"{told_resources({name: most.each.get(name, 0)})}, and the cluster has {told_resources({name: there})}"
            )
    return ""


def told_nodes(nodes: Sequence[Mapping[str, float]]) -> str:
    """What nodes have, in words."""
    known = [told_resources(node) for node in nodes]
    more = f" and {len(known) - 8} other nodes" if len(known) > 8 else ""
    return f"the nodes have {'; '.join(known[:8])}{more}" if known else "there is no node"


def holds(node: Mapping[str, float], each: Mapping[str, float]) -> bool:
    """Whether a node of this size has what a replica asks for, if nothing else runs there."""
    return all(node.get(name, 0) + 1e-6 >= value for name, value in each.items())


def told_resources(values: Mapping[str, float], between: str = ", ") -> str:
    """What is asked for or there, in words; without what every node has for Ray's own purposes."""
    first = ("CPU", "GPU", "memory")
    named = sorted(values, key=lambda name: (first.index(name) if name in first else len(first), name))
    values = {name: values[name] for name in named if ":" not in name and name != "object_store_memory"}
    parts = [f"{value / 2**30:.3g} GiB of memory" if name == "memory" else f"{value:g} {name}" for name, value in values.items()]
    return between.join(parts) or "nothing"
