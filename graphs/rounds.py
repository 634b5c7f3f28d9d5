"""What the graph vertices share: rounds, epochs one after another, and messages as columns.

A graph vertex lives in a loop. What arrives for a time is put aside and handled when nothing more can arrive for it
(``on_notify``), so results do not depend on the order in which batches travel. Its notifications are ``sequential``: no
round of epoch e + 1 is handled before the last one of epoch e, so the state is always that of one whole prefix of the
epochs. The end of an epoch's loop is a notification too: at the counter END, beyond every round; results leave at that
time, so nothing of a round in between is ever seen outside.

Source: Naiad (SOSP 2013), 2.2 and 4.2 (notifications order rounds; Pregel as a library on them); docs/design/engine.md
    for the sequential order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow import DataflowError, Timestamp, Vertex
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.graphs.adjacency import SHIFT
from rayad.graphs.edges import DST, SRC, SRC_NAME, fits_int32, result_batch, sides
from rayad.graphs.nodes import Nodes
from rayad.graphs.numbers import Ints, decode_names, distinct, encode_names, to_array, to_column
from rayad.graphs.stored_state import Part

END = 1 << 62
"""The counter of the notification at the end of a loop."""

TO, VALUE, NAME, TO_NAME = "to", "value", "name", "to_name"
SENDER = b"rayad.sender"


class RoundVertex(Vertex):
    """Collects what arrives by time and input, and calls :meth:`on_round` once per time and :meth:`on_end` once per loop."""

    sequential = True

    def __init__(self) -> None:
        self.waiting: dict[Timestamp, list[tuple[int, Any]]] = {}

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return self.rest(), {name: part.checkpoint() for name, part in self.parts().items()}

    def restore(self, state: Any) -> None:
        rest, parts = state
        for name, part in self.parts().items():
            part.restore(parts[name])
        self.restore_rest(rest)

    def take_changes(self) -> Callable[[], Any] | None:
        taken = {name: part.take_changes() for name, part in self.parts().items()}
        changes = {name: some for name, some in taken.items() if some is not None}
        return (lambda: (self.rest(), {name: some() for name, some in changes.items()})) if len(changes) == len(taken) else None

    def restore_changes(self, changes: Any) -> None:
        rest, parts = changes
        for name, part in self.parts().items():
            part.restore_changes(parts[name])
        self.restore_rest(rest)

    def parts(self) -> Mapping[str, Part]:
        """The state of which a snapshot writes only the changes."""
        return {}

    def rest(self) -> dict[str, Any]:
        """The state that every snapshot writes whole."""
        waiting = {time: ([edge for edge, _ in some], stored_mixed(batch for _, batch in some)) for time, some in self.waiting.items()}
        return {"waiting": waiting}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        """Take back what :meth:`rest` gave; all parts are there."""
        self.waiting = {
            time: list(zip(edges, taken_back_mixed(batches), strict=True)) for time, (edges, batches) in rest["waiting"].items()
        }

    # -- rounds --------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.waiting.get(time)
        if waiting is None:
            waiting = self.waiting[time] = []
            self.notify_at(time)
        waiting.append((edge, batch))

    def on_notify(self, time: Timestamp) -> None:
        if time.counters[-1] == END:
            self.on_end(time)
            return
        arrived: dict[int, list[Any]] = {}
        for edge, batch in self.waiting.pop(time, ()):
            arrived.setdefault(edge, []).append(batch)
        self.on_round(time, time.counters[-1], arrived)

    def notify_at_end(self, time: Timestamp) -> None:
        """Ask for :meth:`on_end` when the loop of ``time`` is over everywhere upstream."""
        self.notify_at(Timestamp.of(time.epoch, (*time.counters[:-1], END)))

    @abstractmethod
    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        """Everything of round ``number`` has arrived: the batches by input."""

    def on_end(self, time: Timestamp) -> None:
        """No round of this loop is left; results may be sent at ``time``."""


class GraphVertex(RoundVertex):
    """A RoundVertex that knows nodes."""

    nodes: Nodes

    def setup(self) -> None:
        self.nodes = Nodes(self.replica, self.parallelism, self.key_groups)
        if self.parallelism > 1:
            pa.array(np.zeros(1))  # the exchange makes columns so, and pyarrow's first one imports pandas: while the job starts

    def parts(self) -> Mapping[str, Part]:
        return {"nodes": self.nodes}

    def take_edges(self, batches: list[Any]) -> tuple[Ints, Ints]:
        """Prepared edges as dense indexes of sources and targets; nodes that are new are taken in."""
        self._take_nodes(batches)
        return self._dense(batches, SRC), self._dense(batches, DST)

    def take_edge_keys(self, batches: list[Any], high: str, low: str) -> Ints:
        """As :meth:`take_edges`, as one array for :meth:`Adjacency.add_keys`, whose "source" is the column ``high``."""
        self._take_nodes(batches)
        keys = self._dense(batches, high)
        keys <<= SHIFT
        at = 0
        for batch in batches:
            keys[at : at + batch.num_rows] |= self.nodes.find(_numbers(batch, low))
            at += batch.num_rows
        return keys

    def _dense(self, batches: list[Any], side: str) -> Ints:
        dense = np.empty(sum(batch.num_rows for batch in batches), np.int64)
        at = 0
        for batch in batches:
            dense[at : at + batch.num_rows] = self.nodes.find(_numbers(batch, side))
            at += batch.num_rows
        return dense

    def _take_nodes(self, batches: list[Any]) -> None:
        known = len(self.nodes)
        self.nodes.add_new(*(to_array(batch.column(side)) for batch in batches for side in (SRC, DST)))
        if len(self.nodes) >> (SHIFT - 1):
            raise DataflowError("one replica knows more than 2**31 nodes: give the graph function a higher parallelism")
        if self.nodes.names or any(SRC_NAME in batch.schema.names for batch in batches):
            self.nodes.learn(((self.nodes.find(_numbers(batch, side)), names) for batch in batches for side, names in sides(batch)), known)

    def send_messages(self, port: int, time: Timestamp, to: Ints, value: Any, named: Ints | None = None) -> None:
        """One columnar batch ``(to, value)`` to the replicas of the nodes ``to`` (numbers), marked with this replica's number.

        ``named`` are dense indexes whose names go along, for receivers that may not know them.
        """
        names = encode_names(self.nodes.names_of(named)) if named is not None and self.nodes.names else None
        self.send_columns(port, time, to, value, {NAME: names})

    def send_columns(self, port: int, time: Timestamp, to: Ints, value: Any, names: dict[str, pa.Array | None]) -> None:
        """As :meth:`send_messages`, with columns of names; those that are None stay out."""
        if not len(to):
            return
        columns = {TO: packed(to), VALUE: packed(value), **{name: column for name, column in names.items() if column is not None}}
        self.send_by(port, pa.record_batch(columns, metadata={SENDER: b"%d" % self.replica}), time)

    def send_results(self, port: int, time: Timestamp, dense: Ints, values: Any) -> None:
        """Result records for nodes given by dense index; ``values`` is an array, or a list of names."""
        if len(dense):
            names = self.nodes.names_of(dense) if self.nodes.names else self.nodes.numbers[dense]
            self.send_by(port, result_batch(names, values), time)


def _numbers(batch: Any, side: str) -> Ints:
    return to_array(batch.column(side)).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def sender(batch: Any) -> int:
    """The replica that sent a message batch."""
    return int(batch.schema.metadata[SENDER])


def packed(values: Any) -> pa.Array:
    """An array as a column: integers as int32 where they fit, to halve what travels."""
    return to_column(values.astype(np.int32) if values.dtype == np.int64 and fits_int32(values) else values)


def received(batches: list[Any]) -> tuple[Ints, Any]:
    """The columns ``to`` and ``value`` of message batches; integers are int64 again."""
    to, value = (np.concatenate([to_array(batch.column(name)) for batch in batches]) for name in (TO, VALUE))
    return to.astype(np.int64, copy=False), value if value.dtype.kind == "f" else value.astype(np.int64, copy=False)


def received_names(batches: list[Any]) -> pa.Array | None:
    """The names of the values that came with messages, or None."""
    if all(NAME not in batch.schema.names for batch in batches):
        return None
    names: list[Any] = []
    for batch in batches:
        names += decode_names(batch.column(NAME)) if NAME in batch.schema.names else [None] * batch.num_rows
    if all(type(name) is str for name in names):
        return pa.array(names, pa.string())
    numbers = [number if name is None else name for number, name in zip(received(batches)[1].tolist(), names, strict=True)]
    return encode_names(numbers)


def members(marked: Ints, count: int) -> Ints:
    """The distinct dense indexes below ``count``, sorted: by a mask over all nodes where many are given, else by sorting."""
    if len(marked) * 8 < count:
        return distinct(marked)
    mask = np.zeros(count, np.bool_)
    mask[marked] = True
    return np.flatnonzero(mask)
