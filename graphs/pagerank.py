"""PageRank: power iteration over the whole graph so far, once per epoch that brings edges.

A node lives, with its outgoing edges, in one replica. With x = n times the rank, a round is ``x' = (1 - d) + d (A x +
dangling(x) / n)``, which needs the number of nodes n only when the contributions are received: so counting nodes costs
no round of its own. Contributions are summed per target before they are sent, one packet to each replica (``packets.py``). Every
replica also broadcasts one row, its part of the dangling mass and of n, which is what starts the others' round.

A round costs one gather and one segmented sum over the local edges (``sparse_sums.py``). Ranks are those of exactly ``rounds``
iterations from the uniform vector; a warm start would give others, and as dangling mass and n reach every node, a small
change of the graph is a small change everywhere.

Sources: Page, Brin, Motwani and Winograd (1999), 2.6 for dangling pages; Naiad (SOSP 2013), 6.1 and 6.3; McSherry's
    timely PageRank example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, overload

import numpy as np

from rayad.dataflow import DataflowError, Stream, Timestamp, show
from rayad.dataflow.records.wrong_calls import explained
from rayad.dataflow.streams.making import Make
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.changing import ChangingEdges, of_collection
from rayad.graphs.edges import DST, SRC, check_edges, check_rounds, prepared_edges, unused_name
from rayad.graphs.nodes import grown
from rayad.graphs.numbers import Floats, Ints, owners
from rayad.graphs.packets import addresses, packet, unpacked
from rayad.graphs.rounds import GraphVertex, received, received_names, sender
from rayad.graphs.sparse_sums import SparseSums
from rayad.graphs.stored_state import DenseValues, Part

BY_SRC, MESSAGES, TOTALS = 0, 1, 2
AGAIN, TOTALS_AGAIN, OUT = 0, 1, 2


@overload
def pagerank(
    edges: Stream,
    rounds: int = 20,
    damping: float = 0.85,
    *,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Stream: ...
@overload
def pagerank(
    edges: ChangingEdges,
    rounds: int = 20,
    damping: float = 0.85,
    *,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Any: ...
@explained
def pagerank(
    edges: Stream | ChangingEdges,
    rounds: int = 20,
    damping: float = 0.85,
    *,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Any:
    """``(node, rank)``, per epoch for the nodes whose rank has changed. Ranks sum to 1.

    The graph is that of all edges up to the epoch; duplicate edges count once, a self-loop is an edge. The rank is that
    of ``rounds`` power iterations from the uniform vector, with the mass of nodes without outgoing edges spread
    uniformly (as networkx does it).

    Args:
        edges: records ``(u, v)`` or columnar batches; or a :class:`rayad.Collection` of ``(u, v)``, whose edges come and go: the result
            is a collection then, without ``name`` and ``parallelism``.
        rounds: iterations, at least 1.
        damping: 0 <= damping < 1.
        columns: the two columns of source and target; by default the first two.
        name: of the vertex; its loop is ``name.loop``.
        parallelism: replicas of the vertex; by default the job's.

    Raises:
        DataflowError: for arguments out of these ranges.
    """
    if isinstance(edges, ChangingEdges):
        return of_collection("pagerank", edges, rounds, damping, columns=columns, name=name, parallelism=parallelism)
    given = check_edges("pagerank", edges, columns)
    rounds = check_rounds("pagerank", "rounds", rounds)
    if isinstance(damping, bool) or not isinstance(damping, Real) or not 0 <= damping < 1:
        raise DataflowError(f"pagerank() was given damping={show(damping)}: it must be a number with 0 <= damping < 1")
    name = unused_name(edges.flow, name, "pagerank")
    flow = edges.flow
    loop = flow.loop(f"{name}.loop")
    inside = loop.enter(prepared_edges(edges, given, name))
    back, totals = loop.feedback(), loop.feedback(name=f"{name}.totals")
    again, totals_again, out = flow.vertex(
        Make(PageRank, rounds, float(damping)),
        inputs=[inside.key_by("src"), back.key_by("to"), totals.broadcast()],
        outputs=3,
        name=name,
        parallelism=parallelism,
    )
    back.connect(again)
    totals.connect(totals_again)
    return loop.leave_updates(out, of=edges, name=f"{name}.changed")


class PageRank(GraphVertex):
    """One replica. Round 0 takes edges in and announces nodes to their replicas, round 1 sends the first contributions, round
    k + 1 has the result of k iterations.

    Everything by dense index: ``x`` is n times the rank; ``partial`` what the nodes of this replica contribute to each
    node (to its own nodes they are added here, to the others' they are sent); ``told`` the rank last emitted. ``ghosts`` are the
    nodes of each other replica that this one contributes to, ``places`` its own that each other one contributes to.
    """

    def __init__(self, rounds: int, damping: float) -> None:
        super().__init__()
        self.rounds = rounds
        self.damping = damping
        self.edges = Adjacency()  # from target to source
        self.announced = 0
        self.told: Floats = np.empty(0, np.float64)
        self._forget()

    def setup(self) -> None:
        super().setup()
        self.ranks_told = DenseValues(self, "told", self.nodes, np.nan)

    def parts(self) -> Mapping[str, Part]:
        return {**super().parts(), "edges": self.edges, "told": self.ranks_told}

    def _forget(self) -> None:
        """Drop what is needed during an epoch only."""
        floats = np.empty(0, np.float64)
        self.sums = SparseSums(0, np.empty(0, np.int64), np.empty(0, np.int64))
        self.ghosts: dict[int, Ints] = {}
        self.places: dict[int, Ints] = {}
        self.x: Floats = floats
        self.share: Floats = floats
        self.partial: Floats = floats
        self.dangling: Ints = np.empty(0, np.int64)

    def rest(self) -> dict[str, Any]:
        return {**super().rest(), "announced": self.announced, "x": self.x, "partial": self.partial, "places": self.places}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        super().restore_rest(rest)
        self._forget()
        self.announced, self.x, self.places = rest["announced"], rest["x"], rest["places"]
        self.partial = rest["partial"].copy()  # what comes is added to it in place

    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        if number == 0:
            if BY_SRC in arrived:
                self.edges.add_keys(self.take_edge_keys(arrived[BY_SRC], DST, SRC))
                self._announce(time)
            self.send_by(TOTALS_AGAIN, [(self.replica, 0.0, 0)], time)  # wakes every replica
            return
        if number == 1:
            if MESSAGES in arrived:
                self.nodes.add(received(arrived[MESSAGES])[1], received_names(arrived[MESSAGES]))
            self._begin()
        else:
            if self.sums.count != len(self.x):
                self._prepare()  # after a restore in the middle of an epoch
            self._iterate(arrived)
        if number <= self.rounds:
            self._contribute(time, first=number == 1)
        else:
            self._emit(time, sum(row[2] for batch in arrived[TOTALS] for row in batch))
            self._forget()

    def _announce(self, time: Timestamp) -> None:
        """Announce new nodes of other replicas to them: such a node may have no outgoing edge."""
        fresh = np.arange(self.announced, len(self.nodes))
        self.announced = len(self.nodes)
        fresh = fresh[~self.nodes.mine[fresh]]
        numbers = self.nodes.numbers[fresh]
        self.send_messages(AGAIN, time, numbers, numbers, fresh)

    def _begin(self) -> None:
        self._prepare()
        self.x = np.ones(len(self.nodes))

    def _prepare(self) -> None:
        """Prepare the edges of an epoch for its iterations."""
        count, mine = len(self.nodes), self.nodes.mine
        target, source = self.edges.all_edges()
        self.sums = SparseSums(count, source, target)
        degree = np.bincount(source, minlength=count)
        self.dangling = np.flatnonzero((degree == 0) & mine)
        ghosts = np.flatnonzero(~mine)
        home = owners(self.nodes.numbers[ghosts], self.parallelism, self.key_groups)
        self.ghosts = {replica: ghosts[home == replica] for replica in range(self.parallelism) if replica != self.replica}
        self.share = 1.0 / np.maximum(degree, 1)

    def _contribute(self, time: Timestamp, *, first: bool) -> None:
        self.partial = self.sums.of(self.x * self.share)
        places = addresses(self.parallelism, self.key_groups)
        for replica, ghosts in self.ghosts.items():
            if len(ghosts):
                numbers = self.nodes.numbers[ghosts] if first else None
                self.send_by(AGAIN, packet(self.replica, places[replica], self.partial[ghosts], numbers), time)
        held = int(self.nodes.mine.sum())
        self.send_by(TOTALS_AGAIN, [(self.replica, float(self.x[self.dangling].sum()), held)], time)

    def _iterate(self, arrived: dict[int, list[Any]]) -> None:
        totals = [row for batch in arrived[TOTALS] for row in batch]
        count = sum(row[2] for row in totals)
        spread = math.fsum(row[1] for row in totals) / count  # fsum: the same in whatever order they came
        summed = self.partial
        for batch in sorted(arrived.get(MESSAGES, ()), key=sender):  # the order of a sum must not depend on who was first
            value, numbers = unpacked(batch)
            if numbers is not None:
                self.places[sender(batch)] = self.nodes.find(numbers)
            summed[self.places[sender(batch)]] += value
        self.x = (1.0 - self.damping) + self.damping * (summed + spread)

    def _emit(self, time: Timestamp, count: int) -> None:
        self.told = grown(self.told, len(self.x), np.nan)
        rank = self.x / count
        moved = np.flatnonzero(self.nodes.mine & (rank != self.told[: len(rank)]))
        self.told[moved] = rank[moved]
        self.ranks_told.note(moved)
        self.send_results(OUT, time, moved, rank[moved])
