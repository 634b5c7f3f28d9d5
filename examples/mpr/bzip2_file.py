"""Compress a file block by block: the result is a .bz2 that ``bunzip2`` restores, the same bytes for every number of replicas.

    python examples/mpr/bzip2_file.py                              # a text of its own, on Ray, two replicas
    python examples/mpr/bzip2_file.py big.log --out big.log.bz2
    python examples/mpr/bzip2_file.py --runtime pool
    python examples/mpr/bzip2_file.py --megabytes 200 --waiting-ms 2000 --policy mpr --goal 8 --replicas 10 --plot bzip2.png   # figure 7.4

Each block becomes a bzip2 stream of its own; the streams, concatenated in order, are a .bz2 file. As in ``pbzip2`` a block is as
large as a stream can be, so that cutting costs next to nothing.
"""

from __future__ import annotations

import bz2
import hashlib
import itertools
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from command_line import COMMON, execute
from kernels import compress_block
from outputs import Pieces, md5_of_file
from versions import Application, dataflow

import rayad as rd

BLOCK_BYTES = 900_000 - 19
"""The size of one block of bzip2 -9, if no byte is repeated four times in a row."""


def blocks(path: str) -> Iterator[bytes]:
    """The blocks of the file; an empty file is one empty block."""
    with open(path, "rb") as file:
        yield file.read(BLOCK_BYTES)
        while block := file.read(BLOCK_BYTES):
            yield block


def share_of_block(result: bytes) -> float:
    """The size of a compressed block as a share of a whole block."""
    return min(1.0, len(result) / BLOCK_BYTES)


def application(path: Path, out: Path) -> Application:
    """``path`` compressed to ``out``."""
    items, output = partial(blocks, str(path.absolute())), partial(Pieces, str(out.absolute()))
    return Application("bzip2", items, compress_block, share_of_block, output, md5_of_file, ordered=True)


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/mpr/bzip2_file.py:flow``."""
    return dataflow(application(Path(__file__), Path("out.bz2")))


def write_text(path: Path, size_mb: float, seed: int = 0) -> Path:
    """A text of words of very unequal frequency, in places one line repeated many times: so blocks take different times."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinshrdlucmf", k=rng.randint(2, 11))) for _ in range(20_000)]
    up_to = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    left = int(size_mb * 1e6)
    with path.open("wb") as file:
        while left > 0:
            drawn = rng.choices(words, cum_weights=up_to, k=200 * 12)
            lines = [" ".join(drawn[start : start + 12]) for start in range(0, len(drawn), 12)]
            if rng.random() < 0.02:
                lines = lines[:1] * 5_000
            text = ("\n".join(lines) + "\n").encode()[:left]
            file.write(text)
            left -= len(text)
    return path


def check_restored(path: Path, compressed: str) -> int:
    """Decompress the file and compare it with the original; gives its size in bytes."""
    size, digests = 0, [hashlib.sha256(), hashlib.sha256()]
    with path.open("rb") as original, bz2.open(compressed) as restored:
        for file, digest in zip((original, restored), digests, strict=True):
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
    if digests[0].digest() != digests[1].digest():
        raise SystemExit(f"{compressed} does not decompress to {path}")
    return size // 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The compressed file; a temporary one by default.")
@click.option("--megabytes", default=30.0, show_default=True, type=click.FloatRange(min=0), help="Size of the text without PATH.")
@COMMON
def main(path: Path | None, out: Path | None, megabytes: float, **common: Any) -> None:
    """Compress PATH (by default a text of its own), restore it, and compare with what one process compresses."""
    with tempfile.TemporaryDirectory(prefix="rayad-bzip2-") as scratch:
        original = path if path is not None else write_text(Path(scratch) / "text", megabytes)
        compressed = out if out is not None else Path(scratch) / f"{original.name}.bz2"
        written = execute(application(original, compressed), application(original, Path(scratch) / "alone.bz2"), **common)
        size = check_restored(original, written)
        print(f"{size:,} bytes compressed to {compressed.stat().st_size:,}, and restored")


if __name__ == "__main__":
    main()
