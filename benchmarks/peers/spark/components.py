"""Spark DataFrames, local mode: components by the usual loop: every node takes the smallest label of its neighbours until none changes.

Labels are joined with the edges (both ways, distinct, cached), grouped by target for the smallest, and joined with the labels. Each
round's labels are cached, the earlier ones released, and every fifth round is cut off from its lineage (``localCheckpoint``).
The time begins when the session is up and has run a query over two rows; it ends when all labels are in the driver. ``loading_s``, a part
of it, is until the edges are cached.
"""

import json
import time

import numpy as np
from _session import LOOP, VERSION, arguments, session
from pyspark.sql import functions as f

workers = arguments["workers"]
spark = session(workers, memory="3g", settings=LOOP)
began = time.perf_counter()
edges = spark.read.parquet(arguments["edges"])
both = edges.union(edges.select(f.col("dst").alias("src"), f.col("src").alias("dst"))).distinct().repartition(workers, "src").cache()
both.count()
loaded = time.perf_counter()
labels = both.select(f.col("src").alias("node")).distinct().withColumn("label", f.col("node")).cache()
rounds, fallen = 0, 1
while fallen:
    rounds += 1
    offered = both.join(labels, both["src"] == labels["node"]).groupBy("dst").agg(f.min("label").alias("offer"))
    after = labels.join(offered, labels["node"] == offered["dst"], "left")
    after = after.select("node", f.least("label", "offer").alias("label"), (f.col("offer") < f.col("label")).alias("fell"))
    after = after.localCheckpoint() if rounds % 5 == 0 else after.cache()
    fallen = after.where("fell").count()
    labels.unpersist()
    labels = after
result = labels.select("node", "label").toPandas()
node, label = result["node"].to_numpy(), result["label"].to_numpy()
seconds = time.perf_counter() - began
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
told = {"seconds": seconds, "loading_s": loaded - began, "digest": digest, "rounds": rounds}
print(json.dumps({**told, "version": VERSION}))
spark.stop()
