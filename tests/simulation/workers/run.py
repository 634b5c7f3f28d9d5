"""One seed: a program on the workers that ship, with snapshots and crashes; each step is a turn of one process.

Shipped as they are: :class:`Worker`, :class:`ProgressWorker`, :class:`SnapshotLeader`, the job's store. Stand-ins: the bus, the clock, and
the coordinator's plane, which brings frames to the leader and carries out its effects.
"""

from __future__ import annotations

import datetime as dt
import pickle
import random
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import rayad as rd
from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.layouts import asked_of, layout_notes, names_of, restored, starts_of
from rayad.actors.lead.placing import placed
from rayad.actors.local.results import results_of
from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Kind, driver_name, pack_number, unpack_save
from rayad.actors.replica.captures import Capture, Written
from rayad.actors.replica.input.source_parts import parts_of
from rayad.actors.replica.parts.part_files import dumped, write_rest, write_staged, write_state
from rayad.actors.replica.places import Places
from rayad.actors.store.job_store import JobStore
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.dataflow.config import RunConfig, SnapshotConfig
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.snapshots.attempts import SnapshotAttempts
from rayad.snapshots.manifest import Manifest
from tests.programs.model import canonical
from tests.programs.program import Program
from tests.simulation.changes import movable
from tests.simulation.workers.bus import Bus, Clock
from tests.simulation.workers.changing import Changing

STEPS_MAX = 60_000
FAST = "/dev/shm"


