"""A job of the local runtime to which things happen between any two of its steps: snapshots, failures, changes of layout."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.migration import may_move
from tests.incremental.programs import History
from tests.snapshots import attempts

EPOCHS_AHEAD = (1, 2, 64, None)
TOGETHER = (1, 1, 1, 2, 5)


class Program(Protocol):
    """What is run."""

    def flow(self, changes: History) -> rd.Dataflow:
        """The dataflow of a history."""

    def verify(self, changes: History, collected: Any) -> None:
        """Raise AssertionError unless what came out is right."""


class OfSomeTogether(Protocol):
    """What is run, perhaps with several epochs taken together."""

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """The dataflow of a history, of which so many epochs are taken together."""

    def verify(self, changes: History, collected: Any) -> None:
        """See there."""


class Together:
    """A program with so many epochs taken together, which gives what it gives when the changes of these come in one epoch.

    Args:
        program, together: these.
    """

    def __init__(self, program: OfSomeTogether, together: int) -> None:
        self._program = program
        self._together = together

    def flow(self, changes: History) -> rd.Dataflow:
        """See there."""
        return self._program.flow(changes, self._together)

    def verify(self, changes: History, collected: Any) -> None:
        """See there."""
        given = [(*divmod(time.epoch, self._together), change) for time, change in collected]
        assert all(at == self._together - 1 for _, at, _ in given), f"not all is given at the last of {self._together} epochs: {given}"
        self._program.verify(self.merged(changes), [(rd.Timestamp(epoch), change) for epoch, _, change in given])

    def merged(self, changes: History) -> History:
        """What comes by the epochs that are taken as one."""
        starts = range(0, len(changes), self._together)
        return [[change for some in changes[start : start + self._together] for change in some] for start in starts]


def together_of(seed: int) -> int:
    """How many epochs a random run takes together: most of them one."""
    return TOGETHER[seed // len(EPOCHS_AHEAD) % len(TOGETHER)]


def run_disturbed(
    program: Program, changes: History, seed: int, folder: Path, *, steps: int = 400, crashes: float = 0.01, **config: Any
) -> LocalJob:
    """Run a program, which must give what it gives undisturbed, however few epochs its inputs may be ahead.

    Between so many of the first steps things happen; ``crashes``: the share of these that are failures; ``config``: more of the run.
    """
    chance = random.Random(seed)
    config = {"epochs_ahead": EPOCHS_AHEAD[seed % len(EPOCHS_AHEAD)], **config}
    failures = rd.FailureConfig(max_failures=50, delay_s=0.0, survive_errors=False)
    run = rd.RunConfig(storage_path=str(folder), failures=failures, **config)
    job = program.flow(changes).submit(run, runtime="local", seed=seed, parallelism=1 + seed % 3)
    assert isinstance(job, LocalJob)
    for _ in range(steps):
        if not job.step():
            break
        what = chance.random()
        if what < crashes:
            job.crash()
        elif what < crashes + 0.02:
            _rescale(job, chance)
        elif what < crashes + 0.05 and attempts.may_begin(job):
            attempts.begin(job, unaligned=chance.random() < 0.5)
    program.verify(changes, job.wait(timeout_s=100)["out"])
    return job


def figures_of(job: LocalJob) -> Counter[str]:
    """What the vertices of a job have counted, together."""
    found = Counter[str]()
    for core in job.cores.values():
        if hasattr(core.vertex, "figures"):
            found.update(core.vertex.figures())
    return found


def _rescale(job: LocalJob, chance: random.Random) -> None:
    if job.rescaling is not None and not job.rescaling.is_done:
        return
    movable = [stage.name for stage in job.plan.stages if not may_move(stage, job.plan, _vertex(job, stage.id))]
    wanted = {name: chance.randint(1, 4) for name in movable if chance.random() < 0.6}
    if wanted:
        job.start_rescale(wanted, groups=chance.choice([7, 60, None]))


def _vertex(job: LocalJob, stage: int) -> Any:
    return job.cores[stage, 0].vertex


__all__ = ["Together", "figures_of", "run_disturbed", "together_of"]
