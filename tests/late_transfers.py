"""State that is long on its way to a replica of a job in the local runtime, which by itself draws all events alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rayad.actors.local.rescaling import LocalRescale


@contextmanager
def late_transfers(share: float, seed: int = 0) -> Iterator[None]:
    """While this is open, what one replica hands to another stays on its way in this share of the events that would bring it; 1: as long
    as anything else can happen."""
    perform, chance = LocalRescale.perform, random.Random(seed)

    def late(self: LocalRescale, kind: str, at: Any) -> None:
        others = any(event[0] != "transfer" for event in self.network.ready.items)
        if kind != "transfer" or not others or chance.random() >= share:
            perform(self, kind, at)

    LocalRescale.perform = late  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalRescale.perform = perform  # type: ignore[method-assign]