class EventWriter:
    """Writes the parts of a replica, each as an event of its own."""

    def __init__(self, run: Run, stage: Stage, replica: int) -> None:
        self.done: deque[Written] = deque()
        self.waiting: deque[Written] = deque()
        self._run = run
        self._where = (run.store.store, stage, replica, run.incarnation) if run.store is not None else None
        self._open: dict[int, tuple[Written, list[Any] | None]] = {}
        run.writers.append(self)

    def take_state(self, capture: Capture, *, records: int, inline: bool) -> None:
        self._open[capture.barrier.number] = Written(capture), None if capture.state is None else dumped(capture.state(), capture.runs)

    def complete(self, capture: Capture) -> None:
        self.waiting.append(self._open[capture.barrier.number][0])

    def give_up(self, number: int) -> None:
        self._open.pop(number, None)
        self.waiting = deque(written for written in self.waiting if written.capture.barrier.number != number)

    def write(self) -> None:
        """The next part is in the store."""
        written = self.waiting.popleft()
        capture = written.capture
        _, state = self._open.pop(capture.barrier.number)
        assert self._where is not None
        if state is not None:
            write_state(*self._where, written, state)
        written.rest = write_rest(*self._where, capture.barrier, capture.rest)
        written.staged = write_staged(*self._where, capture.barrier, capture.staged)
        self.done.append(written)

    def close(self) -> None:
        pass


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
    """Args: program, parallelism: what runs; placement: who shares a process; crashes: how often all is lost; mode: of snapshots;
    changes: of layout, how many; eager: a snapshot begins as soon as all have come to the coordinator, and its barriers are fast."""

    seed: int
    program: Program
    parallelism: Any
    placement: Any
    crashes: int = 0
    mode: str = "none"
    changes: int = 0
    eager: bool = False
    inputs: dict[str, LiveInput] = field(default_factory=dict)
    writers: list[EventWriter] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.folder = tempfile.mkdtemp(prefix="rayad-workers-", dir=FAST if Path(FAST).is_dir() else None)
        self.config = RunConfig(
            storage_path=self.folder if self.mode != "none" else None,
            window_batches=1 if self.eager else chance.choice([1, 2, 4, 64]),
            window_bytes=chance.choice([300, 3000, 16 << 20]),
            spill_memory_bytes=chance.choice([1, 400, 64 << 20]),
            combine_hold_s=chance.choice([0.0, 0.001, 0.05]),
            snapshots=SnapshotConfig(timeout_s=3600.0, alignment_timeout_s={"unaligned": 0.0, "timeout": 0.01}.get(self.mode)),
        )
        self.plan: Plan = self.program.flow().plan(self.parallelism)
        self.asked = asked_of(self.plan)
        self.places: Places = placed(self.plan, self.placement)
        self.change: Changing | None = None
        self.turns = 0
        self.asks = 6  # for snapshots: a run whose snapshots follow each other would never end
        self.retired: list[dict[int, Any]] = []
        """What replicas that have retired had staged, without snapshots."""
        self.retirements = 0
        self.clock = Clock(chance)
        self.bus = Bus(chance)
        self.incarnation = 0
        self.store: JobStore | None = None
        self.leader: lead.SnapshotLeader | None = None
        self.final: Manifest | None = None
        self.steps = 0
        self.program.feed(self)
        self._events: deque[Callable[[], None]] = deque()  # of the store

    def input(self, name: str) -> LiveInput:
        return self.inputs.setdefault(name, LiveInput())

    # -- processes ---------------------------------------------------------------------------------
    def begin(self) -> None:
        """All processes of an incarnation, from the beginning or from the newest snapshot."""
        self.bus.clear()
        self.writers.clear()
        self._events.clear()
        self.incarnation = max(self.incarnation, self.change.leader.incarnation if self.change is not None else 0) + 1
        self.is_finished = self._were_there = False
        self.change = None
        parts: Any = {}
        if self.mode != "none":
            manifest = self._resume()
            self.plan = restored(self.plan, manifest.notes, self.asked)
            assert self.leader is not None
            self.leader.lay_out(names_of(self.plan), starts_of(self.plan))
            parts = parts_of(manifest, self.plan)
            self.coordinator = self.bus.link(COORDINATOR, self.incarnation)
        self.progress = ProgressWorker(self.plan, self.places, self.bus.link(PROGRESS, self.incarnation))
        self.workers: dict[str, Worker] = {}
        names = list(self.places.processes(self.plan))
        for name in names:
            self.come(name, self.plan, self.incarnation)
        for name in self.chance.sample(names, len(names)):
            for at in self.places.replicas_at(name, self.plan):
                self.workers[name].hold(*at, part=parts.get((self.plan.stage(at.stage).name, at.replica)))
        addresses = dict.fromkeys([*names, PROGRESS, COORDINATOR])
        for name in self.chance.sample(names, len(names)):
            self.workers[name].begin(addresses)
        self.drivers = {}
        for name, stage in self.plan.inputs.items():
            self.bus.link(driver_name(stage), self.incarnation)
            process = self.places.process_of(stage, 0)
            self.drivers[name] = [stage, process, self.workers[process].hosts[stage].core.input.frames]

    def come(self, name: str, plan: Plan, incarnation: int) -> None:
        """A process comes."""
        around = Surroundings(self.bus.link(name, incarnation), self.clock, self._moment, self._writer)
        self.workers[name] = Worker(name, plan, self.places, self.config, around, store=self._parts_store())

    def end(self, name: str) -> None:
        """A process is ended: nothing that it had sent, and nothing on its way to it, may be lost but marks and credits."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.close()
        for way in [way for way in self.bus.ways if name in way]:
            lost = [Kind(frame.kind).name for frame in self.bus.ways.pop(way) if frame.kind in (Kind.DATA, Kind.TRANSFER, Kind.REPORT)]
            assert not lost, f"{lost} from {way[0]} to {way[1]} are lost with {name}"
        self.bus.leave(name)

    def turn(self, name: str) -> None:
        """A process takes a turn without frames."""
        if not self.workers[name].is_over:
            self.workers[name].turn([])

    def _writer(self, stage: Stage, replica: int) -> EventWriter:
        return EventWriter(self, stage, replica)

    def _parts_store(self) -> Any:
        return self.store.store if self.store is not None else None

    def _moment(self) -> dt.datetime:
        return EPOCH_UTC + dt.timedelta(seconds=self.clock.now_s)

    # -- the coordinator -------------------------------------------------------------------------------
    def _resume(self) -> Manifest:
        if self.store is None:
            self.store = JobStore(self.plan.name, self.plan, self.config, run="run")
            begun = self.store.begin()
            self.leader = lead.SnapshotLeader(
                self.plan.name,
                self.store.config.snapshots,
                finally_published=[sink.key for sink in self.plan.sinks if not getattr(sink.sink, "commits", False)],
                replicas=names_of(self.plan),
                starts=starts_of(self.plan),
                begun=begun,
                published=self.store.newest,
                now_s=self.clock.now_s,
            )
            return begun
        assert self.leader is not None
        manifest = self.store.recover()
        self._act(self.leader.begin_anew(manifest, self.store.newest, self.clock.now_s))
        return manifest

    def tell(self, event: Any) -> None:
        assert self.leader is not None
        self._act(self.leader.handle(event, self.clock.now_s))

    def _act(self, effects: list[Any]) -> None:
        stages = {stage.name: stage.id for stage in self.plan.stages}
        for effect in effects:
            match effect:
                case lead.Begin(barrier, replicas):
                    for name, number in replicas:
                        self._say(stages[name], number, Kind.BEGIN, barrier.pack())
                case lead.GiveUp(attempt, _, replicas):
                    for name, number in replicas:
                        self._say(stages[name], number, Kind.GIVE_UP, attempt.to_bytes(8, "little"))
                case lead.Publish(number):
                    assert self.leader is not None
                    attempts = self.leader.snapshots
                    self._events.append(partial(self._publish, number, attempts, attempts.copied()))
                case lead.Commit(manifest):
                    self._events.append(partial(self._commit, manifest))
                case lead.SavepointTaken():
                    self.figures["savepoints"] += 1
                case lead.Fail(why):
                    raise AssertionError(why)

    def _say(self, stage: int, number: int, kind: Kind, payload: bytes) -> None:
        self.coordinator.send(self.places.process_of(stage, number), kind, stage, payload)

    def _publish(self, number: int, attempts: SnapshotAttempts, copied: SnapshotAttempts) -> None:
        assert self.store is not None
        manifest = self.store.publish(copied, self.incarnation, {"layout": layout_notes(self.plan, self.asked)})
        attempts.take_back(copied)
        self.figures["snapshots"] += 1
        if manifest.kind == "final":
            self.final = manifest
        self.tell(lead.Published(number, manifest))

    def _commit(self, manifest: Manifest) -> None:
        assert self.store is not None
        self.store.let_sinks_publish(manifest)
        self.tell(lead.Committed(manifest, self.store.retain()))

    def _hear(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.kind == Kind.PART:
                self.tell(lead.PartWritten(pickle.loads(frame.payload)))
            elif frame.kind == Kind.FINISHED:
                if not self.is_finished:
                    self.is_finished = True
                    self.tell(lead.Finished())
            elif frame.kind == Kind.SAVE_WANTED:
                self.tell(lead.SnapshotWanted(*unpack_save(frame.payload)))
            else:
                raise AssertionError(f"the coordinator got {frame}")

    # -- steps -----------------------------------------------------------------------------------------
    def drive(self) -> dict[str, Any]:
        """To the end; gives the results."""
        try:
            self.begin()
            crash_at = sorted(self.chance.randint(1, 900) for _ in range(self.crashes))
            while not self.is_over:
                self.steps += 1
                assert self.steps < STEPS_MAX, f"it does not end: {self._told()}"
                if crash_at and self.steps >= crash_at[0] and self.final is None:
                    crash_at.pop(0)
                    self.figures["crashes"] += 1
                    self._close()
                    self.begin()
                are_there = self.mode != "none" and self.bus.have_met(self.workers, COORDINATOR)
                may_ask = are_there and self.final is None and not self.is_finished
                is_first = are_there and not self._were_there
                self._were_there = are_there
                is_at_once = is_first and self.eager
                if may_ask and (is_at_once or (self.asks > 0 and self.chance.random() < (0.4 if is_first else 0.02))):
                    self.asks -= 1
                    self.tell(lead.SavepointWanted(self.steps))
                if are_there and self.chance.random() < 0.2:
                    self.tell(lead.Tick())
                if self.changes and not self.is_finished and self.final is None and self.chance.random() < 0.02:
                    self._begin_change()
                self._step()
            return self._results()
        finally:
            self._close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def is_over(self) -> bool:
        if self.mode != "none":
            return self.final is not None and not self._events
        joining = self.change.leader.joining if self.change is not None else ()
        return self.progress.is_over and all(worker.is_over for name, worker in self.workers.items() if name not in joining)

    def _begin_change(self) -> None:
        """Replicas come or go."""
        names = sorted(movable(self.plan))
        if not names or (self.change is not None and not self.change.is_over):
            return
        if self.change is not None:
            self.turns = self.change.leader.turn
        self.changes -= 1
        wanted = {name: self.chance.randint(1, 4) for name in self.chance.sample(names, self.chance.randint(1, len(names)))}
        self.change = Changing(self, wanted, self.turns)
        self.figures["changes"] += 1

    def _step(self) -> None:
        ready: list[Any] = [("deliver", way) for way in sorted(self.bus.ways)]
        ready += [("connect", pair) for pair in self.bus.dialled]
        ready += [("turn", name) for name, worker in self.workers.items() if not worker.is_over and worker.timeout_s() == 0.0]
        ready += [("write", writer) for writer in self.writers if writer.waiting]
        ready += [("feed", name) for name, (_, _, at) in self.drivers.items() if at < len(self.inputs[name].frames)]
        if any(not self.progress.link.is_behind(process) for process, _ in self.progress.late):
            ready.append(("views", None))  # there is room for what its link did not take
        if self._events:
            ready.append(("store", None))
        if self.change is not None:
            self.change.give_up()
            ready += self.change.events()
        if not ready:
            due = [(worker.timeout_s(), name) for name, worker in self.workers.items() if not worker.is_over]
            assert due, f"nothing can move: {self._told()}"
            waits_s, _ = min(due)
            self.clock.now_s += max(1e-4, waits_s)
            self.figures["waited"] += 1
            assert self.figures["waited"] < 20_000, f"nothing can move: {self._told()}"
            ready = [("turn", name) for _, name in due]
        urgent = [one for one in ready if self.eager and one[0] == "deliver" and one[1][0] == COORDINATOR]
        kind, what = self.chance.choice(urgent or ready)
        if kind == "deliver":
            self._arrive(what[1], self.bus.deliver(what))
        elif kind == "turn":
            self.workers[what].turn([])
        elif kind == "connect":
            self.bus.connect(what)
        elif kind == "views":
            self._arrive(PROGRESS, [])
        elif kind == "write":
            what.write()
            self._wake()
        elif kind == "store":
            self._events.popleft()()
        elif kind in ("call", "look"):
            assert self.change is not None
            self.change.perform(kind, what)
        else:
            self._feed(what)

    def _wake(self) -> None:
        """A part is written: its worker looks."""
        for worker in self.workers.values():
            if any(host.snapshots is not None and host.snapshots.writer.done for host in worker.hosts.values()):
                worker.turn([])

    def _arrive(self, name: str, frames: list[Frame]) -> None:
        if name == PROGRESS:
            self.progress.turn(frames)
            self.progress.look_whether_over()
        elif name == COORDINATOR:
            self._hear(frames)
        elif name in self.workers and not self.workers[name].is_over:
            self.workers[name].turn(frames)

    def _feed(self, name: str) -> None:
        stage, process, at = self.drivers[name]
        kind, payload = self.inputs[name].frames[at]
        self.bus.links[driver_name(stage)].send(process, kind, stage, [pack_number(at), *payload])
        self.drivers[name][2] = at + 1

    # -- the end -----------------------------------------------------------------------------------------
    def _results(self) -> dict[str, Any]:
        if self.mode != "none":
            assert self.store is not None
            assert self.final is not None
            return results_of(self.plan, self.store.publish_finally(self.final))
        self._look_for_rests()
        staged = [*self.retired, *(left.staged for worker in self.workers.values() for left in worker.results().values())]
        receipts = {sink.id: sink.sink.publish([parts[sink.id] for parts in staged if sink.id in parts]) for sink in self.plan.sinks}
        return results_of(self.plan, receipts)

    def _look_for_rests(self) -> None:
        """Nothing waits anywhere."""
        for worker in self.workers.values():
            assert not worker.handed_over
            for host in worker.hosts.values():
                assert host.place.sender.is_empty, host.place.sender.describe()
                left = [*host.arrived.regular, *host.arrived.held]
                assert not left, f"batches are left at {host.name}"
                assert not len(host.arrived.feedback), f"batches that came round a loop are left at {host.name}"

    def _close(self) -> None:
        for worker in getattr(self, "workers", {}).values():
            worker.close()

    def _told(self) -> str:
        held = {name: [host.place.sender.describe() for host in worker.hosts.values()] for name, worker in self.workers.items()}
        doing = self.change.told() if self.change is not None else "no change"
        return f"{len(self.bus.ways)} ways, {held}, {self.progress.look(True)[2]}, {doing}, over: {self.progress.is_over}"


def run(seed: int, program: Program, parallelism: Any, placement: Any, **options: Any) -> Run:
    """Run a seed, and compare with what the program must give."""
    one = Run(seed, program, program.parallelism if program.parallelism is not None else parallelism, placement, **options)
    result = one.drive()
    program.verify(result)
    return one


__all__ = ["Run", "canonical", "run"]
