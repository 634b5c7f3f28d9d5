"""Realistic mistakes in flow control and spilling, planted one at a time, as in :mod:`tests.simulation.defects`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.actors.plane.credit_grants import CreditGrants
from rayad.actors.plane.credits import ReceiveWindow, SendWindow
from rayad.actors.plane.feedback_queue import FeedbackQueue
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.send_windows import SendWindows
from rayad.actors.replica.channel_ends import ChannelEnds
from rayad.actors.replica.migration import Migration
from tests.simulation.defects import Plant, around

DEFECTS_OF_CHANNELS: dict[str, Plant] = {}
IN_CHANGES: set[str] = set()
"""Defects that have an effect only in runs with changes of layout."""


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_CHANNELS[plant.__name__.replace("_", " ")] = plant
    return plant


def defect_in_changes(plant: Plant) -> Plant:
    """Register a defect that has an effect only in runs with changes of layout."""
    IN_CHANGES.add(plant.__name__.replace("_", " "))
    return defect(plant)


# -- credits -------------------------------------------------------------------------------------------------------------------


@defect
def a_credit_is_given_twice(stack: ExitStack) -> None:
    around(stack, CreditGrants, "_send", lambda real, self, *args: (real(self, *args), real(self, *args)))


@defect
def a_grant_is_lost_now_and_then(stack: ExitStack) -> None:
    sent: list[Any] = []

    def send(real: Any, self: Any, *args: Any) -> None:
        sent.append(args)
        if len(sent) % 50:
            real(self, *args)

    around(stack, CreditGrants, "_send", send)


@defect
def what_was_consumed_is_forgotten_with_a_grant(stack: ExitStack) -> None:
    """The batch that made the grant due is not counted in any grant."""

    def on_consumed(self: Any, size_bytes: int) -> Any:
        if self.consumed_batches + 1 >= max(1, self.batches // 2) and self.consumed_batches:
            return self.settle()
        self.consumed_batches, self.consumed_bytes = self.consumed_batches + 1, self.consumed_bytes + size_bytes
        return self.settle() if self.batches < 4 else None

    stack.enter_context(patch.object(ReceiveWindow, "on_consumed", on_consumed))


@defect
def a_sender_does_not_ask_for_room(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindow, "may_send", lambda self: True))


@defect
def bytes_in_flight_do_not_count(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindow, "may_send", lambda self: self.in_flight_batches < self.batches))


@defect
def batches_that_wait_for_credit_leave_one_credit_late(stack: ExitStack) -> None:
    """Each leaves only with the next credit, and after the last one there is none."""

    def on_credit(real: Any, self: Any, *args: Any) -> None:
        with patch.object(SendWindows, "_send_waiting", lambda *_: None):
            real(self, *args)

    around(stack, SendWindows, "on_credit", on_credit)


@defect
def an_aligned_barrier_overtakes_batches_that_wait_for_credit(stack: ExitStack) -> None:
    def send_mark(real: Any, *args: Any, overtake: bool, **options: Any) -> None:
        real(*args, overtake=True, **options)

    around(stack, SendWindows, "send_mark", send_mark)


@defect
def a_replica_produces_without_credit(stack: ExitStack) -> None:
    """Nothing bounds the batches that wait."""
    stack.enter_context(patch.object(SendWindows, "is_held_up", False))


# -- on demand -----------------------------------------------------------------------------------------------------------------


@defect
def a_demand_is_forgotten(stack: ExitStack) -> None:
    def on_credit(real: Any, self: Any, *args: Any) -> None:
        with patch.object(SendWindows, "_serve", lambda *_: None):
            real(self, *args)

    around(stack, SendWindows, "on_credit", on_credit)


@defect
def the_pool_goes_behind_the_barrier(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindows, "_bind", lambda self, edge: None))


@defect
def joined_batches_count_as_many(stack: ExitStack) -> None:
    around(stack, ChannelEnds, "attach", lambda real, self, core: (real(self, core), setattr(self.sender, "joined", _ignore)))


def _ignore(*_: Any) -> None:
    pass


# -- feedback ------------------------------------------------------------------------------------------------------------------


@defect
def a_spilled_batch_is_overtaken_by_a_later_one(stack: ExitStack) -> None:
    """As soon as there is room the newest batch is sent at once."""

    def send(real: Any, self: Any, channel: tuple[int, int], payload: Any) -> None:
        if self._carrier.queued_bytes(*channel) < self._feedback_bytes_max:
            self._carrier.send(*channel, Kind.DATA, payload)
        else:
            real(self, channel, payload)

    around(stack, SendWindows, "_send_feedback", send)


@defect
def a_mark_overtakes_spilled_batches(stack: ExitStack) -> None:
    def send_mark(real: Any, self: Any, *args: Any, **options: Any) -> None:
        spilled, self._spilled = self._spilled, {}
        real(self, *args, **options)
        self._spilled = spilled

    around(stack, SendWindows, "send_mark", send_mark)


@defect
def spilled_batches_stay_on_disk(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindows, "drain", lambda self: None))


@defect
def memory_is_used_again_while_older_batches_are_on_disk(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "_room_for", lambda self, size: self.memory_bytes + size <= self.memory_bytes_max))


@defect
def blocked_batches_are_lost(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "block", lambda self, entry: None))


@defect
def blocked_batches_stay_blocked(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "unblock", lambda self: None))


# -- new and retiring replicas -------------------------------------------------------------------------------------------------


@defect_in_changes
def a_batch_that_leaves_gives_no_credit_back(stack: ExitStack) -> None:
    """A change of layout took it out, so it is not consumed here."""
    stack.enter_context(patch.object(Migration, "_give_back", lambda self, token: None))


@defect_in_changes
def the_grant_of_a_released_piece_is_lost(stack: ExitStack) -> None:
    def on_transfer(real: Any, self: Any, *args: Any) -> None:
        real(self, *args)
        entries = [(*entry[:3], None) for entry in self.released]
        self.released.clear()
        self.released.extend(entries)

    around(stack, Migration, "on_transfer", on_transfer)


@defect_in_changes
def a_window_is_not_reset_for_a_new_incarnation(stack: ExitStack) -> None:
    """Receivers continue the counts of the replica that had the name before."""
    stack.enter_context(patch.object(ChannelEnds, "forget_senders", lambda self, senders: None))


@defect_in_changes
def the_window_to_a_retired_replica_stays(stack: ExitStack) -> None:
    def open_channels(real: Any, self: Any, stage: int, replica: int) -> None:
        before = dict(self.windows)
        real(self, stage, replica)
        mine = [key for key in self.windows if self._edges[key[0]].target == stage and key[1] == replica]
        self.windows.update({key: self.gone[key] for key in mine if key in getattr(self, "gone", {})})
        assert before.keys() <= self.windows.keys()

    def close_all_but(real: Any, self: Any, plan: Any) -> None:
        before = dict(self.windows)
        real(self, plan)
        self.gone = getattr(self, "gone", {}) | {key: window for key, window in before.items() if key not in self.windows}

    around(stack, SendWindows, "open", open_channels)
    around(stack, SendWindows, "close_all_but", close_all_but)


@defect_in_changes
def the_pool_goes_to_replicas_of_the_old_layout(stack: ExitStack) -> None:
    def lay_out(real: Any, self: Any, plan: Any) -> None:
        replicas = dict(self._replicas)
        real(self, plan)
        self._replicas = replicas

    around(stack, SendWindows, "lay_out", lay_out)


__all__ = ["DEFECTS_OF_CHANNELS", "IN_CHANGES"]
