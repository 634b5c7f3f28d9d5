"""DuckDB reads the files, groups and sums, with as many threads as it likes. The time is without import and interpreter."""

import json
import sys
import time

import duckdb
import numpy as np

arguments = json.loads(sys.argv[1])
connection = duckdb.connect()
connection.execute("SELECT 1 AS key, sum(2) GROUP BY key").fetchall()  # first use
query = "SELECT key, CAST(sum(value) AS BIGINT) AS total FROM read_parquet(?) GROUP BY key"
began = time.perf_counter()
sums = connection.execute(query, [f"{arguments['folder']}/*.parquet"]).fetchnumpy()
keys, totals = sums["key"], sums["total"]
seconds = time.perf_counter() - began
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"duckdb {duckdb.__version__}"}))
