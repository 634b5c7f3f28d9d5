"""One step of a change of layout at one replica: state that leaves is given, its batches are passed on, what arrives is taken up or held.

Pure: the shell hands in batches, markers and transfers in turn, and sends what waits in ``outgoing`` once the progress actor has confirmed
the report that counts it. Both runtimes drive it. Design and argument: docs/design/rescaling.md, 2 and 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import Channel, channels_in
from rayad.actors.replica.key_split import KeySplit
from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.actors.replica.parts.part_reading import RunsByName
from rayad.actors.replica.progress_changes import Right
from rayad.dataflow.group_owners import moves
from rayad.dataflow.logical_graph import NodeKind, PartitionKind
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.vertex import Vertex
from rayad.progress import InternalError, Timestamp
from rayad.snapshots.store import SnapshotStore

HELD_BATCHES_MAX = 256
"""With so many pieces held, the credit of a batch waits for its held piece even where the rest of the batch is consumed before."""
Released = tuple[int, Timestamp, Any, Any]
"""An edge, a time, a batch, and its token."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one replica hands to a sibling.

    Args:
        kind: "state" (of some key-groups, or what moves with them where there is none), "batch" (passed on unprocessed), "end" (all was
            passed on).
        state: pieces as :func:`rayad.actors.replica.parts.part_files.dumped` makes them; None: there was none.
        rights: capabilities that move with the state.
        hold, latest: an EndVertex's right to send at the end of its input, and the last time at which it consumed something.
        edge, time, batch: of a batch.
        applied: the last epoch of which the state that was given may hold something; None: not known.
    """

    kind: str
    state: bytes | None = None
    rights: tuple[Right, ...] = ()
    hold: Timestamp | None = None
    latest: Timestamp | None = None
    edge: int = 0
    time: Timestamp | None = None
    batch: Any = None
    applied: int | None = -1


@dataclass(slots=True)
class StepCost:
    """What a step cost one replica: groups and bytes of state given, batches passed on and held, seconds spent on state, and
    seconds in which it did nothing else."""

    groups: int = 0
    state_bytes: int = 0
    passed_on: int = 0
    held: int = 0
    state_s: float = 0.0
    pause_s: float = 0.0
    longest_pause_s: float = 0.0

    @staticmethod
    def total(costs: Iterable[StepCost]) -> StepCost:
        """The costs of several steps together."""
        out = StepCost()
        for cost in costs:
            for name in ("groups", "state_bytes", "passed_on", "held", "state_s", "pause_s"):
                setattr(out, name, getattr(out, name) + getattr(cost, name))
            out.longest_pause_s = max(out.longest_pause_s, cost.longest_pause_s)
        return out

    def pause(self, seconds: float) -> None:
        """Add seconds in which the replica did nothing else."""
        self.pause_s += seconds
        self.longest_pause_s = max(self.longest_pause_s, seconds)


class Migration:
    """A step at one replica of a stage whose layout changes.

    Args:
        core: the replica's.
        before, after: the plan in the layouts before and after the step.
        released: where to put ``(edge, time, batch, token)`` that are to be consumed before everything else.
        store: of snapshots; state that is in its files is handed over by their names where it is shared so. None: there is none.
    """

    def __init__(
        self, core: ReplicaCore, before: Plan, after: Plan, released: deque[Released] | None = None, store: SnapshotStore | None = None
    ) -> None:
        stage, mine = before.stage(core.stage.id), core.replica
        self.core = core
        core.migration = self
        self._store = store
        self.stays = after.stage(stage.id).parallelism
        self.is_retiring = mine >= self.stays
        self.outgoing: deque[tuple[int, Transfer]] = deque()
        """``(sibling, transfer)``, to be sent in order once the report that counts it is confirmed."""
        self.released: deque[Released] = deque() if released is None else released
        self.cost = StepCost()
        keyed = [edge for edge in before.edges if edge.target == stage.id and edge.routing is PartitionKind.KEYS and edge.key is not None]
        self._copied = {edge.id for edge in before.edges_into(stage.id) if edge.routing is PartitionKind.BROADCAST}
        self._splits = {edge.id: KeySplit(edge.key, before.key_groups) for edge in keyed if edge.key is not None}
        changes = moves(before.owners(stage), after.owners(after.stage(stage.id))) if keyed else {}
        self.leaving = {new: groups for (old, new), groups in changes.items() if old == mine}
        self.arriving = {old: groups for (old, new), groups in changes.items() if new == mine}
        retiring = range(self.stays, before.stage(stage.id).parallelism)
        if self.is_retiring:
            self.leaving.update({new: frozenset() for new in range(self.stays) if new not in self.leaving})
        else:
            self.arriving.update({old: frozenset() for old in retiring if old not in self.arriving})
        self._awaited = {old for old, groups in self.arriving.items() if groups}
        if self._awaited:
            core.moves.has_groups = True
        self._held: dict[int, deque[tuple[int, Timestamp, Any, Any]]] = {source: deque() for source in self.arriving}
        self._held_count = 0
        self._missing: set[Channel] = set()
        if self.leaving or self.is_retiring:
            regular, feedback = channels_in(before, stage, mine)
            self._missing = {*regular, *feedback}
        self._turn = mine
        self._token: Any = None
        self._applied = core.callbacks.applied
        self._has_state: set[int] = set()  # the siblings whose state has come
        self._table = np.zeros(before.key_groups, np.int64)
        self._targets = [("to", new) for new in self.leaving if self.leaving[new]]
        self._targets += [("from", old) for old in self.arriving if self.arriving[old]]
        for place, (direction, sibling) in enumerate(self._targets, start=1):
            groups = self.leaving[sibling] if direction == "to" else self.arriving[sibling]
            self._table[list(groups)] = place

    @property
    def is_settled(self) -> bool:
        """Whether nothing of this step is left to do here."""
        return not (self._missing or self.arriving or self.outgoing)

    @property
    def awaits_state(self) -> bool:
        """Whether state is on its way here."""
        return bool(self._awaited)

    def coming(self) -> frozenset[int]:
        """The key-groups that are on their way here: not all that their old owners had has come."""
        return frozenset[int]().union(*self.arriving.values())

    def held_tokens(self) -> list[Any]:
        """Tokens of batches whose credit is granted when their held pieces are consumed."""
        return [token for held in self._held.values() for *_, token in held if token is not None]

    def missing(self) -> frozenset[Channel]:
        """The channels that have not brought their marker, for ``explain_stuck``."""
        return frozenset(self._missing)

    # -- the old owner -----------------------------------------------------------------------------
    def begin(self) -> None:
        """Give what leaves: state, rights, and what waits for its turn."""
        core = self.core
        for target, groups in self.leaving.items():
            state = core.moves.give(groups)
            if state is not None or (groups and core.end_hold.time is not None):
                self._send_state(target, state)
            self.cost.groups += len(groups)
        if self.leaving or self.is_retiring:
            self._pass_on_parked()
        if not self._missing:
            self._end()

    def _send_state(self, target: int, state: Any) -> None:
        rights: tuple[Right, ...] = ()
        data: bytes | None = None
        if state is not None:
            by_name = self._store is not None and self._store.is_shared_by_name
            rights, data = self.core.moves.rights_along(), b"".join(dumped(state, by_name=by_name))
            self.cost.state_bytes += len(data)
        hold, latest = self.core.moves.hold_along()
        self.outgoing.append((target, Transfer("state", data, rights, hold, latest, applied=self._applied)))

    def _pass_on_parked(self) -> None:
        core = self.core
        for time, edge, batch in core.parked.take_all():
            for ready in self._sort(edge, time, batch, None):
                core.parked.add(time, edge, ready)

    def on_marker(self, channel: Channel) -> None:
        """A marker has come on a channel: nothing more arrives there by the old layout."""
        if channel in self._missing:
            self._missing.discard(channel)
            if not self._missing:
                self._end()

    def _end(self) -> None:
        for target in self.leaving:
            self.outgoing.append((target, Transfer("end", applied=self._applied)))

    # -- batches -----------------------------------------------------------------------------------
    def receive(self, edge: int, time: Timestamp, batch: Any, token: Any = None) -> None:
        """A batch is next: what is this replica's is consumed, what leaves is passed on, what belongs to arriving groups is held."""
        for ready in self._sort(edge, time, batch, token):
            self.core.receive(edge, time, ready, self._token)

    def takes_out(self, channel: Channel) -> bool:
        """Whether batches that come on a channel now may hold what leaves."""
        return channel in self._missing

    def take_out(self, edge: int, time: Timestamp, batch: Any, token: Any = None) -> Any:
        """Only take out what leaves, before its turn; gives what stays (None: nothing), which still has its token."""
        ready = self._sort(edge, time, batch, token, eagerly=True)
        return ready[0] if ready else None

    def _sort(self, edge: int, time: Timestamp, batch: Any, token: Any, *, eagerly: bool = False) -> list[Any]:
        """What stays here, at most one batch; the rest is on its way, or held."""
        core = self.core
        self._token = token
        split = self._splits.get(edge)
        if split is None:
            if edge in self._copied:
                self._copy(edge, time, batch)
                if not self.is_retiring:
                    return [batch]
                core.changes.on_edge(edge, time, -1)  # nothing of it stays here, and nothing waits for its turn
                self._give_back(token)
                return []
            if not self.is_retiring:
                return [batch]
            self._turn += 1
            self._pass_on(self._turn % self.stays, edge, time, batch)
            self._give_back(token)
            return []
        if not self._targets:
            return [batch]
        parts = split.split(batch, self._table, 1 + len(self._targets))
        ready = parts[0]
        held: list[tuple[int, Any]] = []
        pieces = 0 if ready is None else 1
        for (direction, sibling), part in zip(self._targets, parts[1:], strict=True):
            if part is None:
                continue
            if direction == "from" and eagerly:
                raise InternalError(f"{core.name!r}[{core.replica}] got a record by the old layout whose group is arriving from {sibling}")
            pieces += 1
            if direction == "to":
                self._pass_on(sibling, edge, time, part)
            else:
                held.append((sibling, part))
        if pieces > 1:
            core.changes.on_edge(edge, time, pieces - 1)
        if held and (ready is None or self._held_count >= HELD_BATCHES_MAX):
            holds, self._token = token, None
        else:
            holds = None
        for sibling, part in held:
            self._held[sibling].append((edge, time, part, holds))
            holds = None
            self._held_count += 1
            self.cost.held += 1
        if ready is not None:
            return [ready]
        if not held:
            self._give_back(token)
        return []

    def _copy(self, edge: int, time: Timestamp, batch: Any) -> None:
        """Pass on a broadcast batch of the old layout: new replicas did not get it, but have state to which it applies."""
        targets = [target for target, groups in self.leaving.items() if groups] if self._missing else []
        if targets:
            self.core.changes.on_edge(edge, time, len(targets))
        for target in targets:
            self._pass_on(target, edge, time, batch)

    def _pass_on(self, sibling: int, edge: int, time: Timestamp, part: Any) -> None:
        self.cost.passed_on += 1
        self.outgoing.append((sibling, Transfer("batch", edge=edge, time=time, batch=part)))

    def _give_back(self, token: Any) -> None:
        if token is not None:
            self.core.done_tokens.append(token)

    # -- the new owner -----------------------------------------------------------------------------
    def on_transfer(self, source: int, transfer: Transfer) -> None:
        """Take the next transfer from a sibling."""
        core = self.core
        self._awaited.discard(source)  # there may be no state, but if there is, it comes first
        if transfer.kind == "state":
            if transfer.hold is not None:
                core.moves.take_hold(transfer.hold, transfer.latest)
            if transfer.state is not None:
                self._has_state.add(source)
                core.took(transfer.applied, has_state=True)
                content_of = None if self._store is None else RunsByName(self._store).content_of
                core.moves.take(loaded(transfer.state, content_of), transfer.rights)
        elif transfer.kind == "batch":
            assert transfer.time is not None
            self.released.append((transfer.edge, transfer.time, transfer.batch, None))
        elif transfer.kind == "end" and source in self.arriving:
            groups = self.arriving.pop(source)
            self._table[list(groups)] = 0
            if groups:
                core.took(transfer.applied, has_state=source in self._has_state)
            held = self._held.pop(source)
            self._held_count -= len(held)
            self.released.extend(held)


