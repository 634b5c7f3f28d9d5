"""Drives one vertex without a runtime: it gets batches and notifications, and gives sent records; snapshots come between any two steps.

A run is a list of steps. It is executed twice: once without interruption, and once with snapshots, after some of which a new vertex resumes
from the snapshot. Both must send the same records and end in the same state.
"""

from __future__ import annotations

import copy
import decimal
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.stored_columns import Unchanging, taken_back
from rayad.dataflow.operators.state.stored_rows import ByPosition, StoredRows
from rayad.dataflow.operators.state.tables import entries_of, table_of
from rayad.dataflow.operators.state.vertex_tables import put_tables, tables_in
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import EndVertex, Vertex, VertexContext
from rayad.progress import Timestamp

Step = tuple[Any, ...]
SNAPSHOTS = ("snapshot", "full", "discarded", "crash")


class Context(VertexContext):
    """Keeps the records that are sent and the notifications that are asked for."""

    def __init__(self, parallelism: int = 1) -> None:
        self.name, self.replica, self.parallelism, self.key_groups = "driven", 0, parallelism, 256
        self.sent: list[tuple[int, Timestamp, Any]] = []
        self.waiting: set[Timestamp] = set()

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.sent.append((edge, time, batch.copy() if isinstance(batch, list) else batch))

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        self.waiting.add(time)


class Driven:
    """A vertex that is driven by steps: ``("recv", edge, batch, time)``, ``("notify",)`` for the first of the times asked for, and
    those of :data:`SNAPSHOTS`."""

    def __init__(self, make: Callable[[], Vertex], parallelism: int = 1) -> None:
        self.make = make
        self.context = Context(parallelism)
        self.vertex = self._fresh()
        self.chain: list[bytes] = []
        self.increments = 0

    def _fresh(self) -> Vertex:
        vertex = self.make()
        vertex._context = self.context
        vertex.setup()
        return vertex

    def step(self, step: Step) -> None:
        kind, *rest = step
        if kind == "recv":
            edge, batch, time = rest
            self.vertex.on_recv(edge, copy.deepcopy(batch) if isinstance(batch, list) else batch, time)  # accumulators change in place
        elif kind == "notify":
            self.notify()
        elif kind in SNAPSHOTS:
            self.snapshot(full=kind == "full", discarded=kind == "discarded")
            if kind == "crash":
                self.go_back()

    def notify(self) -> None:
        if self.context.waiting:
            time = min(self.context.waiting, key=Timestamp.sort_key)
            self.context.waiting.remove(time)
            self.vertex.on_notify(time)

    def end(self, time: Timestamp) -> None:
        while self.context.waiting:
            self.notify()
        if isinstance(self.vertex, EndVertex):
            self.vertex.on_end(time)

    def snapshot(self, *, full: bool = False, discarded: bool = False) -> None:
        changes = self.vertex.take_changes()
        if discarded:
            self.chain = []  # no increment can build on a snapshot that was not written
        elif changes is None or full or not self.chain:
            self.chain = [pickled(self.vertex.checkpoint())]
        else:
            self.chain.append(pickled(changes()))
            self.increments += 1

    def go_back(self) -> None:
        """Resume from the last snapshot in a new vertex."""
        self.vertex = self._fresh()
        state, *changes = map(loaded, self.chain)
        self.vertex.restore(state)
        for some in changes:
            self.vertex.restore_changes(some)
        self.chain = []  # a new vertex has given no changes yet: its next snapshot is a full one

    def through_tables(self) -> None:
        """Continue with a new vertex: its kept state went through Arrow tables in a file, its pending state through a checkpoint."""
        copy, fresh = self.looked_at(), self._fresh()
        assert isinstance(fresh, KeyedVertex)
        empty, theirs = tables_in(fresh), copy.states()
        tables = {name: as_file(table_of(table.entries)) for name, table in tables_in(copy).items() if not table.is_in_flight}
        for name, state in fresh.states().items():
            if state.is_in_flight:
                state.restore(loaded(pickled(theirs[name].checkpoint())))
        put_tables(fresh, {name: entries_of(table, empty[name].entries, name) for name, table in tables.items()})
        self.vertex = fresh
        self.chain = []

    def looked_at(self) -> KeyedVertex:
        """A copy of the vertex: making tables of it does not change the vertex that is driven."""
        copy = self._fresh()
        assert isinstance(copy, KeyedVertex)
        copy.restore(loaded(pickled(self.vertex.checkpoint())))
        return copy

    def kept(self) -> dict[str, Counter[str]]:
        """By table the rows of its kept state, in any order."""
        out = {}
        for name, table in tables_in(self.looked_at()).items():
            if not table.is_in_flight:
                columns = [table.entries.keys, *table.entries.columns.values()]
                out[name] = Counter(
                    repr([sorted(map(repr, v)) if isinstance(v, list) else v for v in row]) for row in zip(*columns, strict=True)
                )
        return out

    def sent(self) -> dict[tuple[int, Timestamp], Counter[str]]:
        """Records by port and time."""
        out: dict[tuple[int, Timestamp], Counter[str]] = {}
        for edge, time, batch in self.context.sent:
            if len(to_rows(batch)):
                out.setdefault((edge, time), Counter()).update(map(shown, to_rows(batch)))
        return out


