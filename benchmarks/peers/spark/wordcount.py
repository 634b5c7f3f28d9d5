"""Spark DataFrames, local mode: text, split, explode, groupBy, count, to a dict by way of Arrow. As many shuffle partitions as threads.

The time begins when the session is up and has run a query over two rows.
"""

import json
import time
import zlib

from _session import ARROW, VERSION, arguments, session
from pyspark.sql import functions as f

workers = arguments["workers"]
spark = session(workers, settings=ARROW)
began = time.perf_counter()
lines = spark.read.text(f"{arguments['folder']}/*.txt")
counts = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count().toPandas()
counts = dict(zip(counts["word"].tolist(), counts["count"].tolist(), strict=True))
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts.items())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
spark.stop()
