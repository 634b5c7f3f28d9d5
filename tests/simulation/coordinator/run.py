"""One seed: a program under the coordinator that ships, whose processes die, freeze and lose each other, and whose layout changes."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rayad as rd
from rayad.actors.coordinator.processes.spares import Spares
from rayad.actors.coordinator.rescaling import Rescaler, Wish
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.job import JobState
from rayad.actors.lead.placing import placed
from rayad.actors.local.results import results_of
from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.protocol import Kind, driver_name, pack_number
from rayad.dataflow.config import RunConfig, SnapshotConfig
from tests.programs.program import Program
from tests.simulation.changes import movable
from tests.simulation.coordinator.claims import ENOUGH_S, Claims
from tests.simulation.coordinator.scaling import Scaled
from tests.simulation.coordinator.vertex_process import VertexProcess
from tests.simulation.coordinator.world import STEPS_MAX, Stuck, World

FAST = "/dev/shm"
FREEZE_S = (0.5, 3.0, 30.0, 1e9)
HEARTBEAT_S = 8.0
DRAIN_S = (5.0, 30.0, ENOUGH_S, ENOUGH_S, float("inf"))
JOIN_S = (0.0, 10.0, 40.0)
"""After so many seconds another node comes for one that is gone."""


@dataclass
class Plan:
    """What a seed does to a job. Each number is how often."""

    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    changes: int = 0
    savepoints: int = 0
    store_away: int = 0
    busy: int = 0
    drains: int = 0
    lost_nodes: int = 0
    stopped_nodes: int = 0

    @property
    def faults(self) -> int:
        """How many failures they may come to."""
        return self.kills + self.freezes + self.cuts + self.nodes

    @property
    def nodes(self) -> int:
        """What happens to nodes."""
        return self.drains + self.lost_nodes + self.stopped_nodes


class LiveInput:
    """What a program sends to a live input; the bus carries it when the seed says so."""

    def __init__(self) -> None:
        self.frames: list[tuple[Kind, list[bytes]]] = []
        self.epoch = 0
        self.closed = False
        self.sent = 0

    def send(self, records: Any) -> None:
        self.frames.append((Kind.INPUT_BATCH, [bytes(part) for part in encode_batch(rd.Timestamp(self.epoch), list(records))]))

    def advance_to(self, epoch: int) -> None:
        self.epoch = epoch
        self.frames.append((Kind.INPUT_ADVANCE, [epoch.to_bytes(8, "little")]))

    def close(self) -> None:
        self.closed = True
        self.frames.append((Kind.INPUT_CLOSE, [b""]))

    def __enter__(self) -> LiveInput:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Run:
    """Args: see :func:`run`."""

    seed: int
    program: Program
    parallelism: Any
    placement: Any
    recovery: str = "graph"
    mode: str = "aligned"
    todo: Plan = field(default_factory=Plan)
    span: int = 1500
    """Within so many events all of that begins."""
    steps_max: int = STEPS_MAX
    is_scaled: bool = False
    """By an autoscaler."""
    stays: bool = False
    """Its processes are spare when it is complete."""
    before: Run | None = None
    """The job before it, whose processes have stayed."""
    nodes: int = 1
    is_tight: bool = False
    """The nodes have just the processors that the job needs."""
    inputs: dict[str, LiveInput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.world = World(chance, self.steps_max) if self.before is None else self.before.world
        around = self.world.surroundings()
        self.spares = Spares(around) if self.before is None else self.before.spares
        self.folder = tempfile.mkdtemp(prefix="rayad-coordinator-", dir=FAST if Path(FAST).is_dir() else None)
        keeps = self.mode != "none"
        alignment = {"unaligned": 0.0, "timeout": 0.01}.get(self.mode)
        failures: dict[str, Any] = {
            "max_failures": 4 * self.todo.faults + 4,
            "delay_s": chance.choice([0.0, 1.0]),
            "recovery": self.recovery,
        }
        self.config = RunConfig(
            storage_path=self.folder if keeps else None,
            window_batches=chance.choice([1, 2, 4, 64]),
            window_bytes=chance.choice([300, 3000, 16 << 20]),
            cpus_per_replica=1.0,
            spill_memory_bytes=chance.choice([1, 400, 64 << 20]),
            combine_hold_s=chance.choice([0.0, 0.001, 0.05]),
            snapshots=SnapshotConfig(
                interval_s=chance.choice([0.02, 0.1, 1.0, *([300.0] if self.todo.drains else [])]) if keeps else None,
                alignment_timeout_s=alignment,
            ),
            failures=rd.FailureConfig(heartbeat_timeout_s=HEARTBEAT_S, same_error_max=None, **(failures if keeps else {"max_failures": 0})),
        )
        self.plan = self.program.flow().plan(self.parallelism)
        places = placed(self.plan, self.placement)
        identity = (str(self.seed), b"0123456789abcdef", self.plan.name)
        self.job = RunningJob(self.plan, self.config, *identity, places, around, self.spares, stays=self.stays)
        if self.before is None:
            count = len(places.processes(self.plan))
            self.world.nodes.begin(self.nodes, float(-(-count // self.nodes) if self.is_tight else 1000))
        self.world.nodes.is_strict = not self.todo.changes
        self.claims = Claims(self)
        self.rescaler = Rescaler(self.job, self._again)
        self.supervisor = Supervisor(self.job, self.rescaler)
        self.savepoints: list[Future[str]] = []
        self.figures = self.world.figures
        self.outcome: Any = None
        self.program.feed(self)
        self._drivers: dict[str, Any] = {}
        world = self.world
        world.job, world.more_events, world.perform_more = self.job, self._events, self._perform
        world.before_step, world.over = [self.claims.on_step, self._on_step], []
        self.scaled = Scaled(self) if self.is_scaled else None
        at = {what: sorted(chance.randint(1, self.span) for _ in range(count)) for what, count in vars(self.todo).items()}
        self._due = sorted((step, what) for what, steps in at.items() for step in steps)

    def _again(self, rescaler: Rescaler, wish: Wish) -> None:
        self.claims.asked_again()
        self.world.wishes.append(wish)

    def leave_alone(self) -> None:
        """Nothing happens to it by itself."""
        self._due.clear()

    def input(self, name: str) -> LiveInput:
        return self.inputs.setdefault(name, LiveInput())

    def drive(self) -> dict[str, Any]:
        """To the end; gives the results."""
        try:
            self.outcome = self.supervisor.run("run")
            return self._results()
        except Stuck as error:
            raise Stuck(f"{error}; {self._told()}") from None
        finally:
            if not self.stays:
                for process in self.world.processes:
                    process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- what a seed does --------------------------------------------------------------------------------
    def _on_step(self) -> None:
        while self._due and self.world.steps >= self._due[0][0]:
            what = self._due.pop(0)[1]
            if getattr(self, f"_do_{what}")():
                self.figures[what] += 1

    def _victim(self) -> Any:
        alive = self.world.alive()
        return self.chance.choice(alive) if alive else None

    def _do_kills(self) -> bool:
        victims = [victim for victim in (self._victim() for _ in range(self.chance.choice((1, 1, 1, 2, 4)))) if victim is not None]
        for victim in victims:
            self.claims.killed += not victim.is_dead
            victim.kill()
        return bool(victims)

    def _do_freezes(self) -> bool:
        victim = self._victim()
        if victim is not None:
            victim.frozen_until_s = self.world.clock.now_s + self.chance.choice(FREEZE_S)
        return victim is not None

    def _do_busy(self) -> bool:
        victim = self._victim()
        if victim is not None:
            victim.busy_until_s = self.world.clock.now_s + self.chance.choice(FREEZE_S[:3])
        return victim is not None

    def _do_cuts(self) -> bool:
        lines = [line for line in self.world.lines.lines if not line.is_over and not any("driver" in end.name for end in line.ends)]
        if lines:
            self.chance.choice(lines).end(self.chance, "it was cut")
        return bool(lines)

    def _joins_s(self) -> float:
        """When another node comes for one that is gone. Workers can do without: they share."""
        return self.chance.choice((*JOIN_S, float("inf")) if self.placement == "workers" else JOIN_S)

    def _do_drains(self) -> bool:
        return self.world.nodes.drain(self.chance.choice(DRAIN_S), self._joins_s())

    def _do_lost_nodes(self) -> bool:
        return self.world.nodes.lose(self.chance.choice((0.0, 20.0, 60.0)), self._joins_s())

    def _do_stopped_nodes(self) -> bool:
        return self.world.nodes.stop(self.chance.choice((3.0, 12.0, 30.0, 100.0)))

    def _do_store_away(self) -> bool:
        self.world.store_away_until_s = self.world.clock.now_s + self.chance.choice((0.5, 5.0, 20.0))
        return True

    def _do_savepoints(self) -> bool:
        if self.job.snapshots is None or self.job.state is not JobState.RUNNING:
            return False
        self.savepoints.append(self.job.snapshots.ask_savepoint())
        return True

    def _do_changes(self) -> bool:
        names = sorted(movable(self.plan))
        if not names:
            return False
        wanted = {name: self.chance.randint(1, 4) for name in self.chance.sample(names, self.chance.randint(1, len(names)))}
        self.world.wishes.append(self.rescaler.wish(wanted, 300.0))
        return True

    # -- who feeds live inputs ---------------------------------------------------------------------------
    def _hosts(self) -> list[tuple[str, Any, Any]]:
        found = []
        for name, stage in sorted(self.plan.inputs.items()):
            process = self.job.crew.actors.get(self.job.places.process_of(stage, 0))
            if not isinstance(process, VertexProcess) or process.is_dead or process.running is None or process.host is None:
                continue
            host = process.host.worker.hosts.get(stage)
            if host is not None and host.is_registered:
                found.append((name, process, host))
        return found

    def _events(self) -> list[tuple[str, Any]]:
        ready: list[tuple[str, Any]] = []
        for name, process, host in self._hosts():
            link, target, at = self._drivers.get(name, (None, None, 0))
            if target is not process.link:
                ready.append(("find", (name, process, host)))
            elif at < len(self.inputs[name].frames) and link.connected(process.name):
                ready.append(("feed", name))
        return ready

    def _perform(self, kind: str, what: Any) -> None:
        if kind == "find":
            name, process, host = what
            stage = self.plan.inputs[name]
            link = self.world.lines.link(driver_name(stage), process.link.incarnation)
            link.is_polled = True
            link.start_connect(process.name, process.link.listen())
            self._drivers[name] = (link, process.link, host.core.input.frames)
            return
        link, target, at = self._drivers[what]
        kind_of, payload = self.inputs[what].frames[at]
        link.send(target.name, kind_of, self.plan.inputs[what], [pack_number(at), *payload])
        self._drivers[what] = (link, target, at + 1)

    # -- the end -------------------------------------------------------------------------------------------
    def _results(self) -> dict[str, Any]:
        outcome = self.outcome
        assert outcome.state is JobState.COMPLETE, f"{outcome.state}: {outcome.failure}; {self.world.errors}"
        assert outcome.stays == (self.stays and not outcome.statistics.failures), "processes stay when all has gone well, and only then"
        assert len(self.world.alive()) == len(self.spares), "processes outlive the job"
        assert outcome.stays or not len(self.spares)
        assert all(future.done() for future in self.savepoints), "somebody waits for a savepoint for ever"
        for wish in list(self.world.wishes):
            for _ in range(3):
                wish.look(0.0)
            assert wish.is_over, "somebody waits for a change of layout for ever"
            self.world.over.append(wish)
        self.claims.on_step()
        self.claims.at_end()
        if self.scaled is not None:
            self.scaled.look_at_end()
        self.figures["savepoints taken"] += sum(future.exception() is None for future in self.savepoints)
        self.figures["failures survived"] += outcome.statistics.failures
        self.figures["snapshots"] += len(outcome.statistics.snapshots)
        return results_of(self.job.plan, outcome.receipts)

    def _told(self) -> str:
        job, leader = self.job, self.supervisor.leader.recovery
        told = f"state {job.state}, recovery {leader.phase.value} waits for {sorted(leader.waiting)}, calls of {sorted(job.calls.names())}"
        dead = [process.name for process in self.world.processes if process.is_dead]
        return f"{told}, dead {dead[-5:]}, wishes {len(self.world.wishes)}, errors {self.world.errors[-5:]}, due {self._due}"


def run(seed: int, program: Program, parallelism: Any, placement: Any, **options: Any) -> Run:
    """Run a seed, and compare with what the program must give."""
    log = logging.getLogger("rayad")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        one = Run(seed, program, program.parallelism if program.parallelism is not None else parallelism, placement, **options)
        program.verify(one.drive())
    finally:
        log.setLevel(level)
    return one


__all__ = ["Counter", "Plan", "Run", "run"]
