"""What one replica gives to one attempt at a snapshot, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.rest import PartRest
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import PartFile, StagedPart


@dataclass(slots=True)
class Capture:
    """What one replica gives to one attempt.

    Args:
        barrier: of the attempt.
        rest: all but the state; its log still grows until ``is_complete``.
        state: gives the state to be pickled, at once or in a forked copy of the process; None: there is none.
        is_increment: whether ``state`` gives changes only.
        runs: the files of runs to which what ``state`` gives refers.
        staged: what the sink writers staged, with the sinks' keys; also what they staged for attempts that were given up.
    """

    barrier: Barrier
    rest: PartRest
    state: Callable[[], Any] | None
    is_increment: bool
    staged: list[tuple[str, Any]]
    runs: tuple[RunFile, ...] = ()
    is_complete: bool = False


@dataclass(slots=True)
class Written:
    """What became of a capture: its files, or why there are none; ``state_bytes``: written of the state now, files of runs included;
    ``cost_s``: processor time beside the replica's pause."""

    capture: Capture
    state: PartFile | None = None
    runs: tuple[PartFile, ...] = ()
    state_bytes: int = 0
    rest: PartFile | None = None
    staged: tuple[StagedPart, ...] = ()
    cost_s: float = 0.0
    why_failed: str = ""


__all__ = ["Capture", "Written"]
