"""Pathway: a table that follows each change of a join: amounts by country, of orders that come and go.

One process with as many threads as workers. Orders and customers come from Parquet files as a stream of changes with times, the first time
with all that is there at first. The seconds are those from the files to the last time whose result is complete, by the callback of
``pw.io.subscribe``: Pathway is given all times at once and may work on several together, so that those of one time say nothing.
"""

import json
import os
import sys
import time

arguments = json.loads(sys.argv[1])
os.environ["PATHWAY_THREADS"] = str(arguments["workers"])
os.environ["PATHWAY_DISABLE_TELEMETRY"] = "1"

import pandas as pd  # noqa: E402
import pathway as pw  # noqa: E402


def table(path: str, columns: list[str]) -> pw.Table:
    """Rows of (values, time, difference); the first column tells them apart."""
    frame = pd.read_parquet(path)
    rows = list(zip(*(frame[name].tolist() for name in (*columns, "time", "diff")), strict=True))
    kinds = {name: pw.column_definition(dtype=int, primary_key=name == columns[0]) for name in columns}
    return pw.debug.table_from_rows(pw.schema_builder(kinds), rows, is_stream=True)


found: dict[int, int] = {}
ended: list[float] = []


def keep(key, row, time, is_addition):
    """The table as it is."""
    if is_addition:
        found[row["country"]] = row["amount"]
    elif found.get(row["country"]) == row["amount"]:
        del found[row["country"]]


def over(at):
    """A time is complete."""
    ended.append(time.perf_counter())


began = time.perf_counter()
orders = table(arguments["orders"], ["order", "customer", "amount"])
customers = table(arguments["customers"], ["number", "country"])
met = orders.join(customers, orders.customer == customers.number).select(country=customers.country, amount=orders.amount)
sums = met.groupby(met.country).reduce(met.country, amount=pw.reducers.sum(met.amount))
pw.io.subscribe(sums, keep, on_time_end=over)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
result = {
    "seconds": ended[-1] - began,
    "digest": sorted(found.items()),
    "version": f"pathway {pw.__version__}",
    "times": len(ended),
}
print(json.dumps(result))
