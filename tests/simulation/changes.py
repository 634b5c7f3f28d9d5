"""Changes of layout among the events of a run: which vertex gets how many replicas when, and what is asked for again after a failure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rayad.actors.coordinator.change_driver import ChangeDriver
from rayad.actors.lead.asking import Answered, Event, Late
from rayad.actors.lead.change_protocol import GiveWay
from rayad.actors.lead.layouts import asked_of, lost_of
from rayad.actors.local.change import LocalRescale
from rayad.actors.local.coordinator import POLL, WISH
from rayad.actors.replica.migration import may_move
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import RescaleRefused
from tests.simulation.damage import can_damage
from tests.simulation.faults import CHANGES, CHANGING, DAMAGES
from tests.simulation.job import SimulatedJob

if TYPE_CHECKING:
    from tests.simulation.world import World

KEY_GROUPS = 8
"""Few, so that moving one at a time does not take long."""
REPLICAS_MAX = 4
STEPS: tuple[int | None, ...] = (None, None, 1, 1, 2, 3)
"""How many key-groups a step moves; None: all at once."""
TIMEOUTS_S = (*[math.inf] * 9, 0.1, 0.3, 0.6)
"""Bounds on the time to prepare: with the short ones some changes are refused, and undone."""
LATE_SHARE = 0.05
"""The share of steps during a change at which an answer comes a second time."""
ANSWERS_MOST = 100
"""So many of the newest answers may come again."""
COUNTED = ("steps", "moved_groups", "moved_bytes", "passed_on", "held")


def movable(plan: Plan) -> list[str]:
    """The vertices whose replicas can be added and removed."""
    return [s.name for s in plan.stages if not may_move(s, plan, s.op() if s.kind is NodeKind.VERTEX else None)]


CAUSED = ("simulated", "SimulatedCrash", "within", "is not complete after", "is not back after")
"""What is in the reasons for which a run lets a change be refused."""


class Changes:
    """The changes of layout of one run.

    Args:
        is_on: whether there are any.
        groups: how many key-groups each step moves, as :data:`STEPS`; "drawn": drawn for each change.
    """

    def __init__(self, world: World, seed: int, *, is_on: bool, groups: int | str | None = "drawn") -> None:
        self.world = world
        self.is_on = is_on
        self.rng = random.Random(seed ^ 0xC4A)
        self.wanted: dict[str, int] = {}
        self.groups = groups
        self._share = self.rng.choice([0.0, 0.0, 0.01])  # of steps at which a change is asked for, besides those of faults
        self._seen: Any = None
        self._last = ""
        self.answers: list[Event] = []
        """To questions of the changes of this driver so far."""

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Answers to whoever drives a change are remembered: they may come again."""
        real = ChangeDriver._event

        def event_of(driver: ChangeDriver, *asked: Any) -> Event:
            event = real(driver, *asked)
            if isinstance(event, Answered | Late) and not self.world.is_replaced_moving:
                self.answers.append(event)
            return event

        with patch.object(ChangeDriver, "_event", event_of):
            yield

    @staticmethod
    def is_under_way(job: SimulatedJob) -> bool:
        """Whether a change holds snapshots back."""
        return job.rescaling is not None and not job.rescaling.is_done

    def tick(self, job: SimulatedJob) -> None:
        """Before each step."""
        change = job.rescaling
        is_heard = POLL not in job.runtime.processes.ready.place  # the coordinator has done what it was asked for
        if change is not None and change.is_done and change is not self._seen and is_heard:
            self._seen = change
            self._require_whole(job, change)
            self._count(change)
        if change is not None and not change.is_done and self.rng.random() < LATE_SHARE:
            self._answer_again(job, change)
        if not self.is_on or self.is_under_way(job):
            return
        lost = lost_of(job.plan, self.wanted)
        armed = self.world.armed
        if lost:
            if self.rng.random() < 0.2:
                self.world.figures["changes asked for again"] += 1
                self._ask(job, lost)
        elif armed is not None and armed.phase in CHANGING and not self.world._is_set:
            assert job.snapshots is not None
            taken = job.snapshots.leader.snapshots.pending is not None or job.snapshots.leader.committing is not None
            can_strike = armed.kind not in DAMAGES or can_damage(self.world)
            if self.rng.random() < 0.3 and can_strike and (taken or armed.phase != "waiting"):
                self.start(job, "rescale down" if armed.phase == "leaving" else self._last or self.rng.choice(CHANGES))
        elif self.rng.random() < self._share:
            self.start(job, self.rng.choice(CHANGES))

    def _answer_again(self, job: SimulatedJob, change: LocalRescale) -> None:
        """An answer comes a second time, perhaps of an earlier turn, or of the change before."""
        if self.answers and change.wish.driver is not None:
            self.world.figures["answers that came again"] += 1
            change.wish.driver._said.put(self.rng.choice(self.answers[-ANSWERS_MOST:]))
            job.runtime.processes.ready.add(WISH)

    @staticmethod
    def _require_whole(job: SimulatedJob, change: LocalRescale) -> None:
        """A change is over: the layout is the new one or the old one, there are no other replicas, and snapshots may begin."""
        report = change.report
        asked = change.leader.wanted if report is not None else {}
        if report is not None and any(report.after[name] != count for name, count in asked.items()):
            raise AssertionError(f"asked for {asked}, and it became {report.after}")
        if report is not None and report.moved_groups != Changes._moved(change):
            raise AssertionError(f"{Changes._moved(change)} key-groups have another owner, and {report.moved_groups} were counted")
        if isinstance(change.leader.outcome, GiveWay) or (job.snapshots is not None and job.snapshots.leader.is_ending):
            return  # newcomers of a change that gave way to the job's end go with the job; a later one is refused meanwhile
        if set(job.cores) != {(stage.id, replica) for stage in job.plan.stages for replica in range(stage.parallelism)}:
            raise AssertionError(f"replicas {sorted(job.cores)} in the layout {asked_of(job.plan)}")
        if job.snapshots is not None and job.snapshots.leader.may_change:
            raise AssertionError("snapshots still wait for the end of a change")
        runtime, layout = job.runtime, job.plan.layout
        off = next(
            (host for host in runtime.processes.hosts() if host.core.plan.layout != layout and host.name not in runtime.actors.calls), None
        )
        if off is not None:
            raise AssertionError(f"a change is over, and {off.name} has layout {off.core.plan.layout}, not {layout}")

    @staticmethod
    def _moved(change: LocalRescale) -> int:
        """How many key-groups have another owner than before a change."""
        before, after = change.leader.before, change.leader.plan.layout
        stages = [before.stage(stage) for stage in change.leader.stages if stage in after.owners]
        return sum(a != b for stage in stages for a, b in zip(before.owners(stage), after.owners[stage.id], strict=True))

    def _count(self, change: LocalRescale) -> None:
        """A change is over: done, or refused for a reason that the run caused."""
        report = change.report
        if report is not None:
            self.world.figures["changes of layout"] += 1
            for name in COUNTED:
                self.world.figures[f"changes: {name}"] += getattr(report, name)
        elif change.refusal:
            self.world.figures["changes refused"] += 1
            if not any(why in change.refusal for why in CAUSED):
                raise AssertionError(f"a change was refused: {change.refusal}")

    def start(self, job: SimulatedJob, direction: str) -> bool:
        """Ask for a change of this kind; False if none is possible now. Vertices that cannot shrink grow first."""
        if self.is_under_way(job):
            return False
        rng, counts = self.rng, asked_of(job.plan)
        self._last = direction
        now = {name: counts[name] for name in movable(job.plan)}
        if direction == "rescale up":
            now = {name: count for name, count in now.items() if count < REPLICAS_MAX}
        elif direction == "rescale down" and not any(count > 1 for count in now.values()):
            self.start(job, "rescale up")
            return False
        elif direction == "rescale down":
            now = {name: count for name, count in now.items() if count > 1}
        if not now:
            return False
        if direction == "rescale up":
            name = rng.choice(sorted(now))
            wanted = {name: rng.randint(now[name] + 1, REPLICAS_MAX)}
        elif direction == "rescale down":
            name = rng.choice(sorted(now))
            wanted = {name: rng.randint(1, now[name] - 1)}
        else:
            names = rng.sample(sorted(now), rng.randint(min(2, len(now)), len(now)))
            wanted = {name: rng.choice([n for n in range(1, REPLICAS_MAX + 1) if n != now[name]]) for name in names}
        return self._ask(job, wanted)

    def _ask(self, job: SimulatedJob, wanted: dict[str, int]) -> bool:
        groups = self.rng.choice(STEPS) if self.groups == "drawn" else self.groups
        assert not isinstance(groups, str)
        timeout_s = self.rng.choice(TIMEOUTS_S)
        self.world.trace(("rescale", sorted(wanted.items()), groups, timeout_s))
        self.wanted.update(wanted)
        started = job.start_rescale(wanted, groups=groups, timeout_s=timeout_s)
        self.world.figures[f"changes of {min(len(wanted), 2)} vertices{'' if len(wanted) < 2 else ' or more'}"] += 1
        return started is not None

    def refuse_another(self, job: SimulatedJob) -> bool:
        """Ask for a change while one is under way: it must be refused, and change nothing."""
        change = job.rescaling
        names = movable(job.plan)
        try:
            job.start_rescale({names[0]: REPLICAS_MAX + 1})
        except RescaleRefused as error:
            if "under way" not in str(error) or job.rescaling is not change:
                raise AssertionError(f"refused, but {error}") from error
            return True
        raise AssertionError("a second change of layout was begun")


__all__ = ["KEY_GROUPS", "Changes", "movable"]
