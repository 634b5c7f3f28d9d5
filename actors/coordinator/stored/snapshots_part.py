"""What a coordinator does with its snapshots in a change of layout, in the order in which it is asked for that.

Done in the coordinator's thread, which keeps the snapshots; asked for by whoever drives the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from rayad.actors.coordinator.stored.kept_job import KeptJob
from rayad.actors.lead import calls
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError


class SnapshotsPart:
    """In one change of a job: what concerns its snapshots, and what those that retire leave behind."""

    def __init__(self, job: KeptJob) -> None:
        self._kept = job

    def do(
        self, call: calls.OwnCall, answer: Callable[[Any], None], broke: Callable[[Exception], None], is_void: Callable[[], bool]
    ) -> None:
        """One call; ``answer`` or ``broke`` is called when it is done, perhaps in the coordinator's thread, unless it is void by then."""
        job, snapshots = self._kept, self._kept.snapshots
        if isinstance(call, calls.Part):
            job.left.extend(call.left.items())
        if snapshots is None:
            answer(0 if isinstance(call, calls.LastPublished) else None)
            return
        match call:
            case calls.HoldSnapshots():
                snapshots.hold_back(partial(answer, None))
            case calls.ReleaseSnapshots():
                snapshots.end_change()
            case calls.Expect(_, processes, layout, incarnation):
                self._post(partial(snapshots.admit, processes, incarnation, job.plan.laid_out(layout)), answer, broke, is_void)
            case calls.LastPublished():
                self._post(snapshots.base, answer, broke, is_void)
            case calls.Part(layout, left):
                staged = {name: given.staged for name, given in left.items()}
                self._post(partial(snapshots.part, tuple(left), job.plan.laid_out(layout), staged), answer, broke, is_void)
            case _:
                raise InternalError(f"the coordinator cannot do {call}")

    def _post(
        self, action: Callable[[], Any], answer: Callable[[Any], None], broke: Callable[[Exception], None], is_void: Callable[[], bool]
    ) -> None:
        """Do something in the coordinator's thread."""

        def act() -> None:
            if is_void():
                return
            try:
                value = action()
            except Exception as error:
                broke(error)
            else:
                answer(value)

        assert self._kept.snapshots is not None
        self._kept.snapshots.post(act)

    def take_back(self, names: Collection[str], plan: Plan) -> None:
        """Newcomers will not join: the layout is the one of before."""
        if self._kept.snapshots is not None:
            self._kept.snapshots.post(partial(self._kept.snapshots.part, tuple(names), plan, {}))

    def lay_out_snapshots(self) -> None:
        """The job has another layout."""
        if self._kept.snapshots is not None:
            self._kept.snapshots.post(partial(self._kept.snapshots.lay_out, self._kept.plan))


__all__ = ["SnapshotsPart"]
