"""The kernels of the columnar operators, beside other choices: the measurements behind decision 014.

Each with one thread, since a replica has one core; in memory; in CPU nanoseconds a row. Grouping by integer keys in a small range (by array
index, by Arrow's hash tables, by pandas' incremental one, by sorting) and by words; splitting lines into words; and cutting batches for two
replicas, in a process that gives freed memory back and in one that keeps it. Polars does the same with one thread, in its own
environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import inputs
from benchmarks.machine import in_process
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import Outcome, System, chosen, compare, peer
from rayad.actors.process.allocator import keep_freed_memory
from rayad.dataflow.columns import split_words
from rayad.dataflow.operators.keys.dense_groups import dense_group
from rayad.dataflow.operators.keys.group_functions import SUM
from rayad.dataflow.operators.state.slots.key_index import KeyIndex
from rayad.dataflow.records.key_hashing import Router

TITLE = "Columnar kernels"
NEEDS_RAY = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    rows: int = 4_000_000
    keys: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    batch_rows: int = 65_536
    lines: int = 100_000


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=20_000, keys=(100,), batch_rows=4_096, lines=500)


def table_of(rows: int, keys: int) -> pa.Table:
    """Random keys from a range and small values; the same for every process."""
    rng = np.random.default_rng(keys)
    return pa.table({"key": rng.integers(0, keys, rows), "value": rng.integers(0, 1000, rows)})


def by_arrow(table: pa.Table) -> Any:
    """Arrow's group-by, one thread."""
    out = table.group_by("key", use_threads=False).aggregate([("value", "sum")])
    return out.column("key").to_numpy(), out.column("value_sum").to_numpy()


def by_place(table: pa.Table) -> Any:
    """Rayad's group-by for keys in a small range."""
    out = dense_group(table, "key", [("value", SUM)])
    assert out is not None
    return out[0].to_numpy(), out[1].to_numpy()


def by_index(table: pa.Table) -> Any:
    """A hash table that is kept from batch to batch, as for running totals."""
    index, totals = KeyIndex(1), np.zeros(0, np.int64)
    for batch in table.to_batches(max_chunksize=65_536):
        slots = index.slots_of([batch.column(0)])
        totals = np.concatenate([totals, np.zeros(max(0, len(index) - len(totals)) * 2, np.int64)]) if len(index) > len(totals) else totals
        np.add.at(totals, slots, batch.column(1).to_numpy())
    return np.array(index.keys()), totals[: len(index)]


def by_sorting(table: pa.Table) -> Any:
    """Sort, then add up runs."""
    keys, values = table.column(0).to_numpy(), table.column(1).to_numpy()
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return ordered[starts], np.add.reduceat(values[order], starts)


GROUPINGS: dict[str, Callable[[pa.Table], Any]] = {
    "group by place": by_place, "group by Arrow": by_arrow, "group by pandas' hash table": by_index, "group by sorting": by_sorting,
}  # fmt: skip


def timed(work: Callable[[], Any], rows: int, digest: Callable[[Any], Any]) -> Outcome:
    """CPU nanoseconds a row."""
    began = time.process_time()
    done = work()
    return Outcome(1e9 * (time.process_time() - began) / rows, digest(done))


def group_system(name: str, how: Callable[[pa.Table], Any], table: pa.Table) -> System:
    """A grouping of one table."""
    return System(name, lambda: timed(lambda: how(table), table.num_rows, lambda out: inputs.sum_digest(*out)), "0")


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Grouping, then words, then cutting batches."""
    out = Measurement("kernels", TITLE, asdict(sizes))
    for keys in sizes.keys:
        table = table_of(sizes.rows, keys)
        systems = [group_system(f"{name}, {keys:,} keys", how, table) for name, how in GROUPINGS.items()]
        arguments = {"rows": sizes.rows, "keys": keys}
        systems.append(peer(f"group by Polars, {keys:,} keys", "polars", "kernels", arguments, timeout_s=60.0))
        compare(out, chosen(systems, peers), repetitions=sizes.repetitions, unit="ns/row", what=f"all sums of {keys:,} keys are equal")
    words(out, sizes)
    cutting(out, sizes)
    return out


def words(out: Measurement, sizes: Sizes) -> None:
    """Lines into words: as ``split_words`` does it, by Arrow's function for all of Unicode, and by str.split."""
    rng = np.random.default_rng(3)
    vocabulary = np.array(inputs.words(1_000, rng), dtype=object)
    lines = [" ".join(line) for line in vocabulary[rng.integers(0, len(vocabulary), (sizes.lines, 10))]]
    batch = pa.record_batch({"text": lines})
    cut = split_words("text")
    ways: dict[str, Callable[[], int]] = {
        "split_words": lambda: cut(batch).num_rows,
        "utf8_split_whitespace": lambda: len(pc.utf8_split_whitespace(batch.column(0)).flatten()),
        "str.split": lambda: sum(len(line.split()) for line in lines),
    }
    count = ways["str.split"]()
    systems = [System(f"words by {name}", partial(timed, way, count, int), "0") for name, way in ways.items()]
    compare(out, systems, repetitions=sizes.repetitions, wanted=count, unit="ns/row", what="all ways gave as many words")


def cutting(out: Measurement, sizes: Sizes) -> None:
    """Batches for two replicas by key, in two kinds of processes."""

    def of(keeps: bool) -> System:
        def measured() -> Outcome:
            told = in_process("kernels", json.dumps(asdict(sizes)), json.dumps(keeps))
            return Outcome(told["ns"], told["digest"])

        return System(f"cut for 2 replicas, freed memory {'kept' if keeps else 'given back'}", measured, "0")

    compare(out, [of(False), of(True)], repetitions=sizes.repetitions, unit="ns/row", what="both cut alike")


def cut_all(batches: list[pa.RecordBatch]) -> int:
    """Cut every batch; gives a digest of the pieces."""
    router = Router(2, 256)
    return sum(router.split_columns(batch, ["key"])[0].num_rows for batch in batches)


def main() -> None:
    """Sizes and whether to keep freed memory as JSON in; nanoseconds a row and digest as JSON out."""
    sizes = Sizes(**json.loads(sys.argv[1]))
    if json.loads(sys.argv[2]):
        keep_freed_memory()
    batches = table_of(sizes.rows, sizes.keys[-1]).to_batches(sizes.batch_rows)
    cut_all(batches[:1])  # loads what is loaded at first use
    began = time.process_time()
    digest = cut_all(batches)
    print(json.dumps({"ns": 1e9 * (time.process_time() - began) / sizes.rows, "digest": digest}))


if __name__ == "__main__":
    main()
