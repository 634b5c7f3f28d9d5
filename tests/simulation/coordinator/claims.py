"""What holds of a run besides its results: of its processes, its layout and its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.actors.coordinator.rescaling import Wish
from rayad.actors.job import JobState
from rayad.actors.lead.layouts import asked_of
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.places import is_worker

if TYPE_CHECKING:
    from tests.simulation.coordinator.run import Run

KNOWN_REFUSALS = ("is complete", "nothing to change", "recovery='upstream'", "by now")
"""Why a change is refused where nothing fails."""
KNOWN_ERRORS = ("ConnectionError", "Abandoned")
"""What a process fails with when another is gone, or its incarnation is over."""
ENOUGH_S = 120.0
"""So long before it goes a node is left without a failure."""
PATIENCE = "did these actors start?"
"""A newcomer says so when another one, for which no heartbeats are listened, is frozen."""


class Claims:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen = 0
        self._wrong: list[str] = []
        self._wanted: dict[str, int] = {}
        self._again_at: list[int] = []  # how many failures there were when the layout was asked for again
        self._first: int | None = None
        self.killed = 0
        """How many processes the seed has killed."""

    def asked_again(self) -> None:
        """The job asks for its layout again."""
        self._again_at.append(self._run.job.failures)

    def on_step(self) -> None:
        """Whatever has just happened."""
        run = self._run
        if self._first is None and run.job.running.is_set():
            self._first = run.figures["processes"]
        over = run.world.over
        while self._seen < len(over):
            self._seen += 1
            try:
                self._on_change(over[self._seen - 1])
            except AssertionError as error:  # raised here it would be a failure of the job, which survives it
                self._wrong.append(str(error))

    def _on_change(self, wish: Wish) -> None:
        """A change is over."""
        job = self._run.job
        if wish.report is not None:
            self._wanted.update(wish.wanted)
            layout = asked_of(job.plan)
            assert {name: layout[name] for name in wish.wanted} == wish.wanted, f"{wish.wanted} is reported, and the layout is {layout}"
        if job.running.is_set() and job.state is JobState.RUNNING:  # when it is over, all end
            extra = {name for name in job.crew.actors if not is_worker(name)} - {PROGRESS, *job.places.processes(job.plan)}
            assert not extra, f"{sorted(extra)} hold nothing after {wish.wanted}, and are there"

    def at_end(self) -> None:
        """The job is complete."""
        run, job = self._run, self._run.job
        assert not self._wrong, self._wrong
        strange = [told for told in run.world.errors if told.split(": ")[1] not in KNOWN_ERRORS and PATIENCE not in told]
        assert not strange, f"processes have failed by themselves: {strange}"
        refused = [str(wish.error) for wish in run.world.over if wish.error is not None]
        unexpected = [why for why in refused if not any(known in why for known in KNOWN_REFUSALS)]
        assert not run.world.nodes.wrong, run.world.nodes.wrong
        if run.todo.faults == run.todo.drains and not run.todo.store_away and not run.is_tight:
            has_time = run.world.nodes.shortest_notice_s >= ENOUGH_S
            assert not has_time or not job.failures, f"{job.failures} failures where nodes went {ENOUGH_S:.0f} s after they had said so"
        if not run.todo.faults:
            assert not unexpected, unexpected
            assert not job.failures, f"{job.failures} failures where nothing has failed"
        layout = asked_of(job.plan)
        lost = {name: count for name, count in self._wanted.items() if layout[name] != count}
        assert not lost or self._again_at[-1:] == [job.failures], f"{lost} was there before a failure, and is not asked for again"
        todo = run.todo
        may_start_others = todo.freezes or todo.busy or todo.cuts or todo.nodes or todo.changes or run.is_scaled
        if self._first is not None and not may_start_others:
            started = run.figures["processes"]
            assert started <= self._first + self.killed, f"{started} processes were started, first {self._first}, {self.killed} were killed"
        run.figures["changes carried out"] += sum(wish.report is not None for wish in run.world.over)


__all__ = ["ENOUGH_S", "Claims"]
