"""Word count written by hand on Ray: mapper actors read and count whole files, reducer actors add up their share of the words.

The time begins when all actors have answered once, and ends when the driver has all counts.
"""

import json
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import ray


@ray.remote(num_cpus=0)
class Reducer:
    """Adds up the words of one partition."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, counts: dict[str, int]) -> None:
        self.counts.update(counts)

    def result(self) -> dict[str, int]:
        return dict(self.counts)


@ray.remote(num_cpus=0)
class Mapper:
    """Counts the words of a file and sends each reducer its share."""

    def __init__(self, reducers: list) -> None:
        self.reducers = reducers

    def ready(self) -> None:
        return None

    def read(self, path: str) -> None:
        counts: Counter[str] = Counter()
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                counts.update(line.split())
        shares: list[dict[str, int]] = [{} for _ in self.reducers]
        for word, count in counts.items():
            shares[zlib.crc32(word.encode()) % len(shares)][word] = count
        ray.get([reducer.add.remote(share) for reducer, share in zip(self.reducers, shares, strict=True)])


arguments = json.loads(sys.argv[1])
workers = arguments["workers"]
ray.init(address="local", num_cpus=2 * workers, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
reducers = [Reducer.remote() for _ in range(workers)]
mappers = [Mapper.remote(reducers) for _ in range(workers)]
ray.get([mapper.ready.remote() for mapper in mappers] + [reducer.result.remote() for reducer in reducers])
paths = [str(path) for path in sorted(Path(arguments["folder"]).glob("*.txt"))]
began = time.perf_counter()
ray.get([mappers[number % workers].read.remote(path) for number, path in enumerate(paths)])
counts = dict(item for part in ray.get([reducer.result.remote() for reducer in reducers]) for item in part.items())
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts.items())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"ray {ray.__version__}"}))
