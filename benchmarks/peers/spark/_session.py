"""Shared by the Spark scripts: a session in local mode that has run its first query."""

import json
import os
import sys

import pyspark
from pyspark.sql import SparkSession

VERSION = f"pyspark {pyspark.__version__}"
ARROW = {"spark.sql.execution.arrow.pyspark.enabled": "true", "spark.sql.execution.arrow.pyspark.fallback.enabled": "false"}
"""Results go to the driver as Arrow; without a fallback."""
LOOP = {"spark.sql.execution.arrow.pyspark.enabled": "true", "spark.sql.autoBroadcastJoinThreshold": "-1"}
"""For loops of joins."""

arguments = json.loads(sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.executable  # else its Python workers are whatever python3 is first on PATH, without pandas


def session(workers: int, *, memory: str = "2g", settings: dict[str, str] | None = None) -> SparkSession:
    """A session with so many threads and as many shuffle partitions, after a query over two rows."""
    builder = SparkSession.builder.master(f"local[{workers}]")
    ours = {"spark.sql.shuffle.partitions": workers, "spark.ui.enabled": "false", "spark.driver.memory": memory}
    for name, value in {**ours, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    counts = spark.createDataFrame([("a",), ("b",)], ["word"]).groupBy("word").count()
    if (settings or {}).get("spark.sql.execution.arrow.pyspark.enabled"):
        counts.toPandas()
    else:
        counts.collect()
    return spark
