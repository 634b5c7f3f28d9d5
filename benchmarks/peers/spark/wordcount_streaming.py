"""Spark Structured Streaming, local mode: the files as a stream, a running count by word, everything that is there, then stop.

The time begins when the session is up and has run a query over two rows; it ends when the counts are in the driver. One file a
micro-batch, else it would be the batch job under another name. Without RocksDB; the checkpoint is in a temporary folder.
"""

import json
import sys
import tempfile
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
with tempfile.TemporaryDirectory() as checkpoints:
    began = time.perf_counter()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).option("pathGlobFilter", "*.txt").text(arguments["folder"])
    running = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count()
    sink = running.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = sink.option("checkpointLocation", checkpoints).trigger(availableNow=True).start()
    query.awaitTermination()
    counts = spark.table("counts").collect()
    seconds = time.perf_counter() - began
    batches = len(query.recentProgress)
digest = [len(counts), sum(zlib.crc32(f"{row[0]} {row[1]}".encode()) for row in counts)]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pyspark {pyspark.__version__}", "micro_batches": batches}))
spark.stop()
