"""Realistic mistakes, planted in the production cores one at a time: the simulation has to catch them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from rayad.actors.local.part_events import EventWriter
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.send_windows import SendWindows
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.input.live_input import LiveInput
from rayad.actors.replica.participant import Participant, SendOut
from rayad.actors.replica.parts.part_files import StateChain, dumped
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.store.input_log import InputLog
from rayad.actors.store.job_store import JobStore
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.dataflow.items import _ItemsPart
from rayad.snapshots.alignment import Alignment
from rayad.snapshots.attempts import SnapshotAttempts
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import SnapshotStore
from tests.programs.program import Program
from tests.simulation.harness import Outcome, program_of, run, undisturbed

Plant = Callable[[ExitStack], None]
DEFECTS: dict[str, Plant] = {}
TICKS_WITH_A_DEFECT = 30_000
"""A job with a defect that is not over by then does not end. Tests give runs without a defect as many: none is caught for being long."""


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS[plant.__name__.replace("_", " ")] = plant
    return plant


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Within the block the production code has this defect."""
    with ExitStack() as stack:
        plant(stack)
        yield


def first_violation(plant: Plant, seeds: range, *, rescales: bool = False, program: Program | None = None) -> Outcome | None:
    """The first run with a violation by a defect; None: it was not caught. ``program``: instead of those that the seeds draw."""
    for seed in seeds:
        drawn, parallelism = program_of(seed, rescales=rescales)
        chosen = program or drawn
        undisturbed(chosen.name, parallelism if chosen.parallelism is None else chosen.parallelism)  # computed without the defect
        with planted(plant):
            outcome = run(seed, rescales=rescales, program=program, ticks_max=TICKS_WITH_A_DEFECT)
        if outcome.violation:
            return outcome
    return None


