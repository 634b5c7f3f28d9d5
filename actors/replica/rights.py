"""What a replica has the right to ask for. Part of ``core.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.progress import FlatReachability, Timestamp

if TYPE_CHECKING:
    from rayad.actors.replica.core import ReplicaCore


def may_act_at(core: ReplicaCore, time: Timestamp) -> bool:
    """Whether what is sent later may be of a time: at or beyond what is handled, or beyond a right that came along with state."""
    if core._now is not None:
        return core._now <= time
    return any(right <= time for right in core._rights)


def may_wait_for(core: ReplicaCore, time: Timestamp) -> bool:
    """Whether a notification at a time may be waited for: with state that is taken up any, if a right came along to answer at all."""
    return core._now <= time if core._now is not None else bool(core._rights)


def check_not_waiting_for_itself(core: ReplicaCore, time: Timestamp, capability: Timestamp) -> None:
    """In a loop, what may be sent at an early capability can come round to before the time that is waited for: refuse that."""
    if core._reachability is None:
        core._reachability = FlatReachability(core.plan.progress)
    if core._reachability.blocks_itself(core.stage.id, time, capability):
        raise core._misuse(
            f"notify_at({time}, capability={capability})",
            ": what it may send at its capability could come round the loop to before the time that it waits for, so it would wait "
            "for itself for "
            "ever; use a capability at or beyond that time, or None",
        )


__all__ = ["check_not_waiting_for_itself", "may_act_at", "may_wait_for"]
