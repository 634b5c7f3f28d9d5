"""The surroundings of the jobs of one run: the clock, the disk, the readers, and the faults."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, Kind
from rayad.actors.replica.graph_shape import edge_names
from rayad.snapshots.store import MANIFEST
from tests.simulation.changes import Changes
from tests.simulation.damage import can_damage, choose_damage, damage
from tests.simulation.disk import FaultyDisk, FaultyStore, whole_snapshots
from tests.simulation.faults import CHANGES, DAMAGES, Fault
from tests.simulation.holding import INPUT_SHARE
from tests.simulation.in_flight import check_in_flight
from tests.simulation.job import DriverDied, Replaced, SimulatedCrash, SimulatedJob, SimulatedRuntime, phases_now
from tests.simulation.replaced import step_replaced
from tests.simulation.shelf import Shelf
from tests.snapshots import attempts

TICK_S = 0.01
TIMEOUT_S = 12.0
CHECK_EVERY = 8
"""Ticks between two checks that every batch that senders count as in flight is somewhere."""
PATIENCE = 400
"""A fault is left out after so many steps without its phase."""
TICKS_MAX = 200_000
NO_SNAPSHOT = ("steady", "finishing", "moving", "leaving")
"""Phases that need no snapshot, except for damage."""


class World:
    """One run.

    Args:
        faults: the faults, which strike one after another.
        mode: "aligned", "unaligned" or "mixed".
        start_job: starts the job again, from its newest snapshot.
        rescales, groups: whether there are changes of layout, and how many key-groups a step moves (see :class:`Changes`).
        input_share: the share of a source's turns at which it reads until the faults that are left are in place.
    """

    def __init__(
        self,
        seed: int,
        faults: list[Fault],
        mode: str,
        has_loop: bool,
        disk: FaultyDisk,
        *,
        rescales: bool = False,
        groups: int | str | None = "drawn",
        input_share: float = INPUT_SHARE,
    ) -> None:
        self.rng = random.Random(seed ^ 0x5EED)
        self.input_share = input_share
        self.placement = self.rng.choice(["workers", "workers", "vertices", "mixed"])
        self.looks = self.rng.choice([1, 3, 16])
        """After how many looks at the clock a worker's slice is over, on average."""
        self.mode = mode
        self.has_loop = has_loop
        self.disk = disk
        self.store = FaultyStore(disk)
        self.shelves: dict[str, Shelf] = {}
        self.changes = Changes(self, seed, is_on=rescales, groups=groups)
        self.current: SimulatedJob | None = None
        self.zombies: list[SimulatedJob] = []
        self.is_replaced_moving = False
        self.successor: SimulatedJob | None = None
        self.start_job: Callable[[], SimulatedJob]
        self.clock_s = 0.0
        self.ticks, self.ticks_max = 0, TICKS_MAX
        self.struck_cells: Counter[tuple[str, str]] = Counter()
        self.figures: Counter[str] = Counter()
        self.left = list(faults)
        self.armed: Fault | None = None
        self.damaged_numbers: set[int] = set()
        self.damage_to_find: tuple[str, int] | None = None
        self._is_quiet = self.rng.random() < 0.4  # only the snapshots that faults need, and a last one that is given up
        self._has_ended = False
        self._impatience = self.rng.choice([0.0, 0.0, 0.03])  # probability of giving an attempt up, at each step
        self._is_uneven = self.rng.random() < 0.5
        self._lags: dict[Any, bool] = {}  # channels that are slow, in an uneven run
        self._delay = 0
        self._waited = 0
        self._is_set = False  # the armed fault is in place and has not struck yet
        self._dead: Any = None
        self._dead_for = 0
        self._slow = 0
        self._is_slow = False
        self._give_ups = 0
        self._interrupt_at = -1
        self.reports: list[Frame] = []
        self._is_savepoint_due = self.rng.random() < 0.3
        self._hash = hashlib.blake2b(digest_size=16)
        disk.on_failed = self._on_write_failed
        disk.on_read = self._on_read
        disk.on_write = self.on_write

    # -- trace -------------------------------------------------------------------------------------
    def trace(self, what: Any) -> None:
        """One more event of this run."""
        self._hash.update(repr(what).encode())

    @property
    def digest(self) -> str:
        """A digest of all events so far."""
        return self._hash.hexdigest()

    # -- one step ----------------------------------------------------------------------------------
    def tick(self, job: SimulatedJob) -> None:
        """Before each step of the current job: time passes, snapshots begin, faults strike."""
        self.ticks += 1
        self.clock_s += TICK_S
        if self.ticks % CHECK_EVERY == 0:
            check_in_flight(job)
            self.figures["held up"] += sum(host.place.sender.is_held_up for host in job.runtime.processes.hosts())
        if self.ticks > self.ticks_max:
            raise AssertionError(f"the job does not end: {job.explain_stuck()}")
        for zombie in list(self.zombies):
            if self.rng.random() < 0.3:
                step_replaced(self, zombie)
        if self._dead is not None:
            self._dead_for -= 1
            if self._dead_for < 0:
                (what, where), self._dead = self._dead, None
                self._done()
                before = list(job.cores.values())
                held = job.runtime.processes.places.replicas_at(where, job.plan)
                job.crash([at.stage for at in held] if what == "crash replica" else None)
                self.figures["recovered upstream alone"] += any(core in before for core in job.cores.values())
                self.after_crash()
        if self.armed is None and self.left:
            self.armed = self.left.pop(0)
            self._delay, self._waited, self._is_set = self.armed.delay, 0, False
        self.changes.tick(job)
        self._maybe_begin(job)
        self._maybe_give_up(job)
        pending = job.snapshots.leader.snapshots.pending if job.snapshots is not None else None
        if self._give_ups and job.snapshots is not None and pending is not None and not pending.final:
            self._give_ups -= 1
            attempts.give_up(job, "simulated, once more")
        if self.armed is not None and not self._is_set:
            self._advance(job, self.armed)
        elif self.armed is not None and self._dead is None:
            self._waited += 1
            if self._waited > PATIENCE:
                self._leave_out()

    def _advance(self, job: SimulatedJob, fault: Fault) -> None:
        self._waited += not self.changes.is_under_way(job)
        if self._waited > PATIENCE:
            self._leave_out()
            return
        if fault.phase == "finishing":
            return
        wanted = "steady" if fault.phase == "recovering" else fault.phase
        if wanted not in phases_now(job) and fault.phase != "recovering":
            return
        if self._delay > 0:
            self._delay -= 1
            return
        self._strike(job, fault)

    def _maybe_begin(self, job: SimulatedJob) -> None:
        snapshots = job.snapshots
        assert snapshots is not None
        if not attempts.may_begin(job):
            return
        if self._is_quiet and self.armed is None and (self.left or self._has_ended):
            return
        wants = self.armed is not None and (self.armed.kind in DAMAGES or self.armed.phase not in NO_SNAPSHOT)
        if self.rng.random() < (0.3 if wants else 0.03):
            unaligned = self.mode == "unaligned" or (self.mode == "mixed" and self.rng.random() < 0.5)
            if self.armed is not None and self.armed.phase == "logging" and not self.has_loop:
                unaligned = True
            kind = "savepoint" if self._is_savepoint_due else "snapshot"
            self._is_savepoint_due = False
            attempts.begin(job, kind, unaligned=unaligned)
            self.figures["begun"] += 1

    def _maybe_give_up(self, job: SimulatedJob) -> None:
        assert job.snapshots is not None
        pending = job.snapshots.leader.snapshots.pending
        if pending is None or pending.final:
            return
        if self._is_quiet and self.armed is None and not self.left and not self._has_ended and self.rng.random() < 0.2:
            self._has_ended = True
            attempts.give_up(job, "simulated, and no other follows")
        elif self.rng.random() < self._impatience:
            self.figures["given up besides"] += 1
            self._impatience = 0.9 * self._impatience  # barriers of attempts given up accumulate on slow channels
            attempts.give_up(job, "simulated, besides")

    def on_idle(self, job: SimulatedJob) -> bool:
        """Nothing can move. While faults are left, keep the job from its end."""
        if self._dead is not None:
            return True
        if self.changes.is_under_way(job):
            raise AssertionError(f"a change of layout is stuck: {job.explain_stuck()}")
        if self.armed is not None and self.armed.phase == "finishing" and self._dead is None:
            if not self._is_set and job.tracker.is_complete():
                self._strike(job, self.armed)
            return False
        if self.armed is None and not self.left:
            return False
        if self.armed is None and self.left[0].phase == "finishing":
            return True  # the next tick arms the fault
        snapshots = job.snapshots
        assert snapshots is not None
        if attempts.may_begin(job):
            attempts.begin(job, unaligned=self.mode == "unaligned")
            self.figures["begun"] += 1
        return True

    @property
    def is_coordinator_dead(self) -> bool:
        """Whether no coordinator leads changes of layout now."""
        return self._dead is not None and self._dead[0] == "crash coordinator"

    @property
    def armed_needs_time(self) -> bool:
        """Whether faults are left that strike before the end."""
        return (self.armed is not None and self.armed.phase != "finishing") or any(f.phase != "finishing" for f in self.left)

    def waits_with_input(self) -> bool:
        """Whether no input is read at this moment, since faults are left that may need records."""
        if not (self.armed is not None or self.left) or not self.armed_needs_time:
            return False
        needs_records = self._is_set and self.armed is not None and not self.armed.kind.startswith("rescale")
        return self.rng.random() < 1 - (INPUT_SHARE if needs_records else self.input_share)

    def look(self, runtime: SimulatedRuntime, event: Any) -> None:
        """Count the records in snapshots; remember acknowledgements, which may come again."""
        kind, what = event
        processes = runtime.processes
        if kind == "write":
            capture = processes.writers[what].waiting[0].capture
            feedback = {name for edge, name in edge_names(runtime.plan).items() if runtime.plan.edge_by_id[edge].is_feedback}
            self.figures["logged on feedback edges"] += sum(name in feedback for name, _, _ in capture.rest.log)
            self.figures["logged on other edges"] += sum(name not in feedback for name, _, _ in capture.rest.log)
            self.figures["waiting at the sender"] += len(capture.rest.outbox)
            self.figures["parked"] += len(capture.rest.parked)
            self.figures["notifications"] += len(capture.rest.notifications)
            self.figures["increments"] += capture.is_increment
        elif kind == "deliver" and what[1] == COORDINATOR:
            self.reports.extend(frame for frame in processes.bus.ways[what] if frame.kind == Kind.PART)
            del self.reports[:-8]
        elif kind == "store" and runtime.snapshots is not None and runtime.snapshots.leader.snapshots.is_complete:
            self.figures["published"] += 1

    # -- faults ------------------------------------------------------------------------------------
    def struck(self, kind: str) -> None:
        """Note that a fault was seen to happen."""
        fault = self.armed
        if fault is None or fault.kind != kind:
            return
        self.struck_cells[kind, fault.phase] += 1
        self.trace(("fault", kind, fault.phase))
        if kind != "slow disk":
            self._done()

    def _done(self) -> None:
        self.armed = None
        self._is_set = False

    def _leave_out(self) -> None:
        """Skip a fault that cannot strike in this program (for example without state to restore): the next one is armed."""
        self.figures["left out"] += 1
        if self.armed is not None and self.armed.phase != "finishing":
            self.left.insert(0, Fault("crash all", self.rng.choice(["steady", "aligning", "writing"]), 0))
        self._is_slow = False
        self._slow, self.disk.full, self.disk.lost_answers, self.disk.away = 0, {}, 0, 0
        for shelf in self.shelves.values():
            shelf.failing = 0
        self._interrupt_at = -1
        self._done()

    def breaks(self, kind: str) -> bool:
        """Whether the armed fault is of this kind and strikes now."""
        if self.armed is None or self.armed.kind != kind or not self._is_set:
            return False
        self.struck(kind)
        return True

    def _strike(self, job: SimulatedJob, fault: Fault) -> None:
        kind, phase, rng = fault.kind, fault.phase, self.rng
        snapshots = job.snapshots
        assert snapshots is not None
        if kind in DAMAGES:
            if not can_damage(self):
                return
            if phase == "recovering":
                self._interrupt(job, rng.randint(0, 2))
            else:
                damage(self, job, kind)
        elif phase == "recovering":
            if kind == "error in restore" and not can_damage(self):
                return
            if kind in ("full disk", "torn write", "lost answer", "store away"):
                self._set_disk(kind, "manifest")
                raise DriverDied
            if kind == "error in commit":
                if not self._set_shelf():
                    return
                self._is_set = True
                job.crash()
                self.after_crash()
                return
            self._interrupt(job, rng.randint(0, len(job.cores) + (4 if kind == "crash coordinator" else 0)))
        elif kind == "crash all":
            self.struck(kind)
            job.crash()
            self.after_crash()
        elif kind in ("crash replica", "crash progress", "crash coordinator"):
            self.struck_cells[kind, phase] += 1
            self.trace(("fault", kind, phase))
            self._is_set = True
            self._dead, self._dead_for = (kind, rng.choice(sorted(job.runtime.processes.workers))), rng.randint(0, 12)
        elif kind == "driver death":
            if phase == "finishing":
                self._is_set = True
                self._interrupt_at = rng.randint(0, 2)
                return
            self.struck(kind)
            raise DriverDied
        elif kind == "second coordinator":
            self.struck(kind)
            self._replace()
            raise Replaced
        elif kind == "slow disk":
            self._is_set = True
            self._slow = rng.randint(3, 40)
            if rng.random() < 0.5:
                self.clock_s += 2 * TIMEOUT_S
        elif kind in ("full disk", "torn write", "lost answer", "store away"):
            self._is_set = True
            self._set_disk(kind, "part" if phase == "writing" or (phase == "finishing" and rng.random() < 0.5) else "manifest")
        elif kind == "error in commit":
            self._is_set = self._set_shelf()
        elif kind == "given up":
            self._give_ups = rng.randint(0, 3)
            self.struck(kind)
            attempts.give_up(job, "simulated")
        elif kind in CHANGES:
            if self.changes.start(job, kind):
                self.struck(kind)
        elif kind == "another change":
            if self.changes.refuse_another(job):
                self.struck(kind)
        elif kind == "late acknowledgement":
            if self.reports:
                for frame in rng.choices(self.reports, k=rng.randint(1, 3)):
                    job.runtime.processes.bus.put(COORDINATOR, frame)
                self.struck(kind)
        else:
            self._is_set = True

    def _interrupt(self, job: SimulatedJob, after: int) -> None:
        """Make the job recover, with another fault meanwhile."""
        self._is_set = True
        self._interrupt_at = after
        job.crash()
        self.after_crash()

    def after_crash(self) -> None:
        """A job that was started while this one recovered replaces it."""
        self._interrupt_at = -1
        if self.successor is not None:
            raise Replaced

    def on_start(self) -> None:
        """All replicas are about to be built."""
        self.figures["starts"] += 1
        fault = self.armed
        if fault is not None and fault.kind in DAMAGES and fault.phase == "recovering" and self._is_set and can_damage(self):
            choose_damage(self, fault.kind)  # between the check of the files and reading them
            self.struck(fault.kind)

    def on_core_start(self) -> None:
        """One replica is about to be built."""
        self._count_down()
        if self.current is not None and self.current.rescaling is not None and self.breaks("error in a newcomer"):
            raise SimulatedCrash("error in a newcomer")

    def _on_read(self) -> None:
        fault = self.armed
        if fault is not None and fault.kind == "crash coordinator" and fault.phase == "recovering":
            self._count_down()

    def _count_down(self) -> None:
        fault = self.armed
        if self._interrupt_at < 0 or fault is None or not self._is_set or fault.phase != "recovering" or fault.kind in DAMAGES:
            return
        self._interrupt_at -= 1
        if self._interrupt_at >= 0 or fault.kind in ("error in restore",):
            return
        self.struck(fault.kind)
        if fault.kind == "driver death":
            raise DriverDied
        if fault.kind == "second coordinator":
            self._replace()
            return
        raise SimulatedCrash(fault.kind)

    def _replace(self) -> None:
        old = self.current
        assert old is not None
        try:
            self.successor = self.start_job()
        except Exception:  # it has replaced nobody: the store did not take its claim
            self.current = old
            raise
        self.zombies.append(old)

    # -- the disk and the readers --------------------------------------------------------------------
    def _set_disk(self, kind: str, what: str) -> None:
        self._is_set = True
        self.disk.torn = kind == "torn write"
        if kind == "lost answer":
            self.disk.lost_answers = 1
        elif kind == "store away":
            self.disk.away = self.rng.randint(1, 5)
        else:
            self.disk.full = {what: self.rng.randint(1, 4)}

    def _set_shelf(self) -> bool:
        shelves = list(self.shelves.values())
        if not shelves:
            return False
        shelf = self.rng.choice(shelves)
        shelf.failing = 1
        shelf.failing_late = self.rng.random() < 0.5
        shelf.on_failed = lambda: self.struck("error in commit")
        return True

    def _on_write_failed(self, what: str) -> None:
        fault = self.armed
        self.figures["writes failed"] += 1
        if fault is not None and self._is_set and fault.kind in ("full disk", "torn write", "lost answer", "store away"):
            self.struck(fault.kind)

    def on_write(self) -> None:
        """Called before each write, at which the driver may die while the job finishes."""
        if self.is_replaced_moving:
            return
        fault = self.armed
        if fault is None or not self._is_set or fault.kind != "driver death" or fault.phase != "finishing":
            return
        self._interrupt_at -= 1
        if self._interrupt_at < 0:
            self.struck(fault.kind)
            raise DriverDied

    def is_whole(self, number: int) -> bool:
        """Whether a job could resume from a snapshot."""
        return number in whole_snapshots(self.store)

    def is_published(self, number: int) -> bool:
        """Whether readers may see a snapshot."""
        return os.path.exists(f"{self.disk.folder}/{number:012d}/{MANIFEST}")
