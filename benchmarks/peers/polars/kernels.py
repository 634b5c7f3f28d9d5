"""Polars groups and sums keys in memory with one thread: CPU nanoseconds a row, as `seconds`."""

import json
import os
import sys
import time

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl

arguments = json.loads(sys.argv[1])
rng = np.random.default_rng(arguments["keys"])
rows = arguments["rows"]
frame = pl.DataFrame({"key": rng.integers(0, arguments["keys"], rows), "value": rng.integers(0, 1000, rows)})
frame.head(10).group_by("key").agg(pl.col("value").sum())  # first use
began = time.process_time()
sums = frame.group_by("key").agg(pl.col("value").sum())
spent = time.process_time() - began
keys, totals = sums["key"].to_numpy(), sums["value"].to_numpy()
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": 1e9 * spent / rows, "digest": digest, "version": f"polars {pl.__version__}"}))
