"""Polars runs the ten operators lazily, with as many threads as it likes. The time is without import and interpreter."""

import json
import sys
import time

import numpy as np
import polars as pl

arguments = json.loads(sys.argv[1])
pl.DataFrame({"key": [1, 1], "value": [1, 2]}).lazy().group_by("key").agg(pl.col("value").sum()).collect()  # first use
began = time.perf_counter()
value = pl.col("value")
priced = pl.scan_parquet(f"{arguments['folder']}/*.parquet").filter(value >= 100).with_columns(cents=value * 100, odd=value & 1 == 1)
chosen = priced.rename({"key": "who"}).filter(pl.col("odd")).drop("odd", "value")
grouped = chosen.with_columns(group=pl.col("who") & 1023, net=pl.col("cents") - 7)
named = grouped.select("group", "net").filter(pl.col("net") < 100_000).rename({"group": "g"})
sums = named.group_by("g").agg(pl.col("net").sum()).collect()
keys, totals = sums["g"].to_numpy(), sums["net"].to_numpy()
seconds = time.perf_counter() - began
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"polars {pl.__version__}"}))
