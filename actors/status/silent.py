"""Who does not answer, and what it is busy with."""

from __future__ import annotations

from dataclasses import dataclass

from rayad.actors.process.activity import Activity

THE_COORDINATOR = "the coordinator"
"""Who it is that does not answer, in messages and in :class:`Silent`."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A part of a job that does not answer: because its event loop is in a function that takes long, or because nobody is there."""

    who: str
    """``'name'[replica]``, the progress actor, or the coordinator."""
    node: str
    """Address of its node; "" where that is not known."""
    for_s: float
    """How long it has not answered."""
    activity: Activity | None = None
    """What its event loop is busy with; None: the process itself does not answer."""
    is_well: bool = False
    """It answers heartbeats, only not what it was asked: the machine, or the process, has much to do."""

    def __str__(self) -> str:
        where = f"{self.who} on node {self.node}" if self.node else self.who
        if self.activity is not None:
            return f"{where} is busy with {self.activity}"
        if self.is_well:
            return f"{where} answers heartbeats, and has not told of the job within {self.for_s:.1f} s: it has much to do"
        return f"{where} has not answered for {self.for_s:.1f} s: its process is stopped, or its node is gone"
