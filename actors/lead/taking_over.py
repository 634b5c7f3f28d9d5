"""When a coordinator that takes the place of another one may begin. Pure.

Two things are waited for: the delay after failures in a row, and the end of the processes of those before it. Whoever starts it has them
killed, but Ray counts an actor as dead from then on, while its process may live: stopped, or behind a cut. Whether it has ended can be
known only while its node can be asked. Where it cannot, or does not answer in time, the successor claims the store, and waits for as long
as the one before may take to see that (its lease), before it lets anything be written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rayad.actors.lead.heartbeats import Heartbeats
from rayad.dataflow.config import RunConfig

LEASE_LOOKS = 3
"""A lease, in looks at the store: until the claim is seen, to end in order, and one to spare."""
HEARD_S = 5.0
"""How long a deposed coordinator stays after that, so that its owner hears how its job has ended."""


@dataclass(frozen=True, slots=True)
class Left:
    """A coordinator whose process is not known to have ended.

    ``is_dead``: Ray counts it as dead. ``is_lost``: so is its node, and nobody can tell whether the process lives there.
    """

    name: str
    """In Ray's table."""
    node: str
    """The address of its node; "" where it has none yet."""
    is_dead: bool = True
    is_lost: bool = False

    def __str__(self) -> str:
        return f"{self.name} on node {self.node}" if self.node else self.name


def look_every_s(heartbeat_timeout_s: float) -> float:
    """Seconds between two looks of a coordinator into its store."""
    return Heartbeats(heartbeat_timeout_s).interval_s


def lease_s(heartbeat_timeout_s: float) -> float:
    """How long after another run's claim a coordinator whose store answers may still live."""
    return LEASE_LOOKS * look_every_s(heartbeat_timeout_s) + HEARD_S


def taking_over_s(config: RunConfig) -> float:
    """How long a successor may take before it begins to start actors; 0 for a job that has none."""
    failures = config.failures
    most_s = failures.delay_max_s + failures.heartbeat_timeout_s + lease_s(failures.heartbeat_timeout_s)
    return most_s if config.failures_survived else 0.0


class TakingOver:
    """The beginning of one successor.

    Args:
        delay_s: after failures in a row.
        patience_s: how long an end may take to become known.
        now_s: when it was started.

    >>> taking = TakingOver(delay_s=2.0, patience_s=8.0, now_s=0.0)
    >>> taking.look([Left("job:j:1", "10.0.0.1")], 3.0)
    'the end of the coordinator before it, job:j:1 on node 10.0.0.1, of which its node has not told'
    >>> taking.look([], 3.1), taking.unconfirmed
    ('', '')
    """

    def __init__(self, *, delay_s: float, patience_s: float, now_s: float) -> None:
        self._due_s = now_s + delay_s
        self._until_s = now_s + patience_s
        self.unconfirmed = ""
        """Once it may begin: whose end is not known, and why; "" when all have ended."""

    def look(self, left: Collection[Left] | None, now_s: float) -> str:
        """What it waits for, in words; "" when it may begin.

        ``left``: of those before it, the ones that are not known to have ended; None when Ray does not tell.
        """
        ending = None if left is None else [one for one in left if not one.is_lost]
        if ending is None:
            told = "word from Ray whether the coordinator before it has ended"
        elif ending:
            told = f"the end of the coordinator before it, {_all(ending)}, of which its node has not told"
        else:
            told = ""
        if told and now_s < self._until_s:
            return told
        if now_s < self._due_s:
            return f"its restart in {self._due_s - now_s:.1f} s, after failures in a row"
        lost = [one for one in left or () if one.is_lost]
        gone = f"the end of {_all(lost)}, whose node is gone or cut off" if lost else ""
        self.unconfirmed = " and ".join(filter(None, (told, gone)))
        return ""


def _all(left: Collection[Left]) -> str:
    return ", ".join(map(str, left))


__all__ = ["HEARD_S", "Left", "TakingOver", "lease_s", "look_every_s", "taking_over_s"]
