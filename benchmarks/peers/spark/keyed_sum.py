"""Spark DataFrames, local mode: read.parquet, groupBy, sum, and the sums to the driver as Arrow. As many shuffle partitions as threads.

The time begins when the session is up and has run a query over two rows.
"""

import json
import time

import numpy as np
from _session import ARROW, VERSION, arguments, session
from pyspark.sql import functions as f

workers = arguments["workers"]
spark = session(workers, settings=ARROW)
began = time.perf_counter()
sums = spark.read.parquet(arguments["folder"]).groupBy("key").agg(f.sum("value").alias("total")).toPandas()
keys, totals = sums["key"].to_numpy(), sums["total"].to_numpy()
seconds = time.perf_counter() - began
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
spark.stop()
