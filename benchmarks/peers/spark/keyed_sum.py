"""Spark DataFrames, local mode: read.parquet, groupBy, sum, and the sums to the driver as Arrow. As many shuffle partitions as threads.

The time begins when the session is up and has run a query over two rows.
"""

import json
import sys
import time

import numpy as np
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

arguments = json.loads(sys.argv[1])
workers = arguments["workers"]
settings = {
    "spark.sql.shuffle.partitions": workers,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
builder = SparkSession.builder.master(f"local[{workers}]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.createDataFrame([(1, 2), (1, 3)], ["key", "value"]).groupBy("key").agg(f.sum("value").alias("total")).toPandas()
began = time.perf_counter()
sums = spark.read.parquet(arguments["folder"]).groupBy("key").agg(f.sum("value").alias("total")).toPandas()
seconds = time.perf_counter() - began
keys, totals = sums["key"].to_numpy(), sums["total"].to_numpy()
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pyspark {pyspark.__version__}"}))
spark.stop()
