"""The committed files of a job that runs, compared with its model each time that somebody looks.

A committed file is read once: its name is not used again for other rows. At the end the output is read as a user reads it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

import rayad as rd
from tests.chaos.machine_job import Model, Rows

SHOWN = 6


class Output:
    """One output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, Rows] = {}

    def look(self) -> Rows:
        """The committed rows now. Raises what reading raises: files may be replaced by joined ones, or rolled back, meanwhile."""
        names = rd.committed_files(self.folder).files
        self._rows = {name: self._rows.get(name) or rows_of(_read(self.folder / name)) for name in names}
        return _added(self._rows.values())

    def read(self) -> Rows:
        """The committed rows, as a user reads them."""
        return rows_of(rd.read_committed(self.folder).to_table())


def rows_of(table: pa.Table) -> Rows:
    """The rows of a table of an output."""
    if not table.num_columns:
        return collections.Counter()
    return collections.Counter(zip(*(table[name].to_pylist() for name in ("epoch", "key", "value")), strict=True))


def _added(some: Iterable[Rows]) -> Rows:
    rows: Rows = collections.Counter()
    for one in some:
        rows.update(one)
    return rows


def _read(path: Path) -> pa.Table:
    match path.suffix:
        case ".csv":
            return pacsv.read_csv(path)
        case ".parquet":
            return pq.ParquetFile(path).read()
        case _:
            return pajson.read_json(path)


def differences(name: str, rows: Rows, model: Model, whole: int, most: int) -> Iterator[tuple[str, bool]]:
    """What differs from the model, and whether that can never become right: rows that are not of the model, or twice there, are wrong for
    ever; up to the epoch ``whole`` none may be missing; ``most`` is the last epoch of which there may be some."""
    wanted = _added(model.of(name, epoch) for epoch in range(most + 1))
    extra = rows - wanted
    if extra:
        yield f"{name}: {extra.total()} rows too many, as {list(extra.items())[:SHOWN]}", True
    missing = [row for row in wanted - rows if row[0] <= whole]
    if missing:
        epochs = sorted({row[0] for row in missing})
        yield f"{name}: {len(missing)} rows of the epochs {epochs[0]} to {epochs[-1]} are missing, as {missing[:SHOWN]}", False
