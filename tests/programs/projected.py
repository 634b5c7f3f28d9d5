"""Programs of projections and of filters by expressions, in rows and in columns: the model is plain Python."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program

SALES = [
    [{"shop": "ulm", "price": 300, "n": 2}, {"shop": "bonn", "price": 50, "n": None}, {"shop": None, "price": 70, "n": 1}],
    [],
    [{"shop": "ulm", "price": 20, "n": 5}, {"shop": "kiel", "price": 900, "n": 1}, {"shop": "bonn", "price": 51, "n": 2}],
]
SCHEMA = pa.schema([("shop", pa.string()), ("price", pa.int64()), ("n", pa.int64())])


def projected(flow: rd.Dataflow, *, columns: bool) -> None:
    epochs = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in SALES] if columns else SALES
    sales = flow.from_epochs(epochs, parts=2, batch_rows=1)
    totals = sales.with_columns({"total": pc.field("price") * pc.field("n")}).filter(pc.field("total") > 100).rename({"shop": "where"})
    totals.drop("price").collect("rows")
    named = totals.select("total", {"town": pc.coalesce(pc.field("where"), pc.scalar("?"))})
    named.key_by("town").sum("total").map(tuple).collect("sums")


def expected() -> Expected:
    sales = m.epochs(SALES)
    rows = [(t, {**r, "total": r["price"] * r["n"]}) for t, r in sales if r["n"] is not None and r["price"] * r["n"] > 100]
    return {
        "rows": [(t, {"where": r["shop"], "n": r["n"], "total": r["total"]}) for t, r in rows],
        "sums": m.collected(rows, lambda r: r["shop"] or "?", lambda r: r["total"], sum),
    }


PROGRAMS = [Program(f"projected-{form}", partial(projected, columns=form == "columns"), expected) for form in ("rows", "columns")]
