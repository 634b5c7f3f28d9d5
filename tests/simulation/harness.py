"""One simulated run: a program, a seed, a list of faults. Readers' views and the job's results must be those of the model."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import rayad as rd
from rayad.actors.lead.layouts import asked_of
from rayad.actors.local.local_job import LocalJob
from rayad.actors.plane.protocol import Kind
from rayad.actors.store.input_log import FramesGone
from rayad.actors.store.job_store import JobStore
from rayad.actors.worker import workplace
from rayad.actors.worker.payloads import Ended
from rayad.dataflow.config import FailureConfig, RunConfig, ScalingConfig, SnapshotConfig
from rayad.dataflow.items import CollectSink
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS
from rayad.progress import DataflowError, SnapshotError
from rayad.snapshots.barrier import Barrier
from tests.programs.catalog import PROGRAMS
from tests.programs.model import canonical
from tests.programs.program import Program
from tests.simulation.changes import KEY_GROUPS, movable
from tests.simulation.damage import refused
from tests.simulation.disk import FaultyDisk
from tests.simulation.faults import Fault, faults_of
from tests.simulation.holding import INPUT_SHARE
from tests.simulation.job import DriverDied, Replaced, SimulatedCrash, SimulatedJob, slow_sources
from tests.simulation.moving import MOVING
from tests.simulation.replaced import end_replaced
from tests.simulation.shelf import Shelf, ShelfSink
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.watched import WatchedEnds, watched_activations
from tests.simulation.world import TICKS_MAX, TIMEOUT_S, World

FAULTS = 5
CATALOG_SHARE = 0.25
LOOPS = [program for program in TOPOLOGIES if "loop" in program.name]
"""Programs that are drawn twice as often."""
NO_NEW_DRIVER = {"live"}
"""Programs whose feed asserts what holds only for a driver that feeds from the beginning."""
FIXED = {"sinks"}
"""Programs whose result depends on the number of writers."""
FAST = "/dev/shm"
STATE_MEMORY_BYTES: int | None = None
"""The bound of each replica."""


@dataclass
class Outcome:
    """The outcome of a run; ``violation`` is empty if all was right."""

    seed: int
    program: str
    parallelism: int
    violation: str = ""
    where: str = ""
    digest: str = ""
    ticks: int = 0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    rescales: bool = False

    @property
    def again(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.simulation --seed {self.seed} --{'' if self.rescales else 'no-'}rescales"


def all_programs() -> dict[str, Program]:
    """All programs by name; those of the simulation itself first."""
    return {program.name: program for program in [*PROGRAMS, *TOPOLOGIES, *MOVING]}


@cache
def programs_that_move(of: str) -> list[Program]:
    """The programs with a vertex that can be rescaled; loops, and windows that wait, twice; ``of``: "catalog", "topologies"."""
    delayed = [program for program in PROGRAMS if "delayed" in program.name]
    programs = PROGRAMS if of == "catalog" else [*MOVING, *MOVING, *TOPOLOGIES, *LOOPS, *delayed]
    return [p for p in programs if p.name not in FIXED and movable(p.flow().plan(p.parallelism or 2))]


def program_of(seed: int, *, rescales: bool = False) -> tuple[Program, int]:
    """The program of a seed, and its number of replicas."""
    rng = random.Random(~seed)
    if rescales:
        program = rng.choice(programs_that_move("catalog" if rng.random() < CATALOG_SHARE else "topologies"))
        return program, rng.choice([1, 2, 2, 3])
    program = rng.choice(PROGRAMS) if rng.random() < CATALOG_SHARE else rng.choice(TOPOLOGIES + LOOPS)
    return program, rng.choice([1, 2, 2, 3, 3])


@cache
def undisturbed(name: str, parallelism: int) -> dict[str, Counter[str]]:
    """The results of a program without faults, by sink; sinks whose result is not a list of records are left out."""
    program = all_programs()[name]
    job = program.flow().submit(runtime="local", parallelism=parallelism, **program.options)
    program.feed(job)
    result = job.wait()
    program.verify(result)
    return {sink: canonical(result[sink]) for sink in result if isinstance(result[sink], Sequence) and program.expected()}


def run_drawn(given: tuple[int, bool]) -> Outcome:
    """Run a seed, with changes of layout or without."""
    return run(given[0], rescales=given[1])


def run(
    seed: int,
    *,
    faults: list[Fault] | None = None,
    program: Program | None = None,
    count: int = FAULTS,
    rescales: bool = False,
    groups: int | str | None = "drawn",
    mode: str | None = None,
    input_share: float = INPUT_SHARE,
    ticks_max: int = TICKS_MAX,
) -> Outcome:
    """Run one seed.

    Args:
        faults, program: instead of those that the seed draws.
        count: how many faults it draws.
        rescales: whether there are changes of layout.
        groups: how many key-groups a step of a change moves; "drawn": drawn.
        mode: of snapshots, instead of the one that the seed draws.
        input_share: see :class:`World`.
        ticks_max: a job that is not over by then does not end.
    """
    drawn, parallelism = program_of(seed, rescales=rescales)
    chosen = program or drawn
    if chosen.parallelism is not None:
        parallelism = chosen.parallelism
    folder = tempfile.mkdtemp(prefix="rayad-simulation-", dir=FAST if os.path.isdir(FAST) else None)
    outcome = Outcome(seed, chosen.name, parallelism, rescales=rescales)
    strikes = faults_of(seed, count, rescales=rescales) if faults is None else faults
    run_of = _Run(seed, chosen, parallelism, strikes, folder, mode=mode, rescales=rescales, groups=groups, input_share=input_share)
    run_of.world.ticks_max = ticks_max
    try:
        ends = partial(WatchedEnds, random.Random(f"sockets of {seed}"))
        world = run_of.world
        with patch.object(workplace, "ChannelEnds", ends), slow_sources(world), watched_activations(), world.changes.hearing():
            run_of.drive()
    except Exception as error:
        outcome.violation = f"{type(error).__name__}: {error}"[:1500]
        outcome.where = " < ".join(f"{f.name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)[-6:]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    world = run_of.world
    outcome.digest, outcome.ticks, outcome.cells, outcome.figures = world.digest, world.ticks, world.struck_cells, world.figures
    return outcome


class _Run:
    def __init__(
        self,
        seed: int,
        program: Program,
        parallelism: int,
        faults: list[Fault],
        folder: str,
        *,
        mode: str | None,
        rescales: bool,
        groups: int | str | None,
        input_share: float,
    ) -> None:
        self.rng = rng = random.Random(seed * 7919 + 13)
        self.seed = seed
        self.program = program
        self.parallelism = parallelism
        if program.name in NO_NEW_DRIVER:
            faults = [Fault("crash all", f.phase, f.delay) if needs_new_driver(f) else f for f in faults]
            faults = [f for f in faults if f.phase != "finishing"]
        drawn = rng.choice(["aligned", "aligned", "unaligned", "mixed", "timeout"])
        mode = mode or drawn
        self.rescales = rescales
        disk, has_loop = FaultyDisk(folder), "loop" in program.name
        self.world = World(seed, faults, mode, has_loop, disk, rescales=rescales, groups=groups, input_share=input_share)
        self.world.start_job = self.start
        self.is_committing = rng.random() < 0.6 or any(f.kind == "error in commit" for f in faults)
        self.expected = undisturbed(program.name, parallelism)
        self.drivers = 0
        self.config = RunConfig(
            storage_path=folder,
            window_batches=rng.choice([1, 2, 4, 64]),
            window_bytes=rng.choice([300, 3000, 16 << 20]),
            spill_memory_bytes=rng.choice([1, 400, 64 << 20]),
            combine_hold_s=rng.choice([0.0, 0.001, 0.05]),
            spill_directory=FAST if os.path.isdir(FAST) else None,
            state_memory_bytes=STATE_MEMORY_BYTES,
            snapshots=SnapshotConfig(
                timeout_s=TIMEOUT_S,
                alignment_timeout_s={"unaligned": 0.0, "timeout": 0.05}.get(mode),
                keep=rng.choice([1, 2, 2, 3]),
            ),
            failures=FailureConfig(max_failures=1000, recovery="graph" if rescales else rng.choice(["graph", "graph", "upstream"])),
            key_groups=KEY_GROUPS if rescales else DEFAULT_KEY_GROUPS,
        )

    # -- drivers -----------------------------------------------------------------------------------
    def start(self) -> SimulatedJob:
        """A driver starts the job: the first one from the beginning, later ones resume it."""
        flow = rd.Dataflow(self.program.name.replace("sim ", "sim-"))
        self.program.build(flow)
        if self.is_committing:
            self._put_on_shelves(flow)
        resume = "latest" if self.drivers else None
        self.drivers += 1
        self.world.reports.clear()  # a new run has new actors: answers of the old ones are lost
        self.world.changes.answers.clear()
        config = _replace(self.config, resume=resume)
        scaling = ScalingConfig(parallelism=self.parallelism)
        if self.rescales and self.drivers > 1 and self.program.parallelism is None and self.rng.random() < 0.3:
            before = flow.plan(self.parallelism)
            asked = {name: self.rng.randint(1, 3) for name in movable(before)}
            other = ScalingConfig(parallelism=asked, default=self.parallelism)
            now = asked_of(flow.plan(scaling=other))
            if all(now[name] == count or name in asked for name, count in asked_of(before).items()):
                scaling = other  # the job resumes with another layout than the snapshot's
        plan = flow.plan(scaling=scaling, key_groups=config.key_groups)
        store = JobStore(flow.name, plan, config, self.world.store, run=f"run {self.drivers}")
        return SimulatedJob(self.world, flow, config, scaling, seed=self.seed + 1000 * self.drivers, store=store)

    def _put_on_shelves(self, flow: rd.Dataflow) -> None:
        for node in flow.graph.nodes:
            if node.kind is NodeKind.SINK and type(node.op) is CollectSink:
                key = node.options.get("key") or node.name
                shelf = self.world.shelves.get(key)
                if shelf is None:
                    expected = self.expected.get(key)
                    shelf = Shelf(key, expected, self.world.is_published, self.world.damaged_numbers.__contains__, self.world.is_whole)
                    self.world.shelves[key] = shelf
                node.op = ShelfSink(shelf, columnar=node.op.columnar)

    def drive(self) -> None:
        """Start drivers until one of them has the results."""
        world = self.world
        job: SimulatedJob | None = None
        for _ in range(60):
            try:
                if job is None:
                    job = self.start()
                    self._check_damage(job)
                    if world.successor is not None:  # another driver was faster, while this one started
                        raise Replaced
                self.program.feed(_Resumed(job) if self.drivers > 1 else job)
                self._verify(job, job.wait())
                return
            except (DriverDied, SimulatedCrash):
                job, world.successor = None, None
            except Replaced:
                job, world.successor = world.successor, None
            except (SnapshotError, DataflowError) as error:
                if not self._may_fail(error):
                    raise
                job = None
        raise AssertionError("60 drivers in a row")

    def _may_fail(self, error: Exception) -> bool:
        """Whether a job may end in an error: its claim or its results could not be written, or nothing whole is left."""
        world = self.world
        if "simulated" in str(error):
            return True
        spoilt = world.disk.damaged
        if spoilt and ("whole" in str(error) or any(path in str(error) for path in spoilt)):  # sinks' parts are read at the end only
            if world.damage_to_find is not None:
                path, world.damage_to_find = world.damage_to_find[0], None
                refused(world, error, path)
            world.disk.mend()
            return True
        return bool(world.damaged_numbers) and isinstance(error, FramesGone)  # only a driver can send so much again

    def _check_damage(self, job: SimulatedJob) -> None:
        """A new driver after damage: check that it says what it refused."""
        if self.world.damage_to_find is not None:
            path, self.world.damage_to_find = self.world.damage_to_find[0], None
            assert job.snapshots is not None
            refused(self.world, "; ".join(job.snapshots.store.remarks), path)

    def _verify(self, job: LocalJob, result: Any) -> None:
        world = self.world
        self.program.verify(result)
        for sink, expected in self.expected.items():
            got = canonical(result[sink])
            if got != expected:
                raise AssertionError(f"{sink}: {sorted((got - expected).elements())[:5]} {sorted((expected - got).elements())[:5]}")
        for shelf in world.shelves.values():
            if shelf.expected is not None and shelf.seen != shelf.expected:
                raise AssertionError(f"{shelf.name}: readers do not see {sorted((shelf.expected - shelf.seen).elements())[:8]}")
        job.check_invariants()
        nothing_waits(job)
        for host in job.runtime.processes.hosts():
            world.figures["spilled at the sender"] += host.place.sender.spilled_batches
            world.figures["spilled at the receiver"] += host.arrived.feedback.spilled_batches
        before = {name: dict(shelf.seen) for name, shelf in world.shelves.items()}
        end_replaced(world)
        if before != {name: dict(shelf.seen) for name, shelf in world.shelves.items()}:
            raise AssertionError("a replaced job has changed what readers see")
        world.figures["recoveries"] += job.runtime.recoveries if job.snapshots is not None else 0
        world.figures["drivers"] += self.drivers


def nothing_waits(job: LocalJob) -> None:
    """Check that at the end no batch waits: for credit, for a receiver, on its way, or in a feedback queue."""
    processes = job.runtime.processes
    for way, waiting in processes.bus.ways.items():
        if any(frame.kind == Kind.DATA for frame in waiting):
            raise AssertionError(f"batches are left from {way[0]} to {way[1]}")
    for worker in processes.workers.values():
        if worker.handed_over:
            raise AssertionError(f"something is left in {worker.name}: {worker.handed_over}")
        for host in worker.hosts.values():
            if not host.place.sender.is_empty:
                raise AssertionError(f"batches are left at {host.name}: {host.place.sender.describe()}")
            arrived = host.arrived
            if any(not isinstance(payload, (Barrier, Ended)) for _, _, payload in (*arrived.regular, *arrived.held)):
                raise AssertionError(f"batches are left at {host.name}")
            arrived.feedback.unblock()
            while arrived.feedback.has_next():
                if arrived.feedback.pop()[2] is not None:
                    raise AssertionError(f"a batch that came round a loop is left at {host.name}")


def needs_new_driver(fault: Fault) -> bool:
    """Whether a fault is the death of the driver, or may lead to it."""
    is_claim = fault.phase == "recovering" and fault.kind == "lost answer"
    of_the_disk = ("truncated", "flipped", "missing", "full disk", "torn write", "store away")
    return is_claim or fault.kind in ("driver death", "second coordinator", *of_the_disk)


def _replace(config: RunConfig, **changes: Any) -> RunConfig:
    import dataclasses

    return dataclasses.replace(config, **changes)


class _Resumed:
    """A job for a driver that sends all input from the beginning: input that the snapshot has is left out."""

    def __init__(self, job: SimulatedJob) -> None:
        self._job = job
        self._inputs: dict[str, _ResumedInput] = {}

    def input(self, name: str) -> Any:
        if name not in self._inputs:
            self._inputs[name] = _ResumedInput(self._job.input(name))
        return self._inputs[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)


class _ResumedInput:
    def __init__(self, real: Any) -> None:
        self._real = real
        self._left = real.sent

    def send(self, records: Any) -> None:
        if self._left:
            self._left -= 1
        else:
            self._real.send(records)

    def advance_to(self, epoch: int) -> None:
        if epoch > self._real.epoch and not self._real.closed:
            self._real.advance_to(epoch)

    def close(self) -> None:
        self._real.close()

    def __enter__(self) -> _ResumedInput:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
