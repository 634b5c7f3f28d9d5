"""Spark Structured Streaming, local mode: the files as a stream, a running count by word; it stops after all existing files.

The time begins when the session is up and has run a query over two rows; it ends when the counts are in the driver. One file a
micro-batch, else it would be a batch job. Without RocksDB; the checkpoint is in a temporary folder.
"""

import json
import tempfile
import time
import zlib

from _session import ARROW, VERSION, arguments, session
from pyspark.sql import functions as f

workers = arguments["workers"]
spark = session(workers, settings=ARROW)
with tempfile.TemporaryDirectory() as checkpoints:
    began = time.perf_counter()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).option("pathGlobFilter", "*.txt").text(arguments["folder"])
    running = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count()
    sink = running.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = sink.option("checkpointLocation", checkpoints).trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.table("counts").toPandas()
    counts = dict(zip(found["word"].tolist(), found["count"].tolist(), strict=True))
    seconds = time.perf_counter() - began
    batches = len(query.recentProgress)
digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts.items())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION, "micro_batches": batches}))
spark.stop()
