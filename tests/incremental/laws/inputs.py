"""How a program is told of edges that come and go: as they are, as running totals, or as a database's log tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import rayad as rd
from tests.incremental.field_programs import InFields, stream_of
from tests.incremental.programs import Edge, History, Kept


def as_changes(flow: rd.Dataflow, changes: History) -> rd.Collection:
    """Edges and weights."""
    return rd.Collection(flow.from_epochs(changes, batch_rows=3))


def as_totals(flow: rd.Dataflow, changes: History) -> rd.Collection:
    """How often each edge is there, as a running total."""
    totals = flow.from_epochs(changes, batch_rows=3).key_by(lambda change: change[0]).sum(lambda change: change[1])
    return totals.as_collection().flat_map(lambda total: [total[0]] * total[1])


def as_log(flow: rd.Dataflow, changes: History) -> rd.Collection:
    """A row for each edge, as Debezium tells of them: what comes behind something that goes in its epoch replaces it."""
    rows = flow.from_epochs(_log(changes), batch_rows=3)
    table = rows.as_collection(key="id", order=lambda said: said["lsn"], envelope="debezium")
    return table.map(lambda row: (row["src"], row["dst"]))


def _log(changes: History) -> list[list[dict[str, Any]]]:
    there: dict[Edge, list[int]] = defaultdict(list)
    log: list[list[dict[str, Any]]] = []
    lsn = rows = 0
    for some in changes:
        log.append([])
        gone: dict[str, Any] | None = None
        for (a, b), weight in some:
            lsn += 1
            if weight < 0:
                gone = {"op": "d", "before": {"id": there[a, b].pop(), "src": a, "dst": b}, "after": None, "lsn": lsn}
                log[-1].append(gone)
                continue
            row = {"id": rows if gone is None else gone["before"]["id"], "src": a, "dst": b}
            rows += gone is None
            there[a, b].append(row["id"])
            if gone is None:
                log[-1].append({"op": "c", "before": None, "after": row, "lsn": lsn})
            else:
                gone.update({"op": "u", "after": row})
                gone = None
    return log


TOLD: Mapping[str, Callable[[rd.Dataflow, History], rd.Collection]] = {"changes": as_changes, "totals": as_totals, "a log": as_log}
IN_PAIRS = ("changes", *TOLD)
"""What is drawn of these: changes for half of the programs."""


@dataclass(frozen=True)
class AsChanges(Kept):
    """A program of edges that are told in one of these ways."""

    told: str = "changes"

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """See there."""
        flow = rd.Dataflow(self.name, epochs_together=together)
        self.build(TOLD[self.told](flow, changes)).collect("out")
        return flow


_ROW = pa.struct([("id", pa.int64()), ("src", pa.int64()), ("dst", pa.int64())])
LOG = pa.schema([("op", pa.string()), ("before", _ROW), ("after", _ROW), ("lsn", pa.int64())])


class OfLog(InFields):
    """A program of edges that are told as :func:`as_log` has them, in columns."""

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """See there."""
        flow = rd.Dataflow(f"{self.name}-log", epochs_together=together)
        log = [[{"before": None, **said} for said in some] for some in _log(changes)]
        rows = stream_of(flow, log, LOG, self.form).as_collection(key="id", order="lsn", envelope="debezium")
        self.build(rows.select("src", "dst")).collect("out")
        return flow


IN_FIELDS_TOLD = ("changes", "changes", "sql", "a log")
"""What is drawn for programs of fields: ``sql`` are changes, and queries in the place of operators."""

__all__ = ["IN_FIELDS_TOLD", "IN_PAIRS", "TOLD", "AsChanges", "OfLog"]
