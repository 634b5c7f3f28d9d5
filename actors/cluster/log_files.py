"""What the processes of a job have written: Ray keeps the output of each worker in two files on its node.

Ray's own API for logs asks the dashboard, which a cluster need not have. Ray's table of actors is in its control store. It says, also of
actors that have died, who owned an actor, on which node and in which process it ran. A job's actors are those that its coordinators own.
The files are read by a small task on each of these nodes.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.names import Role

READ_S = 60.0
"""How long a node may take to read: it may have to start a worker first."""
READ_BYTES = 1 << 20
"""Of each file, so much is read at a time."""
STREAMS = ("out", "err")


@dataclass(frozen=True, slots=True)
class LoggedProcess:
    """A process of a job, alive or dead."""

    what: str
    """Its actor's class."""
    pid: int
    node: str
    """Ray's id of the node."""
    address: str
    """Of the node."""
    ray_job: str
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was read of a file."""

    process: LoggedProcess
    stream: str
    text: str
    end: int
    """Where in the file, in bytes, it ends."""


def processes_of(job: str) -> list[LoggedProcess]:
    """The processes of the actors of this job and of earlier ones of its name, as far as Ray's table goes back; keepers and coordinators
    first. In a session: of this job alone, while it runs."""
    from ray._private import state  # no public call gives owners without the dashboard

    table = list(state.actors().values())
    heads = {f"{role.value}:{job}" for role in Role}
    staying = names.hosts(job)
    named = [one for one in table if one["Name"].rpartition(":")[0] in heads or one["Name"] in staying]
    owners = {_place(one["Address"]) for one in named}
    owned = [one for one in table if _place(one["OwnerAddress"]) in owners and one not in named]
    return [_process(one) for one in (*named, *owned) if one["Pid"]]


def _place(address: Mapping[str, Any]) -> tuple[str, int]:
    return address["NodeID"], address["Port"]


def _process(one: Mapping[str, Any]) -> LoggedProcess:
    name = one["ActorClassName"].rpartition(".")[2]
    place = one["Address"]
    return LoggedProcess(name, one["Pid"], place["NodeID"], place["IPAddress"], one["JobID"], one["State"] == "ALIVE")


def read(processes: Sequence[LoggedProcess], ends: Mapping[tuple[int, str, str], int]) -> Iterator[Chunk]:
    """What these processes have written since ``ends``, by pid, node and stream: a chunk of each file that has something new.

    Of a node that is gone, or does not answer within :data:`READ_S`, nothing comes.
    """
    by_node: dict[str, list[LoggedProcess]] = {}
    for process in processes:
        by_node.setdefault(process.node, []).append(process)
    asked = {}
    for node, there in by_node.items():
        files = [(one.pid, one.ray_job, stream, ends.get((one.pid, node, stream), 0)) for one in there for stream in STREAMS]
        asked[node] = _reader(node).remote(files, READ_BYTES)
    deadline_s = clock.monotonic() + READ_S
    for node, reference in asked.items():
        try:
            found = ray_calls.get(reference, timeout=max(0.0, deadline_s - clock.monotonic()))
        except (RayError, GetTimeoutError):
            continue
        processes_there = {one.pid: one for one in by_node[node]}
        for pid, stream, text, end in found:
            yield Chunk(processes_there[pid], stream, text, end)


def _reader(node: str) -> Any:
    """A task on this node. Its function travels by value: the node's workers need not have Rayad."""

    def read_there(files: list[tuple[int, str, str, int]], most: int) -> list[tuple[int, str, str, int]]:
        import glob
        import os

        from ray._private.worker import global_worker

        folder = global_worker.node.get_logs_dir_path()
        found = []
        for pid, ray_job, stream, begin in files:
            for path in glob.glob(os.path.join(folder, f"worker-*-{ray_job}-{pid}.{stream}")):
                with open(path, "rb") as file:
                    file.seek(begin)
                    data = file.read(most)
                data = data[: data.rfind(b"\n") + 1] or data  # whole lines, then the rest of one
                if data:
                    found.append((pid, stream, data.decode(errors="replace"), begin + len(data)))
        return found

    where = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0)(read_there).options(scheduling_strategy=where)


__all__ = ["Chunk", "LoggedProcess", "processes_of", "read"]
