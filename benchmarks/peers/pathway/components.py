"""Pathway: components by its own ``iterate``: every node takes the smallest label of its neighbours until nothing changes.

One process with as many threads as workers. The edges come from the Parquet file as a static table. The time is that of reading
the file, building the table, ``pw.run`` and making two arrays of the result, without interpreter and imports.
"""

import json

from _iterated import VERSION, run  # first: Pathway reads the environment that it sets

import numpy as np  # isort: skip
from _labels import components  # isort: skip

seconds, node, label = run(lambda edges: components(edges, "label"), "label")
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
