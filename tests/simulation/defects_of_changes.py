"""Realistic mistakes in changes of layout, planted one at a time, as in :mod:`tests.simulation.defects`."""

from __future__ import annotations

import pickle
from collections import deque
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.actors.lead import calls, layouts
from rayad.actors.lead.asking import Answered, Questions
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Finish, Phase, Refuse
from rayad.actors.lead.snapshot_leader import SnapshotLeader
from rayad.actors.plane.protocol import COORDINATOR, Kind
from rayad.actors.replica.migration import Migration, Transfer
from rayad.actors.replica.participant import Participant
from rayad.actors.replica.parts.part_files import dumped
from rayad.actors.replica.state_moves import StateMoves
from rayad.actors.worker.rescaling import MARK, HostRescale
from rayad.actors.worker.workplace import WorkplaceCarrier
from rayad.dataflow.plan import Layout
from rayad.snapshots.attempts import SnapshotAttempts
from tests.simulation import moving
from tests.simulation.defects import Plant, around

DEFECTS_OF_CHANGES: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_CHANGES[plant.__name__.replace("_", " ")] = plant
    return plant


# -- progress ------------------------------------------------------------------------------------------------------------------


@defect
def there_is_no_fence(stack: ExitStack) -> None:
    """Forwarded batches leave before the report that counts them is applied."""

    def after_report(real: Any, self: Any) -> None:
        migration = self.migration
        while migration is not None and migration.outgoing:
            self._send(*migration.outgoing.popleft())
        real(self)

    around(stack, HostRescale, "after_report", after_report)


@defect
def rights_are_not_moved_with_state(stack: ExitStack) -> None:
    def send_state(self: Any, target: int, state: Any) -> None:
        data = None if state is None else b"".join(dumped(state))
        self.outgoing.append((target, Transfer("state", state=data)))

    stack.enter_context(patch.object(Migration, "_send_state", send_state))


@defect
def moved_rights_are_not_counted(stack: ExitStack) -> None:
    _uncounted(stack, "_send_state")


@defect
def moved_rights_are_not_released(stack: ExitStack) -> None:
    def take(real: Any, self: Any, state: Any, rights: Any) -> None:
        real(self, state, rights)
        for right in rights:
            self._changes.add(*right, 1)

    around(stack, StateMoves, "take", take)


@defect
def a_split_is_not_counted(stack: ExitStack) -> None:
    _uncounted(stack, "_sort")


