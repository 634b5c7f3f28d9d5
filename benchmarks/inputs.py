"""Seeded input files, made when first needed below ``.cache/benchmarks/``: every compared system reads the same files.

A folder is named after its contents, and appears whole or not at all. Beside the data is ``_digest.json``: the digest of the right
result, computed from the numbers that were written to the files, and by none of the measured systems.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.machine import ROOT

DIGEST = "_digest.json"  # readers of a folder skip names that begin with _
FOLDER = ROOT / ".cache" / "benchmarks"
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)


def made(name: str, make: Callable[[Path], Any], folder: Path = FOLDER) -> Path:
    """The folder ``name``; when it is not there, ``make(folder)`` writes its files and gives the digest."""
    path = folder / name
    if path.is_dir():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        digest = make(building)
        (building / DIGEST).write_text(json.dumps(digest), encoding="utf-8")
        building.chmod(0o755)
        building.rename(path)
    except OSError:
        if not path.is_dir():  # else another process was first
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return path


def digest_of(path: Path) -> Any:
    """The digest of the right result for the files in ``path``."""
    return json.loads((path / DIGEST).read_text(encoding="utf-8"))


# -- text ------------------------------------------------------------------------------------------
def words(count: int, rng: np.random.Generator) -> list[str]:
    """``count`` different words of 2 to 11 letters; the first, which are common, are shorter."""
    found: dict[str, None] = {}
    while len(found) < count:
        length = min(11, 2 + int(np.log2(len(found) + 2) / 2) + int(rng.integers(0, 4)))
        found[LETTERS[rng.integers(0, 26, length)].tobytes().decode("ascii")] = None
    return list(found)


def text_folder(lines: int, line_words: int, vocabulary: int, zipf: float, files: int, seed: int = 1, folder: Path = FOLDER) -> Path:
    """Lines of words drawn with probability ``rank ** -zipf``, in ``files`` files ``*.txt`` of equal length."""

    def make(path: Path) -> Any:
        rng = np.random.default_rng(seed)
        names = np.array(words(vocabulary, rng), dtype=object)
        weights = np.arange(1, vocabulary + 1, dtype=np.float64) ** -zipf
        drawn = rng.choice(vocabulary, size=(lines, line_words), p=weights / weights.sum())
        for number, part in enumerate(np.array_split(drawn, files)):
            text = "".join(" ".join(line) + "\n" for line in names[part].tolist())
            (path / f"part-{number}.txt").write_text(text, encoding="utf-8")
        counts = np.bincount(drawn.ravel(), minlength=vocabulary).tolist()
        return count_digest((word, count) for word, count in zip(names.tolist(), counts, strict=True) if count)

    return made(f"text-{lines}x{line_words}-of-{vocabulary}-zipf-{zipf}-files-{files}-seed-{seed}", make, folder)


def count_digest(counts: Iterable[tuple[str, int]]) -> list[int]:
    """Number of words and one number for all counts, independent of order; the peers' scripts compute the same.

    >>> count_digest([("be", 2), ("or", 1)]) == count_digest([("or", 1), ("be", 2)])
    True
    """
    sums = [zlib.crc32(f"{word} {count}".encode()) for word, count in counts]
    return [len(sums), sum(sums)]


# -- keyed rows --------------------------------------------------------------------------------------
MIX = (2_654_435_761, 40_503)
"""The factor of keys and totals in :func:`sum_digest`."""
SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)  # odd: multiplying is one to one, modulo any power of 2


def sum_digest(keys: np.ndarray, totals: np.ndarray) -> list[int]:
    """Number of keys and one number for all pairs of key and total, independent of order; the peers' scripts compute the same.

    >>> sum_digest(np.array([1, 2]), np.array([30, 40])) == sum_digest(np.array([2, 1]), np.array([40, 30]))
    True
    >>> sum_digest(np.array([1, 2]), np.array([30, 40])) == sum_digest(np.array([1, 2]), np.array([40, 30]))
    False
    """
    mixed = (keys.astype(np.uint64) * np.uint64(MIX[0])) ^ (totals.astype(np.uint64) * np.uint64(MIX[1]))
    return [len(keys), int(mixed.sum() & np.uint64(2**63 - 1))]


def keyed_folder(
    rows: int, keys: int, files: int, *, csv: bool = False, spread: bool = False, seed: int = 2, folder: Path = FOLDER
) -> Path:
    """``key`` (int64) and ``value`` (int64, below 1024) in ``files`` Parquet files, or in as many CSV files.

    Keys are drawn uniformly from ``range(keys)``; ``spread``: those numbers are then mapped one to one to numbers below 2 ** 62, far apart.
    """

    def make(path: Path) -> Any:
        rng = np.random.default_rng(seed)
        all_keys, all_values = rng.integers(0, keys, rows), rng.integers(0, 1024, rows)
        names = np.arange(keys, dtype=np.uint64)
        if spread:
            names = (names * SPREAD) & np.uint64(2**62 - 1)
        named_keys = names.astype(np.int64)[all_keys]
        for number, (k, v) in enumerate(zip(np.array_split(named_keys, files), np.array_split(all_values, files), strict=True)):
            table = pa.table({"key": k, "value": v})
            if csv:
                pacsv.write_csv(table, path / f"part-{number}.csv")
            else:
                pq.write_table(table, path / f"part-{number}.parquet", row_group_size=1 << 17)
        present = np.unique(all_keys)
        return sum_digest(names[present], np.bincount(all_keys, all_values, minlength=keys)[present].astype(np.int64))

    kind = f"{'csv' if csv else 'rows'}{'-spread' if spread else ''}"
    return made(f"{kind}-{rows}-of-{keys}-keys-files-{files}-seed-{seed}", make, folder)