def changes(before: Plan, after: Plan, stage: int) -> bool:
    """Whether a step concerns the replicas of a stage."""
    old, new = before.stage(stage), after.stage(stage)
    return (old.parallelism, old.owners) != (new.parallelism, new.owners)


def may_resume(stage: Stage, plan: Plan) -> bool:
    """Whether a job may resume with another parallelism of a stage: parts of a source can then move; all else is as in a running job."""
    return stage.kind is NodeKind.SOURCE or not may_move(stage, plan, None)


def may_move(stage: Stage, plan: Plan, vertex: Vertex | None) -> str:
    """Why the replicas of a stage cannot be added or removed while it runs; "" when they can. ``vertex`` None: not known here."""
    if not stage.inputs:
        if stage.kind is NodeKind.SOURCE:
            return (
                f"{stage.name!r} reads input: its parts stay with their replicas while the job runs; take a savepoint and resume from it "
                "with another parallelism"
            )
        return f"{stage.name!r} is a live input, which one replica takes"
    kinds = {edge.partition for edge in plan.edges_into(stage.id)}
    if PartitionKind.SINGLE in kinds:
        return f"{stage.name!r} has one replica by its nature: its input goes to a single one"
    if stage.kind is not NodeKind.VERTEX:
        copied = PartitionKind.BROADCAST in kinds
        return f"{stage.name!r} gets broadcast input, which each replica passes on: there would be more of it" if copied else ""
    if PartitionKind.KEYS not in kinds or kinds - {PartitionKind.KEYS, PartitionKind.BROADCAST}:
        return f"{stage.name!r} is a vertex whose input is not keyed: which part of its state would move? Put key_by before it"
    if vertex is not None and (type(vertex).give is Vertex.give or type(vertex).take is Vertex.take):
        return f"{stage.name!r} is a {type(vertex).__name__} without give(self, groups) and take(self, state): its state cannot be divided"
    if vertex is not None and PartitionKind.BROADCAST in kinds and not vertex.broadcast_may_repeat:
        return (
            f"{stage.name!r} is a {type(vertex).__name__} with broadcast input: a new replica would miss, or get twice, what came before "
            "it; if twice is harmless, set broadcast_may_repeat = True"
        )
    return ""


__all__ = ["Migration", "StepCost", "Transfer", "changes", "may_move", "may_resume"]
