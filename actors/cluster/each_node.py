"""An actor on each node of a cluster, to look at what is there."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import ray_calls


class Silence(str):
    """Why a node gave no answer."""

    __slots__ = ()


class EachNode:
    """One actor of ``cls`` on every node that lives; they take no CPU. End them with :meth:`end`."""

    def __init__(self, cls: type) -> None:
        self.addresses = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]}
        """By Ray's id of the node."""
        self._actors = {node: self._start(cls, node) for node in self.addresses}

    @staticmethod
    def _start(cls: type, node: str) -> Any:
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        return ray.remote(num_cpus=0, max_restarts=0)(cls).options(scheduling_strategy=where).remote()

    def ask(self, method: str, timeout_s: float, arguments: Callable[[str], tuple[Any, ...]] = lambda node: ()) -> dict[str, Any]:
        """What each node answers, all asked at once, with these arguments for each; of one that does not answer a :class:`Silence`."""
        calls = {node: getattr(actor, method).remote(*arguments(node)) for node, actor in self._actors.items()}
        deadline_s = clock.monotonic() + timeout_s
        return {node: _answer(call, deadline_s, timeout_s) for node, call in calls.items()}

    def ask_one(self, node: str, method: str, timeout_s: float) -> Any:
        """What this node answers, or a :class:`Silence`."""
        if node not in self._actors:
            return Silence("it did not answer before")
        return _answer(getattr(self._actors[node], method).remote(), clock.monotonic() + timeout_s, timeout_s)

    def end(self, nodes: Mapping[str, Any] | None = None) -> None:
        """End those on these nodes, by default all."""
        for node in list(self._actors if nodes is None else nodes):
            ray_calls.kill(self._actors.pop(node))


def _answer(call: Any, deadline_s: float, timeout_s: float) -> Any:
    try:
        return ray_calls.get(call, timeout=max(0.0, deadline_s - clock.monotonic()))
    except GetTimeoutError:
        return Silence(f"no answer within {timeout_s:g} s")
    except RayError as error:
        return Silence(str(error).strip().splitlines()[-1])


def size_told() -> str:
    """How large the cluster is, and how much of it is free."""
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    return f"{nodes} nodes, {ray.available_resources().get('CPU', 0):g} of {ray.cluster_resources().get('CPU', 0):g} CPUs free"


__all__ = ["EachNode", "Silence", "size_told"]
