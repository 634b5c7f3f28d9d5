"""What one more commit of a sink of files costs behind few committed files and behind many, in a local folder and on an S3 server (moto).

Two outputs lie beside each other: in one a hundred files are committed, in the other a hundred thousand, in commits of a hundred (the files
themselves are not there: a commit does not look into what is committed). Then single commits of one small Parquet file follow, in turn
in one and the other, each timed as a whole. Staging is not part of it; moving the file, the manifest and what it replaces are.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from moto.server import ThreadedMotoServer
from pyarrow import fs

import rayad as rd
from benchmarks.measurement import Measurement, Ratio
from rayad.integrations import ParquetSink
from rayad.integrations.file_output.manifests import CommittedFile, Delta, Head, OutputLog
from rayad.snapshots.port import Port

TITLE = "Commits behind many files"
NEEDS_RAY = False
AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 100
    few: int = 100
    many: int = 100_000


FULL = Sizes()
QUICK = Sizes(repetitions=3, many=1_000)


class Output:
    """An output with so many committed files, and the coordinator that goes on with it."""

    def __init__(self, home: fs.FileSystem, folder: str, files: int) -> None:
        self.sink = ParquetSink(folder, filesystem=home)
        self.sink.check()
        log, output = OutputLog(Port(home, folder)), None
        head = Head(self.sink.job, {self.sink.job: ()}, {self.sink.job: 1})
        for first in range(0, files, AT_ONCE):
            names = [f"part-{self.sink.job}-r1-{number:06d}.parquet" for number in range(first, first + AT_ONCE)]
            added = {name: CommittedFile(name, 1, 1, self.sink.job, first + 2) for name in names}
            output = log.append(output, head, Delta(added, frozenset()))
        self.snapshot = files + 2
        self.sink.run = 1
        self.sink.adopt(self.sink.job)
        self.writer = self.sink.open(0, 1)
        self.commit()  # the first one looks at all files

    def commit(self) -> float:
        """One more file; gives the seconds that its commit took."""
        self.writer.write(rd.Timestamp(0), [{"a": self.snapshot}])
        staged: list[Any] = [self.writer.stage()]
        self.snapshot += 1
        began_s = time.perf_counter()
        self.sink.commit(self.snapshot, staged)
        return time.perf_counter() - began_s


@contextmanager
def places() -> Iterator[dict[str, tuple[fs.FileSystem, str]]]:
    """A local folder and a bucket."""
    folder = tempfile.mkdtemp(prefix="commits-")
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"access_key": "any", "secret_key": "any", "region": "us-east-1"}
        bucket = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True, **keys)
        bucket.create_dir("commits")
        yield {"a local folder": (fs.LocalFileSystem(), folder), "S3": (bucket, "commits")}
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run(sizes: Sizes) -> Measurement:
    """Both outputs of a place in turn, in the other order each time."""
    out = Measurement("commits", TITLE, asdict(sizes))
    with places() as where:
        for place, (home, folder) in where.items():
            outputs = {count: Output(home, f"{folder}/{count}", count) for count in (sizes.few, sizes.many)}
            series = {count: out.new_series(f"{place}, behind {count:,} files", "ms", "0") for count in outputs}
            for repetition in range(sizes.repetitions):
                for count, output in outputs.items() if repetition % 2 == 0 else reversed(outputs.items()):
                    series[count].add(1e3 * output.commit())
            few, many = (series[count].name for count in outputs)
            out.ratios.append(Ratio(many, few, "< 1.5"))
    return out
