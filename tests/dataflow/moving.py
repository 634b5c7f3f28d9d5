"""Drives several replicas of one vertex without a runtime while key-groups move between them; or one vertex whose state is written to
tables and restored from them. Both must send the same records as one vertex that is not disturbed."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.windows.best import BestRecords, EachRecord, EpochBest
from rayad.dataflow.records.batches import keyed_columns, to_rows
from rayad.dataflow.records.key_hashing import hash_columns, key_group
from rayad.dataflow.vertex import EndVertex, Vertex
from rayad.progress import Timestamp
from tests.dataflow.driven import SNAPSHOTS, Driven, Step, shown

KEY_GROUPS = 12
Broadcast = frozenset[int]


def split(batch: Any) -> dict[int, Any]:
    """A batch divided by key-group, as senders route it; an empty batch goes to some replica."""
    if not len(batch):
        return {0: batch}
    if isinstance(batch, pa.RecordBatch):
        groups = hash_columns(batch.columns[: keyed_columns(batch.schema) or 1]) % KEY_GROUPS
        return {group: batch.filter(pa.array(groups == group)) for group in sorted(set(groups.tolist()))}
    out: dict[int, list[Any]] = {}
    for pair in batch:
        out.setdefault(key_group(pair[0], KEY_GROUPS), []).append(pair)
    return out


class Replicas:
    """Replicas that are driven by steps; between two steps any part of a change of layout may happen.

    Args:
        broadcast: the input ports whose batches go to all replicas.
    """

    def __init__(self, make: Callable[[], Vertex], count: int, chance: random.Random, broadcast: Broadcast = frozenset()) -> None:
        self.make = make
        self.chance = chance
        self.broadcast = broadcast
        self.replicas = [self._replica()]
        self.count = count
        self.owner = dict.fromkeys(range(KEY_GROUPS), 0)
        self.moved: set[int] | None = None  # while a change is under way
        self.moves = 0
        self.told = {0}
        """The replicas that have, or have had, key-groups: a newcomer passes over what is broadcast before its first ones."""
        self.to_be_whole: set[int] = set()
        """The replicas whose next snapshot has to be written in full."""
        self.complete: list[Timestamp] = []

    def _replica(self) -> Driven:
        replica = Driven(self.make)
        replica.context.key_groups = KEY_GROUPS
        return replica

    # -- a change of layout ------------------------------------------------------------
    def begin(self) -> None:
        self.moved = set()
        while len(self.replicas) < self.count and self.chance.random() < 0.7:
            self.replicas.append(self._replica())
        for replica in self.replicas:
            slices = replica.vertex.index_for_giving()
            for _ in range(self.chance.choice([0, 1, 2, 99])):
                if slices is not None and next(slices, self) is self:
                    break

    def move(self) -> None:
        """A few groups go to another replica."""
        assert self.moved is not None
        new = self.chance.randrange(len(self.replicas))
        for old in self.chance.sample(range(len(self.replicas)), len(self.replicas)):
            some = [group for group in range(KEY_GROUPS) if group not in self.moved and self.owner[group] == old != new]
            some = self.chance.sample(some, self.chance.randint(0, len(some)))
            if not some:
                continue
            self.to_be_whole.add(old)
            self.told.add(new)
            if self._hand_over(self.replicas[old], self.replicas[new], frozenset(some)):
                self.to_be_whole.add(new)
            self.owner.update(dict.fromkeys(some, new))
            self.moved.update(some)
            self.moves += len(some)

    def _hand_over(self, old: Driven, new: Driven, groups: frozenset[int]) -> bool:
        """State of these groups moves; gives whether there was any."""
        given = old.vertex.give(groups)
        if given is not None:
            new.vertex.take(pickle.loads(pickle.dumps(given)))
        return given is not None

    def end_change(self) -> None:
        self.moved = None
        for replica in self.replicas:
            replica.vertex.gave()

    def something(self) -> None:
        """Do one thing that the runtime may do between two steps."""
        if self.moved is None:
            if self.chance.random() < 0.4:
                self.begin()
        elif self.chance.random() < 0.4:
            self.end_change()
        if self.moved is not None and self.chance.random() < 0.8:
            self.move()
        for _ in range(self.chance.choice([0, 1, 3])):
            self.catch_up_a_bit()

    # -- steps ---------------------------------------------------------------------
    def step(self, step: Step) -> None:
        kind, *rest = step
        if kind == "recv":
            edge, batch, time = rest
            if edge in self.broadcast:
                for at in sorted(self.told):
                    self.replicas[at].step(("recv", edge, batch, time))
            else:
                for group, part in split(batch).items():
                    self.replicas[self.owner[group]].step(("recv", edge, part, time))
        elif kind == "notify":
            waiting = [time for replica in self.replicas for time in replica.context.waiting if time not in self.complete]
            if waiting:
                self.complete.append(min(waiting, key=Timestamp.sort_key))
        elif kind in SNAPSHOTS and self.moved is None:
            for i, replica in enumerate(self.replicas):
                before = replica.increments
                replica.step(step)
                assert i not in self.to_be_whole or replica.increments == before
            self.to_be_whole.clear()

    def catch_up_a_bit(self) -> bool:
        """Notify some replica of its next complete time, perhaps before other replicas are notified of the same time."""
        due = {i: min(times, key=Timestamp.sort_key) for i, times in enumerate(map(self._due, self.replicas)) if times}
        if not due:
            return False
        first = min(due.values(), key=Timestamp.sort_key)
        ready = [i for i, time in due.items() if time == first or not self.replicas[i].vertex.waits_for_siblings]
        replica = self.replicas[self.chance.choice(ready)]
        replica.notify()
        if self.chance.random() < 0.3:
            before = len(replica.context.sent)
            replica.vertex.on_notify(first)  # was asked for twice
            assert all(not len(batch) for _, _, batch in replica.context.sent[before:])
        return True

    def _due(self, replica: Driven) -> list[Timestamp]:
        return [time for time in replica.context.waiting if time in self.complete]

    def end(self, time: Timestamp) -> None:
        self.complete = [time for replica in self.replicas for time in replica.context.waiting]
        while self.catch_up_a_bit():
            self.complete += [time for replica in self.replicas for time in replica.context.waiting]
        for at, replica in enumerate(self.replicas):
            if isinstance(replica.vertex, EndVertex):
                replica.vertex.on_end(time)
                if at + 1 < len(self.replicas):  # what it still has may move to a replica that has not come to its end
                    given = replica.vertex.give(frozenset(range(KEY_GROUPS)))
                    if given is not None:
                        self.replicas[at + 1].vertex.take(pickle.loads(pickle.dumps(given)))


def sent(replicas: Sequence[Driven]) -> dict[tuple[int, Timestamp], Counter[str]]:
    """Records by port and time; best records, which come in lists, one by one."""
    out: dict[tuple[int, Timestamp], Counter[str]] = {}
    for replica in replicas:
        is_best = isinstance(getattr(replica.vertex, "aggregator", None), BestRecords)
        for edge, time, batch in replica.context.sent:
            records = EachRecord().apply(batch) if is_best and not isinstance(replica.vertex, EpochBest) else batch
            if len(records):
                out.setdefault((edge, time), Counter()).update(map(shown, to_rows(records)))
    return out


def check_moves(
    make: Callable[[], Vertex], steps: Sequence[Step], chance: random.Random, *, count: int = 3, broadcast: Broadcast = frozenset()
) -> Replicas:
    """Assert that moves of state change nothing but the order of records within a time; gives the run with moves."""
    alone, several = Driven(make), Replicas(make, count, chance, broadcast)
    alone.context.key_groups = KEY_GROUPS
    for step in steps:
        if step[0] not in SNAPSHOTS:
            alone.step(step)
        several.step(step)
        several.something()
    for run in (alone, several):
        run.end(Timestamp(1000))
    assert sent(several.replicas) == sent([alone])
    return several


def check_tables(make: Callable[[], Vertex], steps: Sequence[Step]) -> None:
    """Assert that state written to tables and restored from them is the same, in whatever form it was."""
    straight, through = Driven(make), Driven(make)
    for step in steps:
        if step[0] in SNAPSHOTS:
            through.through_tables()
            assert through.kept() == straight.kept()
        else:
            straight.step(step)
            through.step(step)
    for run in (straight, through):
        run.end(Timestamp(1000))
    assert sent([through]) == sent([straight])
