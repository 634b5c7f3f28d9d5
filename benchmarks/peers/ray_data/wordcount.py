"""Ray Data: read_text, words by an Arrow function over blocks, groupby with as many partitions as workers (200 by default), count.

The time begins when Ray is up and has run a data set of two rows, and ends when all counts are in the driver.
"""

import json
import sys
import time
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import ray


def split(block: pa.Table) -> pa.Table:
    """Lines to words."""
    return pa.table({"word": pc.list_flatten(pc.utf8_split_whitespace(block.column("text")))})


arguments = json.loads(sys.argv[1])
workers = arguments["workers"]
ray.init(address="local", num_cpus=workers, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
ray.data.from_items([{"text": "a b"}, {"text": "b"}]).map_batches(split, batch_format="pyarrow").groupby("word").count().take_all()
began = time.perf_counter()
lines = ray.data.read_text(arguments["folder"], file_extensions=["txt"])
counted = lines.map_batches(split, batch_format="pyarrow", batch_size=None).groupby("word", num_partitions=workers).count()
tables = list(counted.iter_batches(batch_format="pyarrow", batch_size=None))
counts = dict(pair for table in tables for pair in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts.items())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"ray {ray.__version__}"}))