def shown(value: Any) -> str:
    """``repr``, of decimals without the zeros at their end: a column has as many as its longest value needs."""
    if isinstance(value, decimal.Decimal):
        return f"Decimal({value.normalize(decimal.Context(prec=100))})"
    return f"({', '.join(map(shown, value))})" if type(value) is tuple else repr(value)


def steps_with(
    batches: st.SearchStrategy[tuple[int, Any]], *, first: Sequence[tuple[int, Any]] = (), later: Callable[[int], int] | None = None
) -> st.SearchStrategy[list[Step]]:
    """Steps, after an epoch with the batches ``first`` and a snapshot: rounds of batches ``(edge, batch)`` at epochs that are not complete,
    notifications in their order, and snapshots. ``later``: the epoch that the vertex asks for, too, when a batch comes at one."""
    recv = st.lists(st.tuples(batches, st.integers(0, 2)), max_size=3)
    kinds = st.sampled_from([*["snapshot"] * 4, "crash", "crash", "full", "discarded", "nothing"])
    rounds = st.lists(st.tuples(recv, st.integers(0, 2), kinds), min_size=1, max_size=9)
    return rounds.map(lambda some: _placed([([(batch, 0) for batch in first], 1, "snapshot"), *some], later))


def _placed(rounds: Sequence[tuple[Any, int, str]], later: Callable[[int], int] | None) -> list[Step]:
    out: list[Step] = []
    complete, waiting = 0, set()
    for received, notified, snapshot in rounds:
        for (edge, batch), ahead in received:
            waiting.add(complete + ahead)
            if later is not None:
                waiting.add(later(complete + ahead))
            out.append(("recv", edge, batch, Timestamp(complete + ahead)))
        for _ in range(notified):
            if waiting:
                complete = min(waiting) + 1
                waiting.remove(complete - 1)
            out.append(("notify",))
        out.append((snapshot,))
    return out


def check(make: Callable[[], Vertex], steps: Sequence[Step], *, view: Callable[[Any], Any] | None = None, parallelism: int = 1) -> Driven:
    """Assert that snapshots do not change results; gives the run with them."""
    straight, with_snapshots = Driven(make, parallelism), Driven(make, parallelism)
    for step in steps:
        if step[0] not in SNAPSHOTS:
            straight.step(step)
        with_snapshots.step(step)
    view = view or plain_state
    assert view(with_snapshots.vertex) == view(straight.vertex)
    for run in (straight, with_snapshots):
        run.end(Timestamp(1000))
    assert with_snapshots.sent() == straight.sent()
    assert view(with_snapshots.vertex) == view(straight.vertex)
    return with_snapshots


def as_file(table: pa.Table) -> pa.Table:
    """As a file holds it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def pickled(value: Any) -> bytes:
    """As parts hold it."""
    return b"".join(bytes(piece) for piece in dumped(value))


def plain_state(vertex: Vertex) -> Any:
    """What ``checkpoint`` gives as plain Python values, columns as rows."""
    return plain(pickle.loads(pickle.dumps(vertex.checkpoint())))


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, ByPosition):
        return plain(StoredRows().restore(value))
    if isinstance(value, Unchanging):
        return [repr(row) for batch in taken_back([value]) for row in to_rows(batch)]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, (set, pa.Schema)) else repr(value)
