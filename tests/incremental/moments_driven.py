"""One vertex of collections without an engine: changes at random moments of two loops go in, and what has come out by each moment is
compared with what the vertex should make of all that had gone in by then."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.records.values import tuple_array
from rayad.dataflow.vertex import VertexContext, begin
from rayad.incremental.columns.form import is_changes, keyed_changes, normalised
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.moments import counts_at
from rayad.incremental.records import as_record
from rayad.progress import Timestamp

KEY_GROUPS = 16
Fed = list[tuple[Timestamp, int, tuple[Any, Any, int]]]
"""Time, input, (key, value, weight)."""
Form = Literal["rows", "columns", "mixed"]
"""As what changes come."""
Whole = Callable[[list[Counter[tuple[Any, Any]]]], Counter[Any]]
"""What comes out, of all that went in: by input the weights of (key, value)."""


class Engine(VertexContext):
    """What a replica asks for and sends."""

    name, replica, parallelism, key_groups = "driven", 0, 1, KEY_GROUPS

    def __init__(self) -> None:
        self.asked: set[Timestamp] = set()
        """When something may be sent: the others wait for it."""
        self.ends: set[Timestamp] = set()
        """When nothing will be sent: nobody else waits."""
        self.in_columns = 0
        """Batches that were sent in columns."""
        self.sent: list[tuple[Timestamp, Any, int]] = []
        self.now: Timestamp | None = None

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Checked as the runtime does: nothing goes back."""
        assert self.now is not None
        assert time.sort_key() >= self.now.sort_key(), f"{time} is sent at {self.now}"
        self.in_columns += is_changes(batch)
        self.sent += [(time, as_record(record), weight) for record, weight in to_rows(batch)]

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See there."""
        assert self.now is None or time.sort_key() >= self.now.sort_key(), f"{time} is asked for at {self.now}"
        (self.ends if capability is None else self.asked).add(time)

    def tell(self, vertex: MomentVertex, time: Timestamp) -> None:
        """A moment, if the replica has asked for it, and the ends before it."""
        if time in self.asked:
            self.tell_ends(vertex, time)
            self.asked.discard(time)
            self.now = time
            vertex.on_notify(time)

    def tell_ends(self, vertex: MomentVertex, before: Timestamp | None = None) -> None:
        """The ends before a time."""
        for end in sorted(self.ends, key=Timestamp.sort_key):
            if before is None or end.sort_key() < before.sort_key():
                self.ends.discard(end)
                self.now = end
                vertex.on_notify(end)


def fed(chance: random.Random, *, inputs: int, epochs: int = 3, rounds: int = 3, keys: int = 2, changes: int = 14) -> Fed:
    """Insertions, and removals of what was inserted before: weights never fall below nothing at a later moment."""
    out: Fed = []
    for _ in range(changes):
        time = Timestamp(chance.randrange(epochs), (chance.randrange(rounds), chance.randrange(rounds)))
        change = chance.randrange(keys), chance.randrange(3), 1
        port = chance.randrange(inputs)
        out.append((time, port, change))
        if chance.random() < 0.5:
            later = Timestamp(chance.randrange(time.epoch, epochs), tuple(chance.randrange(counter, rounds) for counter in time.counters))
            out.append((later, port, (*change[:2], -1)))
    return out


def run(
    make: Callable[[], MomentVertex], what: Fed, chance: random.Random, *, disturbed: bool = False, form: Form = "rows"
) -> list[tuple[Timestamp, Any, int]]:
    """All that comes out. Changes come before their moment, in half of the runs all at once, else while other moments are handled.
    ``disturbed``: between moments the vertex is restored from its snapshot, or a sibling takes over groups. One may be told of the end of
    an epoch when the other is in a later one."""
    vertices = [make() for _ in range(2 if disturbed else 1)]
    engines = [Engine() for _ in vertices]
    for vertex, engine in zip(vertices, engines, strict=True):
        begin(vertex, engine)
    stored = [Stored() for _ in vertices]
    owner = [chance.randrange(len(vertices)) for _ in range(KEY_GROUPS)]

    def deliver(time: Timestamp, port: int, change: tuple[Any, Any, int]) -> None:
        in_columns = form == "columns" or (form == "mixed" and chance.random() < 0.9)
        to = owner[_group(change[0])]
        engines[to].now = time
        vertices[to].on_recv(port, columns_of([change]) if in_columns else [change], time)

    early = chance.random() < 0.5
    coming = [] if early else list(what)
    for one in what if early else ():
        deliver(*one)
    while coming or any(engine.asked for engine in engines):
        asked = (time for engine in engines for time in engine.asked)
        time = min((*asked, *(one[0] for one in coming)), key=Timestamp.sort_key)
        still = []
        for one in coming:
            if one[0] == time or chance.random() < 0.1:
                deliver(*one)
            else:
                still.append(one)
        coming = still
        for vertex, engine in zip(vertices, engines, strict=True):
            engine.tell(vertex, time)
            if not disturbed or chance.random() < 0.3:
                engine.tell_ends(vertex, time)
        for snapshot in stored:
            snapshot.is_new = False
        if disturbed and chance.random() < 0.3:
            at, to = chance.sample((0, 1), 2)
            groups = frozenset(group for group in range(KEY_GROUPS) if owner[group] == at and chance.random() < 0.7)
            given = vertices[at].give(groups)
            for group in groups:
                owner[group] = to
            if given is not None:
                engines[to].now = None
                vertices[to].take(given)
        at = chance.randrange(len(vertices))
        if disturbed and chance.random() < 0.7:
            stored[at].take(vertices[at])
        if disturbed and stored[at].is_new and chance.random() < 0.4:
            vertices[at] = make()
            begin(vertices[at], engines[at])
            stored[at].restore(vertices[at])
    for vertex, engine in zip(vertices, engines, strict=True):
        engine.tell_ends(vertex)
    if form == "columns":
        assert not any(vertex.rows_are_kept() for vertex in vertices)
        assert all(engine.in_columns or not engine.sent for engine in engines)
    return [one for engine in engines for one in engine.sent]


def columns_of(some: list[tuple[Any, Any, int]]) -> pa.RecordBatch:
    """Changes in columns."""
    keys, values, weights = zip(*some, strict=True)
    return keyed_changes(pa.array(keys), _column(values), np.array(weights))


def _column(values: Sequence[Any]) -> pa.Array:
    """Values of one type, of which some may be None, as columns of streams have them."""
    if all(value is None for value in values):
        return pa.nulls(len(values))
    if isinstance(values[0], tuple):
        return tuple_array([_column(part) for part in zip(*values, strict=True)])
    value = normalised(pa.array(values))
    assert value is not None
    return value


class Stored:
    """The snapshots of one replica: a whole one, and increments as long as what has changed is known."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.is_new = False
        """Whether nothing has happened since the last one."""

    def take(self, vertex: MomentVertex) -> None:
        """One more."""
        self.is_new = True
        changes = vertex.take_changes() if self.parts else None
        if changes is None:
            vertex.take_changes()
            self.parts = [pickle.dumps(vertex.checkpoint())]
        else:
            self.parts.append(pickle.dumps(changes()))

    def restore(self, vertex: MomentVertex) -> None:
        """What has been stored."""
        vertex.restore(pickle.loads(self.parts[0]))
        for part in self.parts[1:]:
            vertex.restore_changes(pickle.loads(part))
        self.parts = []


def _group(key: Any) -> int:
    return key_group(key, KEY_GROUPS)


def verify(what: Fed, sent: list[tuple[Timestamp, Any, int]], inputs: int, whole: Whole) -> None:
    """Raise AssertionError unless what has come out by each moment is what it must be."""
    epochs = 1 + max(time.epoch for time, _, _ in what)
    rounds = 2 + max(max(time.counters) for time, _, _ in what)
    for epoch, *moment in itertools.product(range(epochs), range(rounds), range(rounds)):
        at = tuple(moment)
        there: list[Counter[tuple[Any, Any]]] = [Counter() for _ in range(inputs)]
        for time, port, (key, value, weight) in what:
            if time.epoch <= epoch and counts_at(time.counters, at):
                there[port][key, value] += weight
        got: Counter[Any] = Counter()
        for time, record, weight in sent:
            if time.epoch <= epoch and counts_at(time.counters, at):
                got[record] += weight
        want = whole([Counter({one: weight for one, weight in side.items() if weight}) for side in there])
        assert {one: n for one, n in got.items() if n} == {one: n for one, n in want.items() if n}, f"at ({epoch}, {at})"


__all__ = ["fed", "run", "verify"]
