"""Pathway: rows from CSV files read once (static; it has no Parquet reader), grouped, summed.

One process with several threads, or several processes with one each (``pathway spawn``). The time is that of ``pw.run``, from the first
process' begin to the last one's end, without interpreter and imports.
"""

import pathway as pw
from _processes import arguments, measure


class Row(pw.Schema):
    """Of the files."""

    key: int
    value: int


def build():
    """The sum of each key."""
    rows = pw.io.csv.read(f"{arguments['folder']}/*.csv", schema=Row, mode="static")
    return rows.groupby(pw.this.key).reduce(pw.this.key, total=pw.reducers.sum(pw.this.value))


def digest_of(sums):
    """Of the sums."""
    mixed = [(key * 2_654_435_761) ^ (total * 40_503) for key, total in sums]
    return [len(sums), sum(mixed) & (2**63 - 1)]


measure(build, ("key", "total"), digest_of)
