"""Spark DataFrames, local mode: text, split, explode, groupBy, count, collect. As many shuffle partitions as threads.

The time begins when the session is up and has run a query over two rows.
"""

import json
import sys
import time
import zlib

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

arguments = json.loads(sys.argv[1])
workers = arguments["workers"]
settings = {"spark.sql.shuffle.partitions": workers, "spark.ui.enabled": "false", "spark.driver.memory": "2g"}
builder = SparkSession.builder.master(f"local[{workers}]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.createDataFrame([("a",), ("b",)], ["word"]).groupBy("word").count().collect()
began = time.perf_counter()
lines = spark.read.text(f"{arguments['folder']}/*.txt")
counts = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count().collect()
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{row[0]} {row[1]}".encode()) for row in counts)]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pyspark {pyspark.__version__}"}))
spark.stop()
