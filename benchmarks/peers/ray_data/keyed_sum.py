"""Ray Data: read_parquet, groupby with as many partitions as workers (200 by default), sum, and the sums to the driver as Arrow.

The time begins when Ray is up and has run a data set of two rows.
"""

import json
import sys
import time

import numpy as np
import pyarrow as pa
import ray

arguments = json.loads(sys.argv[1])
ray.init(address="local", num_cpus=arguments["workers"], include_dashboard=False, logging_level="ERROR", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
ray.data.from_items([{"key": 1, "value": 2}, {"key": 1, "value": 3}]).groupby("key").sum("value").take_all()
began = time.perf_counter()
rows = ray.data.read_parquet(arguments["folder"], file_extensions=["parquet"])
summed = rows.groupby("key", num_partitions=arguments["workers"]).sum("value")
sums = pa.concat_tables(summed.iter_batches(batch_format="pyarrow", batch_size=None))
keys, totals = sums.column("key").to_numpy(), sums.column("sum(value)").to_numpy()
seconds = time.perf_counter() - began
mixed = (keys.astype(np.uint64) * np.uint64(2_654_435_761)) ^ (totals.astype(np.uint64) * np.uint64(40_503))
digest = [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"ray {ray.__version__}"}))
