"""Which replica of a job: the one value that stands for it, and its name on the data plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rayad.dataflow.plan import Stage
from rayad.progress import InternalError


class ReplicaId(NamedTuple):
    """A replica: the id of its stage, and its number there, from 0.

    >>> ReplicaId(7, 1).plane_name
    'v7.1'
    >>> ReplicaId.from_plane_name("v7.1")
    ReplicaId(stage=7, replica=1)
    """

    stage: int
    replica: int

    @property
    def plane_name(self) -> str:
        """Its name on the data plane."""
        return f"v{self.stage}.{self.replica}"

    @classmethod
    @lru_cache(maxsize=1 << 12)
    def from_plane_name(cls, name: str) -> ReplicaId:
        """The inverse of :attr:`plane_name`. Raises InternalError for a name that is no replica's."""
        stage, dot, replica = name[1:].partition(".")
        if name[:1] != "v" or not dot or not (stage.isdecimal() and replica.isdecimal()):
            raise InternalError(f"{name!r} is not the plane name of a replica: that is 'v', the stage's id, a dot, the replica's number")
        return cls(int(stage), int(replica))


def replicas_of(stages: Iterable[Stage]) -> Iterator[ReplicaId]:
    """All replicas of these stages, stage by stage."""
    for stage in stages:
        for replica in range(stage.parallelism):
            yield ReplicaId(stage.id, replica)


__all__ = ["ReplicaId", "replicas_of"]
