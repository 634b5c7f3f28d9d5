"""Realistic mistakes in flow control and in what is spilled, planted one at a time, as in :mod:`tests.simulation.defects`."""

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
"""Those of them that strike only where replicas come and go."""


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_CHANNELS[plant.__name__.replace("_", " ")] = plant
    return plant


def defect_in_changes(plant: Plant) -> Plant:
    """The same, of one that strikes only where replicas come and go."""
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
    """The batch that made the grant due is in neither."""

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
def what_waits_for_credit_is_sent_one_behind(stack: ExitStack) -> None:
    """It leaves with the next credit only, and after the last one there is none."""

    def on_credit(real: Any, self: Any, *args: Any) -> None:
        with patch.object(SendWindows, "_send_waiting", lambda *_: None):
            real(self, *args)

    around(stack, SendWindows, "on_credit", on_credit)


@defect
def an_aligned_barrier_passes_what_waits_for_credit(stack: ExitStack) -> None:
    def send_mark(real: Any, *args: Any, overtake: bool, **options: Any) -> None:
        real(*args, overtake=True, **options)

    around(stack, SendWindows, "send_mark", send_mark)


@defect
def a_replica_is_not_held_up(stack: ExitStack) -> None:
    """It goes on producing while it has no credit: nothing bounds what waits."""
    stack.enter_context(patch.object(SendWindows, "_note_held_up", lambda self: None))


# -- on demand -----------------------------------------------------------------------------------------------------------------


@defect
def a_demand_is_forgotten(stack: ExitStack) -> None:
    def on_credit(real: Any, self: Any, *args: Any) -> None:
        with patch.object(SendWindows, "_serve", lambda *_: None):
            real(self, *args)

    around(stack, SendWindows, "on_credit", on_credit)


@defect
def what_waits_for_any_receiver_goes_behind_the_barrier(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindows, "_bind", lambda self, edge: None))


@defect
def what_is_joined_counts_as_many(stack: ExitStack) -> None:
    around(stack, ChannelEnds, "attach", lambda real, self, core: (real(self, core), setattr(self.sender, "joined", _ignore)))


def _ignore(*_: Any) -> None:
    pass


# -- what came round a loop ----------------------------------------------------------------------------------------------------


@defect
def a_spilled_batch_is_overtaken_by_a_later_one(stack: ExitStack) -> None:
    """As soon as there is room the newest goes at once."""

    def send(real: Any, self: Any, edge: int, peer: str, payload: Any) -> None:
        if self._carrier.queued_bytes(peer) < self._feedback_bytes_max:
            self._carrier.send(peer, Kind.DATA, edge, payload)
        else:
            real(self, edge, peer, payload)

    around(stack, SendWindows, "_send_feedback", send)


@defect
def a_mark_overtakes_what_is_spilled(stack: ExitStack) -> None:
    def send_mark(real: Any, self: Any, *args: Any, **options: Any) -> None:
        spilled, self._spilled = self._spilled, {}
        real(self, *args, **options)
        self._spilled = spilled

    around(stack, SendWindows, "send_mark", send_mark)


@defect
def what_is_spilled_stays_on_disk(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SendWindows, "drain", lambda self: None))


@defect
def memory_is_used_again_while_older_batches_are_on_disk(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "_room_for", lambda self, size: self.memory_bytes + size <= self.memory_bytes_max))


@defect
def what_is_blocked_is_lost(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "block", lambda self, entry: None))


@defect
def what_is_blocked_stays_so(stack: ExitStack) -> None:
    stack.enter_context(patch.object(FeedbackQueue, "unblock", lambda self: None))


# -- who comes and goes --------------------------------------------------------------------------------------------------------


@defect_in_changes
def a_batch_that_leaves_gives_no_credit_back(stack: ExitStack) -> None:
    """It was taken out by a change of layout, and nobody consumes it here."""
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
    """Receivers go on counting where they were with the replica that had the name before."""
    stack.enter_context(patch.object(ChannelEnds, "forget_senders", lambda self, peers: None))


@defect_in_changes
def the_window_to_who_has_retired_stays(stack: ExitStack) -> None:
    def open_channels(real: Any, self: Any, peer: str, plan: Any) -> None:
        before = dict(self.windows)
        real(self, peer, plan)
        self.windows.update({key: self.gone[key] for key in self.windows if key[1] == peer and key in getattr(self, "gone", {})})
        assert before.keys() <= self.windows.keys()

    def close_all_but(real: Any, self: Any, plan: Any) -> None:
        before = dict(self.windows)
        real(self, plan)
        self.gone = getattr(self, "gone", {}) | {key: window for key, window in before.items() if key not in self.windows}

    around(stack, SendWindows, "open", open_channels)
    around(stack, SendWindows, "close_all_but", close_all_but)


@defect_in_changes
def what_waits_for_any_receiver_goes_to_those_of_before(stack: ExitStack) -> None:
    def lay_out(real: Any, self: Any, plan: Any) -> None:
        replicas = dict(self._replicas)
        real(self, plan)
        self._replicas = replicas

    around(stack, SendWindows, "lay_out", lay_out)


__all__ = ["DEFECTS_OF_CHANNELS", "IN_CHANGES"]
