"""How a replica core is cut for a snapshot, takes its part back, and loses what upstream will send again. Part of ``core.py``.

All that is taken back counts as if it had just been received or asked for: so the progress core is rebuilt from the parts
(docs/design/snapshots.md, 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.rest import MutableRest, ResumedPart, thaw
from rayad.dataflow.state_identity import of_class
from rayad.dataflow.vertex import Vertex
from rayad.progress import SnapshotError
from rayad.snapshots.identity import fits, spell

if TYPE_CHECKING:
    from rayad.actors.replica.core import ReplicaCore


def cut(core: ReplicaCore) -> MutableRest:
    """Everything but the vertex' state, between two activations; what combiners hold must have been flushed and sent."""
    names = edge_names(core.plan)
    return MutableRest(
        source=core.source.position() if core.source is not None else None,
        input_epoch=core.input_epoch,
        input_frames=core.input_frames,
        input_sends=core.input_sends,
        notifications=[(n.guarantee, n.capability) for n in core.notificator.pending()],
        furthest=max(core.furthest, core.source.furthest if core.source is not None else 0),
        hold=core.hold,
        latest=core._latest,
        gated=[(names[edge], data) for edge, data in (core.gate.waiting.frozen() if core.gate is not None else ())],
        passed=list(core.gate.passed) if core.gate is not None else [],
        parked=[(names[edge], data) for edge, data in core.parked.frozen()],
        counts=(core.batches_in, core.records_in, core.outputs.batches_out),
        vertex=of_class(type(core.vertex)) if core.vertex is not None else None,
    )


def resume_vertex(core: ReplicaCore, vertex: Vertex, resumed: ResumedPart) -> None:
    """State, notifications, batches that wait. Raises SnapshotError when the state is that of another class."""
    rest = resumed.rest
    before, now = rest.get("vertex"), of_class(type(vertex))
    if not fits(before, now):
        raise SnapshotError(
            f"vertex {core.name!r} cannot resume: what it keeps in the snapshot is that of {spell(before)}, and the dataflow makes "
            f"{spell(now)}; run the dataflow that the snapshot was taken of, or begin afresh with resume='never'"
        )
    for i, state in enumerate(resumed.states):
        core._guard("restore", partial(vertex.restore if i == 0 else vertex.restore_changes, state))
    for guarantee, capability in rest["notifications"]:
        if capability is None:
            core._waits_unseen = True
        if core.notificator.request(guarantee, capability):
            core._hold_back(guarantee, capability, 1)
    core._latest = rest["latest"]
    ids = {name: edge for edge, name in edge_names(core.plan).items()}
    for name, data in rest["parked"]:
        time, batch = thaw(data)
        core.parked.add(time, ids[name], batch)
        core.count_waiting(ids[name], time)
    if core.gate is not None:
        core.gate.passed = list(rest["passed"])
    for name, data in rest["gated"]:
        time, batch = thaw(data)
        core.count_waiting(ids[name], time)
        core.receive(ids[name], time, batch)
    resume_counts(core, rest)


def resume_input(core: ReplicaCore, rest: Mapping[str, Any]) -> None:
    """Where a live input stood."""
    core.input_frames, core.input_sends = rest["input_frames"], rest["input_sends"]
    if rest["input_epoch"] is None:
        core.input_advance(rest.get("furthest", 0))
        core.input_close()
    elif rest["input_epoch"]:
        core.input_advance(rest["input_epoch"])
    resume_counts(core, rest)


def resume_counts(core: ReplicaCore, rest: Mapping[str, Any]) -> None:
    """What was counted for statistics."""
    core.batches_in, core.records_in, core.outputs.batches_out = rest["counts"]
    core.counted_before = (core.batches_in, core.records_in)


def roll_back(core: ReplicaCore, edges: frozenset[int], part: ResumedPart | None) -> None:
    """The senders on these edges begin anew from a snapshot; ``part`` is this replica's in it. What it has consumed stays.

    What waited here of theirs is forgotten; what was on its way here at the cut, which they will not send again, is taken from the part.
    """
    assert core.gate is not None
    for time in core.gate.rolled_back(edges, core.view.input_frontier if core.view is not None else None):
        core._change(core.stage.notify_location, time, -1)
    if part is None:
        return
    ids = {name: edge for edge, name in edge_names(core.plan).items()}
    waiting = [*part.rest["gated"], *((name, data) for name, _, data in part.rest["log"])]
    for edge, data in ((ids[name], data) for name, data in waiting):
        time, batch = thaw(data)
        if edge in edges and not core.gate.repeats(time):
            core.gate.hold(edge, time, batch)
            core._change(core.stage.notify_location, time, 1)
