"""Drives several replicas of one vertex while key-groups move between them, and reads its state at every epoch that can be read: it must be
what one vertex had that took epoch after epoch."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence

from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.live import LiveState
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.vertex_tables import tables_in
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, Timestamp
from tests.dataflow.driven import SNAPSHOTS, Driven, Step
from tests.dataflow.moving import KEY_GROUPS, Broadcast, Replicas

KEPT_MAX = 4
"""So many epochs before the one that all have passed are read at most."""


class Read(Driven):
    """A replica whose state others read."""

    def __init__(self, make: Callable[[], Vertex]) -> None:
        self.now: int | None = None
        self.applied = -1
        super().__init__(make)
        self.context.key_groups = KEY_GROUPS
        assert isinstance(self.vertex, KeyedVertex)
        self.live = self.vertex.live = LiveState(self.vertex, lambda: self.applied if self.now is None else self.now, lambda: self.applied)

    def step(self, step: Step) -> None:
        if step[0] == "recv" and self.vertex.in_order:
            self._in(step[3], lambda: super(Read, self).step(step))
        else:
            super().step(step)

    def notify(self) -> None:
        if self.context.waiting:
            self._in(min(self.context.waiting, key=Timestamp.sort_key), super().notify)

    def _in(self, time: Timestamp, call: Callable[[], None]) -> None:
        self.now, self.applied = time.epoch, max(self.applied, time.epoch)
        call()
        self.now = None


class ReadReplicas(Replicas):
    """Replicas of which some begin to be read in the middle."""

    def _replica(self) -> Driven:
        return Read(self.make)

    def _hand_over(self, old: Driven, new: Driven, groups: frozenset[int]) -> bool:
        assert isinstance(old, Read)
        assert isinstance(new, Read)
        given = old.vertex.give(groups)
        new.applied = max(new.applied, old.applied)
        if given is not None:
            new.vertex.take(pickle.loads(pickle.dumps(given)))
        else:
            new.live.take({})
        return given is not None


History = list[dict[str, Counter[str]]]
"""By epoch and table the rows that were there when the epoch was over."""


def rows_of(entries: Entries) -> Counter[str]:
    """Rows in any order, as :meth:`Driven.kept` has them."""
    entries = entries.in_python()
    columns = [entries.keys, *entries.columns.values()]
    return Counter(repr([sorted(map(repr, v)) if isinstance(v, list) else v for v in row]) for row in zip(*columns, strict=True))


def history_of(make: Callable[[], Vertex], steps: Sequence[Step]) -> History:
    """By epoch what there is when it is over."""
    alone = Driven(make)
    alone.context.key_groups = KEY_GROUPS
    received = [step for step in steps if step[0] == "recv"]
    out = []
    for epoch in range(1 + max(step[3].epoch for step in received)):
        for step in received:
            if step[3].epoch == epoch:
                alone.step(step)
        while any(time.epoch <= epoch for time in alone.context.waiting):
            alone.notify()
        out.append(alone.kept())
    return out


def readable(vertex: Vertex) -> list[str]:
    """The tables of a vertex that can be read while it runs, if all of them can."""
    if not isinstance(vertex, KeyedVertex):
        return []
    names = [name for name, table in tables_in(vertex).items() if not table.is_in_flight]
    live = LiveState(vertex, lambda: -1, lambda: -1)
    try:
        for name in names:
            live.begin(name, "it")
    except DataflowError:
        return []
    return names if all(map(live.is_of_epochs, names)) else []


def check_reads(
    make: Callable[[], Vertex],
    steps: Sequence[Step],
    chance: random.Random,
    *,
    count: int = 3,
    broadcast: Broadcast = frozenset(),
    history: History | None = None,
) -> int:
    """Assert that each epoch is read as it was; gives how many reads there were. ``history``: what there was, by epoch and table; None:
    what the tables of its state had."""
    if make().in_order:
        epochs = sorted({step[3].epoch for step in steps if step[0] == "recv"})
        steps = [step for epoch in epochs for step in steps if step[0] == "recv" and step[3].epoch == epoch]
    steps = [("snapshot",) if step[0] in SNAPSHOTS else step for step in steps]
    names = readable(Driven(make).vertex) if history is None else list(history[0])
    history = history_of(make, steps) if history is None else history
    several, reads = ReadReplicas(make, count, chance, broadcast), 0
    for at, step in enumerate(steps):
        several.step(step)
        several.something()
        to_come = [later[3].epoch for later in steps[at + 1 :] if later[0] == "recv"]
        waiting = [time.epoch for replica in several.replicas for time in replica.context.waiting]
        passed = min([len(history), *to_come, *waiting]) - 1
        for replica in several.replicas:
            assert isinstance(replica, Read)
            if replica.live.is_read and chance.random() < 0.3:
                replica.live.forget(passed - chance.randrange(KEPT_MAX))
            if chance.random() < 0.5:
                for name in names:
                    replica.live.begin(name, "it")
        reads += sum(_read(several, name, history, passed, chance) for name in names)
    return reads


def _read(several: ReadReplicas, name: str, history: History, passed: int, chance: random.Random) -> int:
    replicas = [replica for replica in several.replicas if isinstance(replica, Read)]
    for replica in replicas:
        if not replica.live.is_read:
            return 0
        replica.live.begin(name, "it")
    first = max(replica.live.since(name) for replica in replicas)
    for epoch in range(max(first, passed - KEPT_MAX), passed + 1):
        expected = history[epoch][name] if epoch >= 0 else Counter()
        found = Counter[str]()
        for number, replica in enumerate(replicas):
            owned = {group for group, owner in several.owner.items() if owner == number}
            entries = replica.live.of_groups(name, epoch, owned).in_python()
            found += rows_of(entries)
            keys = chance.sample(sorted(set(entries.keys), key=repr), min(2, len(set(entries.keys))))
            some, _ = replica.live.of_keys(name, epoch, keys)
            wanted = [row for row, key in enumerate(entries.keys) if key in keys]
            assert rows_of(some) == rows_of(entries.where(wanted)), (name, epoch, keys)
            assert all(key_group(key, KEY_GROUPS) in owned for key in entries.keys)
        assert found == expected, (name, epoch)
    return max(0, passed + 1 - max(first, passed - KEPT_MAX))