def around(stack: ExitStack, owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a method or function by ``function``, which gets the original as its first argument."""
    real = getattr(owner, name)
    stack.enter_context(patch.object(owner, name, lambda *args, **kwargs: function(real, *args, **kwargs)))


def _changed_cut(stack: ExitStack, **changes: Any) -> None:
    def cut(real: Any, self: Any) -> Any:
        rest = real(self)
        for name, value in changes.items():
            setattr(rest, name, value)
        return rest

    around(stack, ReplicaCore, "cut", cut)


# -- alignment and logs --------------------------------------------------------------------------------------------------------


@defect
def nothing_is_blocked(stack: ExitStack) -> None:
    around(stack, Alignment, "blocked", lambda real, self, channel: False)


@defect
def feedback_is_not_blocked_before_the_capture(stack: ExitStack) -> None:
    around(stack, Alignment, "blocked", lambda real, self, channel: channel in self.regular and real(self, channel))


@defect
def the_loop_log_is_dropped(stack: ExitStack) -> None:
    def log(real: Any, self: Any, channel: Any, data: Any) -> Any:
        return None if channel in self.alignment.feedback else real(self, channel, data)

    around(stack, Participant, "log", log)


@defect
def batches_are_logged_twice(stack: ExitStack) -> None:
    around(stack, Participant, "log", lambda real, self, *args: (real(self, *args), real(self, *args)))


@defect
def the_unaligned_log_lacks_batches_ahead_of_the_barrier(stack: ExitStack) -> None:
    around(stack, Participant, "on_barrier", lambda real, self, channel, barrier, ahead=(): real(self, channel, barrier))


@defect
def batches_that_wait_at_the_sender_are_forgotten(stack: ExitStack) -> None:
    around(stack, SendWindows, "waiting_batches", lambda real, self: [])


@defect
def the_barrier_goes_before_partials_in_combiners(stack: ExitStack) -> None:
    def act(real: Any, self: Any, *args: Any) -> Any:
        with patch.object(self._core.outputs, "flush", lambda: None):
            effects = real(self, *args)
        return sorted(effects, key=lambda effect: isinstance(effect, SendOut))

    around(stack, Participant, "_act", act)


@defect
def the_state_is_taken_when_it_is_written(stack: ExitStack) -> None:
    def take_state(real: Any, self: Any, capture: Any, **options: Any) -> None:
        state, capture.state = capture.state, None
        real(self, capture, **options)
        capture.state = state

    def write(real: Any, self: Any) -> None:
        capture = self.waiting[0].capture
        written, _ = self._open[capture.barrier.number]
        self._open[capture.barrier.number] = written, None if capture.state is None else dumped(capture.state(), capture.runs)
        real(self)

    around(stack, EventWriter, "take_state", take_state)
    around(stack, EventWriter, "write", write)


@defect
def replicas_are_not_told_that_an_attempt_was_given_up(stack: ExitStack) -> None:
    def on_frame(real: Any, self: Any, kind: int, payload: Any) -> None:
        if kind != Kind.GIVE_UP:
            real(self, kind, payload)

    around(stack, HostSnapshots, "on_frame", on_frame)


# -- what a part holds ---------------------------------------------------------------------------------------------------------


@defect
def notifications_are_forgotten(stack: ExitStack) -> None:
    _changed_cut(stack, notifications=[])


@defect
def the_capability_of_an_end_vertex_is_forgotten(stack: ExitStack) -> None:
    _changed_cut(stack, hold=None)


@defect
def parked_batches_are_forgotten(stack: ExitStack) -> None:
    _changed_cut(stack, parked=[])


@defect
def restored_batches_are_not_counted(stack: ExitStack) -> None:
    def count_waiting(real: Any, self: Any, edge: Any, time: Any, batches: int = 1) -> None:
        if batches < 0:
            real(self, edge, time, batches)

    around(stack, ProgressChanges, "count_waiting", count_waiting)


@defect
def the_source_resumes_one_record_early(stack: ExitStack) -> None:
    around(stack, _ItemsPart, "offset", lambda real, self: (self.epoch, max(0, self.row - 1)))


@defect
def the_source_resumes_one_record_late(stack: ExitStack) -> None:
    around(stack, _ItemsPart, "offset", lambda real, self: (self.epoch, self.row + 1))


@defect
def a_live_input_resumes_in_epoch_0(stack: ExitStack) -> None:
    def resume(real: Any, self: Any, rest: Any) -> None:
        real(self, {**rest, "input_epoch": 0 if rest["input_epoch"] is not None else None})

    around(stack, LiveInput, "resume", resume)


@defect
def frames_of_live_inputs_are_not_sent_again(stack: ExitStack) -> None:
    around(stack, InputLog, "rewind", lambda real, self, taken: setattr(self, "taken", self.first + len(self._frames)))


@defect
def increments_build_on_any_base(stack: ExitStack) -> None:
    def choose(self: Any, vertex: Any, barrier: Any) -> Any:
        changes = vertex.take_changes()
        return (changes, True) if changes is not None and self.files else (vertex.checkpoint, False)

    stack.enter_context(patch.object(StateChain, "choose", choose))


@defect
def an_increment_does_not_name_its_base(stack: ExitStack) -> None:
    around(stack, StateChain, "wrote", lambda real, self, barrier, file, *, incremental: real(self, barrier, file, incremental=False))


# -- the coordinator -----------------------------------------------------------------------------------------------------------


@defect
def one_acknowledgement_is_enough(stack: ExitStack) -> None:
    def on_report(real: Any, self: Any, report: Any) -> Any:
        answer = real(self, report)
        if self._pending is not None:
            self._pending.missing.clear()
        return answer

    around(stack, SnapshotAttempts, "on_report", on_report)


@defect
def acknowledgements_of_attempts_given_up_count(stack: ExitStack) -> None:
    def on_report(real: Any, self: Any, report: Any) -> Any:
        return real(self, dataclasses.replace(report, number=self._pending.barrier.number) if self._pending is not None else report)

    around(stack, SnapshotAttempts, "on_report", on_report)


@defect
def parts_are_acknowledged_before_they_are_written(stack: ExitStack) -> None:
    later: list[Any] = []

    def write(real: Any, self: Any, number: int, vertex: str, replica: int, chunks: Any, *, attempt: str = "0") -> Any:
        kept = [bytes(chunk) for chunk in chunks]
        file = real(self, number, vertex, replica, kept, attempt=attempt)
        while later:
            later.pop()()
        path = f"{self.folder}/{file.path}"
        os.rename(path, f"{path}.later")
        later.append(lambda: os.path.exists(f"{path}.later") and os.rename(f"{path}.later", path))
        return file

    around(stack, SnapshotStore, "write_part", write)


@defect
def staged_output_of_attempts_given_up_is_lost(stack: ExitStack) -> None:
    around(stack, Participant, "_take", lambda real, self, barrier: (self._staged.clear(), real(self, barrier))[1])


@defect
def staged_output_for_the_end_is_lost_at_recovery(stack: ExitStack) -> None:
    around(stack, SnapshotAttempts, "__init__", lambda real, self, *args, staged=(), **kwargs: real(self, *args, **kwargs))


# -- the store -----------------------------------------------------------------------------------------------------------------


@defect
def checksums_are_not_verified(stack: ExitStack) -> None:
    def read(self: Any, file: Any) -> bytes:
        with self.filesystem.open_input_stream(f"{self.folder}/{file.path}") as stream:
            return bytes(stream.read())

    stack.enter_context(patch.object(SnapshotStore, "read_part", read))
    stack.enter_context(patch.object(SnapshotStore, "map_part", lambda self, file: memoryview(read(self, file))))
    around(stack, SnapshotStore, "check_listed", lambda real, self, manifest, suspected=(): None)
    around(stack, SnapshotStore, "check_part", lambda real, self, file: None)


@defect
def a_number_can_be_taken_twice(stack: ExitStack) -> None:
    around(stack, SnapshotStore, "_refuse_unless_newest", lambda real, self, *args: None)

    def link(source: str, target: str) -> None:
        with open(source, "rb") as file, open(target, "wb") as out:
            out.write(file.read())

    stack.enter_context(patch("os.link", link))


@defect
def only_the_same_number_is_refused(stack: ExitStack) -> None:
    """The fence is gone when retention deletes the claim."""
    around(stack, SnapshotStore, "_refuse_unless_newest", lambda real, self, *args: None)


@defect
def recovery_takes_the_snapshots_of_any_run(stack: ExitStack) -> None:
    def recover(real: Any, self: Any) -> Any:
        load = self.store.load
        with patch.object(self.store, "load", lambda number: dataclasses.replace(load(number), run=self.run)):
            return real(self)

    around(stack, JobStore, "recover", recover)


@defect
def retention_deletes_bases_of_increments(stack: ExitStack) -> None:
    def files(self: Any) -> Any:
        found = {file for part in self.parts for file in part.files[-1:]}
        return found | {part.rest for part in self.parts if part.rest is not None} | {staged.file for staged in self.staged}

    stack.enter_context(patch.object(Manifest, "files", files))


# -- sinks ---------------------------------------------------------------------------------------------------------------------


@defect
def sinks_commit_before_the_manifest(stack: ExitStack) -> None:
    def publish(real: Any, self: Any, snapshots: Any, incarnation: int, notes: Any) -> Any:
        known: dict[str, Any] = {"job": self.job, "graph": self.graph, "key_groups": self.plan.key_groups, "run": self.run}
        self.let_sinks_publish(snapshots.manifest(incarnation=incarnation, notes=notes, **known))
        return real(self, snapshots, incarnation, notes)

    around(stack, JobStore, "publish", publish)


@defect
def sinks_do_not_commit_again_at_recovery(stack: ExitStack) -> None:
    def go_on(real: Any, self: Any, manifest: Any) -> None:
        with patch.object(self, "let_sinks_publish", lambda manifest: None):
            real(self, manifest)

    around(stack, JobStore, "_go_on_from", go_on)


@defect
def sinks_are_not_rolled_back(stack: ExitStack) -> None:
    around(stack, JobStore, "_go_on_from", lambda real, self, manifest: self.let_sinks_publish(manifest))


@defect
def a_claim_commits_under_its_own_number(stack: ExitStack) -> None:
    stack.enter_context(patch("rayad.actors.store.job_store.number_for_sinks", lambda manifest: manifest.number))


@defect
def a_fallback_leaves_no_claim(stack: ExitStack) -> None:
    around(stack, JobStore, "_take_again", lambda real, self, manifest: manifest)
