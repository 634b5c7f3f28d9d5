"""State that is long on its way to a replica of a job in the local runtime, which by itself draws all events alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rayad.actors.local.processes import Processes
from rayad.actors.plane.protocol import Kind


@contextmanager
def late_transfers(share: float, seed: int = 0) -> Iterator[None]:
    """While this is open, what one replica hands to another stays on its way in this share of the events that would bring it; 1: as long
    as anything else can happen."""
    perform, chance = Processes.perform, random.Random(seed)

    def brings_transfers(self: Processes, event: Any) -> bool:
        return event[0] == "deliver" and any(frame.kind == Kind.TRANSFER for frame in self.bus.ways[event[1]])

    def late(self: Processes, kind: str, what: Any) -> bool:
        is_late = brings_transfers(self, (kind, what)) and chance.random() < share
        return (is_late and any(not brings_transfers(self, event) for event in self.ready.items)) or perform(self, kind, what)

    Processes.perform = late  # type: ignore[method-assign]
    try:
        yield
    finally:
        Processes.perform = perform  # type: ignore[method-assign]
