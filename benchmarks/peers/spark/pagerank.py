"""Spark DataFrames, local mode: PageRank by the usual loop: in each round a join of ranks and edges, and a sum by target.

Edges (distinct) and degrees are cached; each round's ranks are cached, the earlier ones released, and every fifth round is cut off from its
lineage (``localCheckpoint``). The time begins when the session is up and has run a query over two rows; it ends when all
ranks are in the driver. ``loading_s``, a part of it, is until edges and nodes are cached.
"""

import json
import time

import numpy as np
from _session import LOOP, VERSION, arguments, session
from pyspark.sql import functions as f

workers, damping = arguments["workers"], arguments["damping"]
spark = session(workers, memory="3g", settings=LOOP)
began = time.perf_counter()
edges = spark.read.parquet(arguments["edges"]).distinct().repartition(workers, "src").cache()
ends = edges.select(f.col("src").alias("node")).union(edges.select(f.col("dst").alias("node"))).distinct()
degrees = edges.groupBy("src").agg(f.count("*").alias("degree"))
nodes = ends.join(degrees, ends["node"] == degrees["src"], "left").select("node", "degree").repartition(workers, "node").cache()
count = nodes.count()
loaded = time.perf_counter()
ranks = nodes.withColumn("rank", f.lit(1.0 / count)).cache()
for number in range(1, arguments["rounds"] + 1):
    spread = (ranks.where("degree is null").agg(f.sum("rank")).first()[0] or 0.0) / count
    passed = edges.join(ranks, edges["src"] == ranks["node"]).groupBy("dst").agg(f.sum(f.col("rank") / f.col("degree")).alias("passed"))
    after = nodes.join(passed, nodes["node"] == passed["dst"], "left")
    rank = (1.0 - damping) / count + damping * (f.coalesce("passed", f.lit(0.0)) + spread)
    after = after.select("node", "degree", rank.alias("rank"))
    after = after.localCheckpoint() if number % 5 == 0 else after.cache()
    after.count()
    ranks.unpersist()
    ranks = after
result = ranks.select("node", "rank").toPandas()
node, rank = result["node"].to_numpy(), result["rank"].to_numpy()
seconds = time.perf_counter() - began
order = np.argsort(node)
node, rank = node[order], rank[order]
with np.load(arguments["reference"]) as right:
    worst = float((np.abs(rank - right["rank"]) * count).max()) if np.array_equal(node, right["node"]) else float("inf")
told = {"seconds": seconds, "loading_s": loaded - began, "digest": [count, worst <= 1e-9], "worst": worst}
print(json.dumps({**told, "version": VERSION}))
spark.stop()
