"""How long one batch can wait while a large state is merged: ``python -m benchmarks.longest_wait --rows 10000000``.

A join over all time, alone in this process, takes so many rows of each side in batches, with keys that do not meet. Printed is how long a
batch took, of all and at most, with all state in memory and beyond a bound. To compare commits: run it in two checkouts by turns.
"""

from __future__ import annotations

import time

import click
import numpy as np
import pyarrow as pa

from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.joins.columns import ColumnJoin
from rayad.dataflow.operators.keys.key_first import key_first
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.progress import Timestamp

BATCH_ROWS = 20_000


def waits_ms(rows: int, bound_mib: int) -> np.ndarray:
    """Of each batch."""
    memory = MemoryBound(bound_mib << 20, StateFiles("waits", None)) if bound_mib else None
    join, chance, took = ColumnJoin(), np.random.default_rng(1), []
    for _ in range(rows // BATCH_ROWS):
        for side in (0, 1):
            keys = chance.integers(0, 1 << 62, BATCH_ROWS)
            batch = key_first(pa.record_batch({"key": keys, f"a{side}": keys ^ 1, f"b{side}": keys ^ 2}), ("key",))
            began_s = time.perf_counter()
            list(join.accept(side, batch, Timestamp(0)))
            if memory is not None:
                memory.hold([join])
            took.append(time.perf_counter() - began_s)
    return np.array(took) * 1e3


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Of each side.")
@click.option("--bound-mib", default=[0, 128], multiple=True, show_default=True, help="RunConfig.state_memory_bytes, in MiB; 0: none.")
def main(rows: int, bound_mib: tuple[int, ...]) -> None:
    """Measure."""
    for bound in bound_mib:
        began_s = time.process_time()
        took = waits_ms(rows, bound)
        used_s = time.process_time() - began_s
        at = ", ".join(f"p{p} {np.percentile(took, p):.1f}" for p in (50, 99, 99.9))
        click.echo(
            f"{rows:,} rows a side, bound {bound} MiB: a batch took, ms: {at}, at most {took.max():.1f}; {used_s:.1f} s of processor"
        )


if __name__ == "__main__":
    main()
