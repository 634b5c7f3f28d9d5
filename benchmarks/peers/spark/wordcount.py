"""Spark DataFrames, local mode: text, split, explode, groupBy, count, collect. As many shuffle partitions as threads.

The time begins when the session is up and has run a query over two rows.
"""

import json
import time
import zlib

from _session import VERSION, arguments, session
from pyspark.sql import functions as f

workers = arguments["workers"]
spark = session(workers)
began = time.perf_counter()
lines = spark.read.text(f"{arguments['folder']}/*.txt")
counts = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count().collect()
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{row[0]} {row[1]}".encode()) for row in counts)]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
spark.stop()
