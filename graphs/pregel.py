"""Pregel: vertex programs in supersteps, each superstep one round of a loop.

A node lives, with its state and outgoing edges, in one replica. A superstep runs when the round is complete at this
vertex, so every message of the superstep before is there; the loop ends by itself when no node has sent anything. Nodes
are computed, and messages ordered, in a way that does not depend on who was first, so a run gives the same for every
seed. This is the general tool, with one Python call per active node; the other algorithms of this package work on whole
columns and are some hundred times faster.

Sources: Malewicz et al. (SIGMOD 2010); Naiad (SOSP 2013), 4.2: Pregel as a library on notifications in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow import DataflowError, Stream, Timestamp, show, to_rows
from rayad.dataflow.operators.state.touched_keys import TouchedKeys
from rayad.dataflow.records.wrong_calls import explained
from rayad.dataflow.streams.making import Make
from rayad.graphs.edges import check_edges, check_rounds, unused_name
from rayad.graphs.numbers import number_of, order_key
from rayad.graphs.rounds import RoundVertex
from rayad.graphs.vertex_program import ProgramVertex, VertexProgram

BY_SRC, BY_DST, MESSAGES, WAKE = 0, 1, 2, 3
AGAIN, WAKE_AGAIN, OUT = 0, 1, 2
_MISSING = object()


@explained
def pregel(
    edges: Stream,
    program: VertexProgram,
    *,
    max_supersteps: int | None = None,
    restart: bool = False,
    columns: tuple[str, ...] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Stream:
    """``(node, program.result(state))``, per epoch for the nodes whose result has changed.

    Superstep 0 of an epoch computes the nodes that are new or have new outgoing edges (with ``restart`` all
    nodes, from ``program.init`` on); every later one those that were sent a message. The epoch is over when
    no node sends any more. Without ``restart`` a program must therefore be able to continue from the states it has: that is what
    makes it incremental.

    Args:
        edges: records ``(u, v)`` or ``(u, v, value)``, or columnar batches. A duplicate edge takes the place of the one
            of an earlier epoch; of several in one epoch the one with the smallest value stays.
        program: a :class:`VertexProgram`.
        max_supersteps: supersteps 0 .. max_supersteps - 1 exist; later messages are dropped.
        restart: begin anew in each epoch that brings edges, on the whole graph so far.
        columns: two columns for the ends, or three with the edge's value; by default the first two or three.
        name: of the vertex; its loop is ``name.loop``.
        parallelism: replicas of the vertex; by default the job's.

    A message to a node that is in no edge makes that node. Raises DataflowError for wrong arguments, and when
    ``compute`` fails or returns something else.
    """
    check_edges("pregel", edges, None)
    if not isinstance(program, VertexProgram):
        raise DataflowError(
            f"pregel() was given program={show(program, 60)}: it takes an instance of a subclass of rd.graphs.VertexProgram"
        )
    if max_supersteps is not None:
        max_supersteps = check_rounds("pregel", "max_supersteps", max_supersteps)
    if columns is not None:
        listed = isinstance(columns, (tuple, list)) and len(columns) in (2, 3)
        if not listed or not all(isinstance(column, str) for column in columns):
            raise DataflowError(
                f"pregel() was given columns={columns!r}: give the names of two columns (source, target), or three with the value"
            )
    flow = edges.flow
    name = unused_name(flow, name, "pregel")
    loop = flow.loop(f"{name}.loop")
    triples = edges.map_batches(_Triples(None if columns is None else tuple(columns)), name=f"{name}.edges")
    inside = loop.enter(triples)
    # With restart a round 0 comes first, in which every replica is woken.
    back = loop.feedback(None if max_supersteps is None else max_supersteps + restart)
    wake = loop.feedback(name=f"{name}.wake")
    again, wake_again, out = flow.vertex(
        Make(Supersteps, program, restart),
        inputs=[inside.key_by(itemgetter(0)), inside.key_by(itemgetter(1)), back.key_by(itemgetter(0)), wake.broadcast()],
        outputs=3,
        name=name,
        parallelism=parallelism,
    )
    back.connect(again)
    wake.connect(wake_again)
    return loop.leave_updates(out, of=edges, name=f"{name}.changed")


class _Triples:
    """Edges as ``(source, target, value)``."""

    def __init__(self, columns: tuple[str, ...] | None) -> None:
        self.columns = columns

    def __call__(self, batch: Any) -> list[tuple[Any, Any, Any]]:
        if isinstance(batch, pa.RecordBatch):
            names = self.columns or batch.schema.names[:3]
            missing = [name for name in names if name not in batch.schema.names]
            if missing or len(names) < 2:
                raise DataflowError(
                    f"these are no edges: columns {missing or 'for two nodes'} are missing in a batch with the columns {batch.schema.names}"
                )
            parts = [batch.column(name).to_pylist() for name in names]
            triples = list(zip(*parts, strict=True)) if len(parts) == 3 else [(u, v, None) for u, v in zip(*parts, strict=True)]
        else:
            triples = [self._triple(row) for row in to_rows(batch)]
        for u, v, _ in triples:
            if u is None or v is None:
                number_of(None)
        return triples

    def _triple(self, row: Any) -> tuple[Any, Any, Any]:
        if isinstance(row, dict):
            row = [row.get(name) for name in self.columns or tuple(row)[:3]]
        if isinstance(row, (tuple, list)) and 2 <= len(row) <= 3:
            return row[0], row[1], row[2] if len(row) == 3 else None
        raise DataflowError(f"{show(row)} is no edge: an edge is (u, v) or (u, v, value)")


class Supersteps(RoundVertex):
    """One replica: the nodes in order of their arrival (``order``), their states, outgoing edges and last emitted results."""

    def __init__(self, program: VertexProgram, restart: bool) -> None:
        super().__init__()
        self.program = program
        self.restart = restart
        self.order: dict[Any, int] = {}
        self.states: dict[Any, Any] = {}
        self.edges: dict[Any, dict[Any, Any]] = {}
        self.told: dict[Any, Any] = {}
        self.computed: set[Any] = set()
        self._touched = TouchedKeys()
        self._known = 0

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return {**self.rest(), "order": list(self.order), "states": self.states, "edges": self.edges, "told": self.told}

    def restore(self, state: Any) -> None:
        self.restore_rest(state)
        self.order = {node: index for index, node in enumerate(state["order"])}
        self.states, self.edges, self.told = state["states"], state["edges"], state["told"]

    def take_changes(self) -> Callable[[], Any] | None:
        touched, known = self._touched.take(), self._known
        self._known = len(self.order)
        return None if touched is None else lambda: self._changed(touched(), known)

    def _changed(self, touched: set[Any], known: int) -> dict[str, Any]:
        tables = {name: getattr(self, name) for name in ("states", "edges", "told")}
        changes = {name: {node: table[node] for node in touched if node in table} for name, table in tables.items()}
        return {**self.rest(), "order": list(islice(self.order, known, None)), **changes}

    def restore_changes(self, changes: Any) -> None:
        self.restore_rest(changes)
        for node in changes["order"]:
            self.order[node] = len(self.order)
        for name in ("states", "edges", "told"):
            getattr(self, name).update(changes[name])

    def rest(self) -> dict[str, Any]:
        return {**super().rest(), "computed": self.computed}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        super().restore_rest(rest)
        self.computed = rest["computed"]

    # -- supersteps ----------------------------------------------------------------
    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        superstep = number - self.restart
        changed = self._take_edges(arrived) if number == 0 else set()
        if superstep < 0:
            self.send_by(WAKE_AGAIN, [self.replica], time)
            return
        inbox = self._inbox(arrived.get(MESSAGES, ()))
        if superstep == 0 and self.restart:
            self.states = {node: self.program.init(node) for node in self.order}
            changed = set(self.order)
        self._arrive(inbox)
        nodes = sorted(changed | inbox.keys(), key=self.order.__getitem__)
        self._touched.note(nodes, len(self.order))
        outgoing: list[tuple[Any, Any, Any]] = []
        for node in nodes:
            outgoing += [(target, node, message) for target, message in self._compute(node, superstep, time.epoch, inbox.get(node, []))]
        self.send_by(AGAIN, self._combined(outgoing), time)
        if nodes:
            self.computed.update(nodes)
            self.notify_at_end(time)

    def on_end(self, time: Timestamp) -> None:
        out = []
        for node in sorted(self.computed, key=self.order.__getitem__):
            result = self.program.result(self.states[node])
            before = self.told.get(node, _MISSING)
            if before is _MISSING or before != result:
                self.told[node] = result
                out.append((node, result))
        self._touched.note(self.computed, len(self.order))
        self.computed = set()
        self.send_by(OUT, out, time)

    # -- parts of a superstep ------------------------------------------------------
    def _take_edges(self, arrived: dict[int, list[Any]]) -> set[Any]:
        """Add edges; gives the nodes that are new or have new outgoing edges."""
        outgoing: dict[Any, dict[Any, Any]] = {}
        for batch in arrived.get(BY_SRC, ()):
            for u, v, value in batch:
                mine = outgoing.setdefault(u, {})
                if v not in mine or order_key(value) < order_key(mine[v]):
                    mine[v] = value
        targets = {v for batch in arrived.get(BY_DST, ()) for _, v, _ in batch}
        fresh = self._arrive(outgoing.keys() | targets)
        changed = set(fresh)
        self._touched.note(outgoing, len(self.order))
        for u, mine in outgoing.items():
            edges = self.edges[u]
            for v in sorted(mine, key=order_key):
                if v not in edges or edges[v] != mine[v]:
                    edges[v] = mine[v]
                    changed.add(u)
        return changed

    def _arrive(self, nodes: Iterable[Any]) -> list[Any]:
        fresh = sorted((node for node in nodes if node not in self.order), key=order_key)
        for node in fresh:
            self.order[node] = len(self.order)
            self.edges[node] = {}
            self.states[node] = self.program.init(node)
        self._touched.note(fresh, len(self.order))
        return fresh

    def _inbox(self, batches: Iterable[Any]) -> dict[Any, list[Any]]:
        combine = self.program.combine
        inbox: dict[Any, list[Any]] = {}
        for target, _, message in sorted((row for batch in batches for row in batch), key=_by_sender):
            box = inbox.get(target)
            if box is None:
                inbox[target] = [message]
            elif combine is None:
                box.append(message)
            else:
                box[0] = combine(box[0], message)
        return inbox

    def _compute(self, node: Any, superstep: int, epoch: int, messages: list[Any]) -> list[tuple[Any, Any]]:
        vertex = ProgramVertex(node, superstep, epoch, self.edges[node])
        where = f"compute of {type(self.program).__name__} for node {show(node, 60)} in superstep {superstep}"
        try:
            answer = self.program.compute(vertex, self.states[node], messages)
        except Exception as error:
            raise DataflowError(f"{where}: {type(error).__name__}: {error}") from error
        try:
            self.states[node], outgoing = answer
            return [(target, message) for target, message in outgoing or ()]
        except (TypeError, ValueError) as error:
            raise DataflowError(f"{where} returned {show(answer)}; it must return (state, [(target, message), ...])") from error

    def _combined(self, outgoing: list[tuple[Any, Any, Any]]) -> list[tuple[Any, Any, Any]]:
        combine = self.program.combine
        if combine is None:
            return outgoing
        merged: dict[Any, Any] = {}
        for target, _, message in outgoing:
            merged[target] = combine(merged[target], message) if target in merged else message
        return [(target, self.replica, message) for target, message in merged.items()]


def _by_sender(row: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    return order_key(row[1])