def _uncounted(stack: ExitStack, name: str) -> None:
    def silent(real: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        with patch.object(self.core.changes, "add", lambda *_: None):
            return real(self, *args, **kwargs)

    around(stack, Migration, name, silent)


@defect
def a_retiring_replica_keeps_its_notifications(stack: ExitStack) -> None:
    stack.enter_context(patch.object(StateMoves, "let_go", lambda self: None))


# -- owners --------------------------------------------------------------------------------------------------------------------


@defect
def what_was_restored_is_passed_on_behind_what_has_arrived(stack: ExitStack) -> None:
    def take_out(real: Any, self: Any, migration: Any) -> None:
        arrived = self.place.arrived
        restored, arrived.restored = arrived.restored, deque()
        real(self, migration)
        regular, arrived.regular, arrived.restored = arrived.regular, deque(), restored
        real(self, migration)
        arrived.regular = regular

    around(stack, HostRescale, "_take_out_of_queues", take_out)


@defect
def the_marker_goes_before_the_last_old_batch(stack: ExitStack) -> None:
    def send(real: Any, self: Any, edge: int, replica: int, kind: int, payload: Any) -> None:
        kept = self.__dict__.setdefault("_kept", {})
        is_marker = kind == Kind.BARRIER and bytes(payload[: len(MARK)]) == MARK
        held = kept.pop((edge, replica), None)
        if held is not None and not is_marker:
            real(self, edge, replica, *held)
            held = None
        if is_marker and held is not None:
            real(self, edge, replica, kind, payload)
            real(self, edge, replica, *held)
        elif kind == Kind.DATA:
            kept[edge, replica] = kind, payload
        else:
            real(self, edge, replica, kind, payload)

    def after_report(real: Any, self: Any) -> None:
        carrier = self.place.carrier
        for (edge, replica), held in list(carrier.__dict__.get("_kept", {}).items()):
            del carrier._kept[edge, replica]
            plain(carrier, edge, replica, *held)
        real(self)

    plain = WorkplaceCarrier.send
    around(stack, WorkplaceCarrier, "send", send)
    around(stack, HostRescale, "after_report", after_report)


@defect
def combiners_flush_by_the_new_layout(stack: ExitStack) -> None:
    """They flush behind the marker, though an old owner may have said that it has forwarded all."""

    def relayout(real: Any, self: Any, step: int, layout: Any) -> None:
        if self.step < step:
            with patch.object(self.place, "flush_out", lambda: None):
                real(self, step, layout)
        else:
            real(self, step, layout)

    around(stack, HostRescale, "relayout", relayout)


@defect
def parked_batches_stay(stack: ExitStack) -> None:
    stack.enter_context(patch.object(Migration, "_pass_on_parked", lambda self: None))


@defect
def the_end_comes_too_early(stack: ExitStack) -> None:
    around(stack, Migration, "begin", lambda real, self: (real(self), self._missing and self._end()))


@defect
def markers_of_feedback_edges_are_not_waited_for(stack: ExitStack) -> None:
    def init(real: Any, self: Any, core: Any, before: Any, *args: Any) -> None:
        real(self, core, before, *args)
        feedback = {edge.id for edge in before.edges if edge.is_feedback}
        self._missing = {channel for channel in self._missing if channel[0] not in feedback}

    around(stack, Migration, "__init__", init)


@defect
def waiting_pieces_go_before_forwarded_ones(stack: ExitStack) -> None:
    """They are released with the first transfer from the old owner."""

    def on_transfer(real: Any, self: Any, source: int, transfer: Any) -> None:
        if self._held.get(source):
            held, self._held[source] = self._held[source], deque()
            self._held_count -= len(held)
            self.released.extend(held)
        real(self, source, transfer)

    around(stack, Migration, "on_transfer", on_transfer)


@defect
def a_new_owner_does_not_wait(stack: ExitStack) -> None:
    _without_targets(stack, "from")


@defect
def an_old_owner_processes_records_that_leave(stack: ExitStack) -> None:
    _without_targets(stack, "to")


def _without_targets(stack: ExitStack, direction: str) -> None:
    def init(real: Any, self: Any, *args: Any) -> None:
        real(self, *args)
        for groups in (self.leaving if direction == "to" else self.arriving).values():
            self._table[list(groups)] = 0

    around(stack, Migration, "__init__", init)


@defect
def an_old_owner_keeps_a_copy(stack: ExitStack) -> None:
    def begin(real: Any, self: Any) -> None:
        vertex = self.core.vertex
        if vertex is None or not self.leaving:
            real(self)
            return
        kept = pickle.loads(pickle.dumps(vertex.checkpoint()))
        real(self)
        vertex.restore(kept)

    around(stack, Migration, "begin", begin)


@defect
def a_retiring_replica_drops_batches_of_unkeyed_edges(stack: ExitStack) -> None:
    def pass_on(real: Any, self: Any, sibling: int, edge: int, time: Any, part: Any) -> None:
        if edge in self._splits:
            real(self, sibling, edge, time, part)
        else:
            self.core.changes.on_edge(edge, time, -1)

    around(stack, Migration, "_pass_on", pass_on)


@defect
def copies_of_broadcast_batches_are_not_forwarded(stack: ExitStack) -> None:
    """A new owner may not have got them, but has the state that they affect."""
    stack.enter_context(patch.object(Migration, "_copy", lambda self, edge, time, batch: None))


@defect
def a_retiring_replica_leaves_copies_unread(stack: ExitStack) -> None:
    def take_out(real: Any, self: Any, edge: int, time: Any, batch: Any, token: Any = None) -> Any:
        return batch if edge in self._copied else real(self, edge, time, batch, token)

    around(stack, Migration, "take_out", take_out)


@defect
def batches_that_still_wait_are_not_split(stack: ExitStack) -> None:
    """A marker counts when it arrives, while older batches still wait for their turn."""
    around(stack, Migration, "take_out", lambda real, self, edge, time, batch, token=None: batch)


@defect
def forward_edges_stay_forward(stack: ExitStack) -> None:
    def target(real: Any, plan: Any, wanted: Any) -> Any:
        goal = real(plan, wanted)
        return Layout(goal.replicas, goal.owners, plan.layout.rebalanced)

    around(stack, layouts, "target", target)


# -- snapshots -----------------------------------------------------------------------------------------------------------------


@defect
def staged_output_of_a_retiring_replica_is_lost(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SnapshotAttempts, "leave_behind", lambda self, staged: None))


@defect
def staged_output_of_earlier_attempts_of_a_retiring_replica_is_lost(stack: ExitStack) -> None:
    around(stack, Participant, "staged", lambda real, self, base: (self._staged.clear(), real(self, base))[1])


@defect
def a_snapshot_begins_during_a_change(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SnapshotLeader, "may_begin", property(lambda self: self.is_idle and not self.is_ending)))


@defect
def a_change_begins_during_a_snapshot(stack: ExitStack) -> None:
    """The leader does not wait for the coordinator's answer."""

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        real(self, names, call, *within_s)
        if isinstance(call, calls.HoldSnapshots):
            early.append(Answered(self.turn, COORDINATOR))

    def handle(real: Any, self: Any, event: Any, now_s: float) -> Any:
        effects = real(self, event, now_s)
        while early:
            effects += real(self, early.pop(), now_s)
        return effects

    early: list[Answered] = []
    around(stack, ChangeLeader, "_ask", ask)
    around(stack, ChangeLeader, "handle", handle)


