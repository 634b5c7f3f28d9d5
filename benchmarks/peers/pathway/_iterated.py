"""Shared by the Pathway scripts that iterate: one process with as many threads as workers, edges from a Parquet file as a static table,
and the last value of each node. The time is that of reading the file, building the table, ``pw.run``,
and making two arrays of the result, without interpreter and imports."""

import json
import os
import sys
import time

arguments = json.loads(sys.argv[1])
os.environ["PATHWAY_THREADS"] = str(arguments["workers"])
os.environ["PATHWAY_DISABLE_TELEMETRY"] = "1"

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pathway as pw  # noqa: E402

VERSION = f"pathway {pw.__version__}"


def run(build, value: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Seconds, nodes, and ``value`` of each in the table that ``build(edges)`` gives."""
    found: dict[int, int] = {}

    def keep(key, row, time, is_addition):
        if is_addition:
            found[row["node"]] = row[value]

    pw.debug.table_from_pandas(pd.DataFrame({"a": [1]}))  # what is loaded at first use is not its speed
    pd.read_parquet(arguments["edges"], columns=["src"]).head(1)
    began = time.perf_counter()
    frame = pd.read_parquet(arguments["edges"])
    pw.io.subscribe(build(pw.debug.table_from_pandas(frame)), keep)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    nodes, values = np.array(list(found), np.int64), np.array(list(found.values()))
    return time.perf_counter() - began, nodes, values