@defect
def the_layout_is_not_in_the_manifest(stack: ExitStack) -> None:
    stack.enter_context(patch.object(layouts, "layout_notes", lambda plan, asked: {}))


@defect
def the_owners_are_not_in_the_manifest(stack: ExitStack) -> None:
    """Only the number of replicas is."""

    around(stack, layouts, "layout_notes", lambda real, plan, asked: {**real(plan, asked), "owners": {}})


@defect
def replicas_align_the_channels_of_the_old_layout(stack: ExitStack) -> None:
    stack.enter_context(patch.object(Participant, "lay_out", lambda self, plan: None))


@defect
def parts_of_the_old_layout_make_a_snapshot(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SnapshotAttempts, "lay_out", lambda self, names: None))


# -- the leader ----------------------------------------------------------------------------------------------------------------


def _one_fewer(stack: ExitStack, phase: Phase) -> None:
    """The leader does not wait for one of the actors that it has asked."""

    def ask(real: Any, self: Any, names: Any, *asked: Any) -> None:
        real(self, names, *asked)
        if self.phase is phase and len(names) > 1:
            self._questions.close(max(names))

    around(stack, ChangeLeader, "_ask", ask)


@defect
def a_step_does_not_wait_for_one_replica(stack: ExitStack) -> None:
    _one_fewer(stack, Phase.MOVING)


@defect
def new_replicas_count_before_they_have_started(stack: ExitStack) -> None:
    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        real(self, names, call, *within_s)
        if isinstance(call, calls.Listen | calls.Joined):
            self._coming.addresses.update({name: (name, self.incarnation) for name in self.newcomers})
            for name in names:
                self._questions.close(name)

    around(stack, ChangeLeader, "_ask", ask)


@defect
def the_new_layout_holds_before_all_have_it(stack: ExitStack) -> None:
    """Snapshots begin with replicas that align the channels of the old one."""
    _one_fewer(stack, Phase.COMMITTING)


@defect
def answers_of_earlier_turns_count(stack: ExitStack) -> None:
    """An answer to an earlier turn, late or of another change, counts for the current one."""
    stack.enter_context(patch.object(Questions, "call_of", lambda self, answer: self.asked_of(answer.name)))


@defect
def retiring_replicas_are_not_waited_for(stack: ExitStack) -> None:
    """They are told to leave, and count as gone."""

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        real(self, names, call, *within_s)
        if isinstance(call, calls.Leave):
            self._on_left(names[0], {})

    around(stack, ChangeLeader, "_ask", ask)


@defect
def all_commit_before_the_last_step_is_settled(stack: ExitStack) -> None:
    def step(real: Any, self: Any) -> None:
        real(self)
        if self.plan.layout == self._goal:
            self._questions.clear()
            self._settled()

    around(stack, ChangeLeader, "_step", step)


@defect
def the_change_ends_one_step_early(stack: ExitStack) -> None:
    def settled(real: Any, self: Any) -> None:
        self._goal = self.plan.layout if len(self._costs._steps) == 1 else self._goal
        real(self)

    around(stack, ChangeLeader, "_settled", settled)


@defect
def a_change_that_is_refused_is_not_undone(stack: ExitStack) -> None:
    """New replicas stay, and so does the state that is ready to be moved."""

    def refuse(self: Any, why: str, *, lacks_room: bool = False) -> None:
        self._end(Refuse(why, lacks_room))

    stack.enter_context(patch.object(ChangeLeader, "_refuse", refuse))


@defect
def snapshots_are_not_released_after_a_change(stack: ExitStack) -> None:
    def end(real: Any, self: Any, outcome: Any) -> None:
        self._holds_snapshots = self._holds_snapshots and not isinstance(outcome, Finish)
        real(self, outcome)

    around(stack, ChangeLeader, "_end", end)


# -- the users' vertices -------------------------------------------------------------------------------------------------------


@defect
def a_notification_whose_state_has_moved_fails(stack: ExitStack) -> None:
    def on_notify(real: Any, self: Any, time: Any) -> None:
        if not self.waiting.get(time):
            raise KeyError(time)
        real(self, time)

    around(stack, moving.Closing, "on_notify", on_notify)


@defect
def notifications_are_not_requested_for_state_that_is_taken(stack: ExitStack) -> None:
    def take(real: Any, self: Any, state: Any) -> None:
        with patch.object(self, "ask", lambda time: None):
            real(self, state)

    around(stack, moving.Keyed, "take", take)


@defect
def an_increment_follows_a_change(stack: ExitStack) -> None:
    stack.enter_context(patch.object(moving.Changed, "take", moving.Keyed.take))
    stack.enter_context(patch.object(moving.Changed, "give", moving.Keyed.give))
