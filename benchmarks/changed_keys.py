"""A count by key whose state is in files, beside lmdb: ``python -m benchmarks.changed_keys``.

A million keys of 40 bytes come, in no order, 50,000 an epoch; then 20 epochs of 20,000 keys that are there. Rayad runs the whole dataflow
in the local runtime, with a bound on memory that lets nearly all be in files; lmdb is a loop in Python that reads and writes each key, a
transaction an epoch, without syncing. Printed are microseconds a key, in turns, and the ratio of the medians.

A million keys are 100 MB, which the kernel keeps in memory for both. What either does without such memory is told by `--memory-mib`: both
run in a cgroup, in which pages of files count. Keys then come in their order at first (`--sorted`), since lmdb needs minutes otherwise:

    python -m benchmarks.changed_keys --keys 5000000 --epochs 5 --bound-mib 32 --memory-mib 400 --sorted --repetitions 2
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import click
import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.machine import confined, in_process
from benchmarks.peer_environments import run_peer
from benchmarks.sources import Generated

STRIDE = 6_180_339_887
"""Odd and no multiple of 5: where the number of keys is a power of ten, each key comes once."""


def numbers_of(sizes: dict[str, int]) -> Iterator[Any]:
    """The keys of each epoch: first each once, by default in an order far from theirs; then distinct ones by chance."""
    keys = sizes["keys"]
    for at in range(0, keys, sizes["batch"]):
        yield np.arange(at, min(at + sizes["batch"], keys)) * sizes["stride"] % keys
    for each in range(sizes["epochs"]):
        chance = np.random.default_rng(1 + each)
        yield chance.permutation(np.unique(chance.integers(0, keys, sizes["changed"])))


def batches(sizes: dict[str, int], marks: list[float], part: int) -> Iterator[rd.SourceBatch]:
    """Keys of 40 bytes; notes when all are there."""
    loads = -(-sizes["keys"] // sizes["batch"])
    for epoch, numbers in enumerate(numbers_of(sizes)):
        if epoch == loads:
            marks.append(time.perf_counter())
        yield rd.SourceBatch(epoch, pa.record_batch({"key": [f"key-{each:036d}" for each in numbers.tolist()]}))


def ours(sizes: dict[str, int]) -> dict[str, Any]:
    """One run."""
    marks: list[float] = []
    digest = [0]

    def keep(batch: Any) -> list[Any]:
        digest[0] += int(batch.column(1).to_numpy().sum())
        return []

    flow = rd.Dataflow("changed-keys")
    flow.source(Generated(1, partial(batches, sizes, marks)), name="keys").key_by("key").count(name="n").map_batches(keep).collect("none")
    config = rd.RunConfig(state_memory_bytes=sizes["bound"], spill_directory=str(sizes["folder"]))
    began_s = time.perf_counter()
    flow.run(config, runtime="local", parallelism=1)
    ended_s = time.perf_counter()
    return {"seconds": ended_s - marks[0], "load_s": marks[0] - began_s, "digest": digest[0]}


@click.command()
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--epochs", default=20, show_default=True)
@click.option("--changed", default=20_000, show_default=True, help="Keys of an epoch.")
@click.option("--bound-mib", default=8, show_default=True, help="RunConfig.state_memory_bytes, in MiB.")
@click.option("--memory-mib", type=int, help="Memory of each of both with its pages of files, in MiB; by default that of the machine.")
@click.option("--sorted", "is_sorted", is_flag=True, help="The first time, keys come in their order.")
@click.option("--repetitions", default=3, show_default=True)
@click.option("--folder", type=click.Path(), help="Where files are; a temporary one by default.")
def main(
    keys: int, epochs: int, changed: int, bound_mib: int, memory_mib: int | None, is_sorted: bool, repetitions: int, folder: str | None
) -> None:
    """Measure both, in turns."""
    with tempfile.TemporaryDirectory(dir=folder) as place, nullcontext() if memory_mib is None else confined(memory_mib):
        sizes = {"keys": keys, "epochs": epochs, "changed": changed, "batch": 50_000, "folder": place, "bound": bound_mib << 20}
        sizes["stride"] = 1 if is_sorted else STRIDE
        figures: dict[str, list[tuple[float, float]]] = {"Rayad": [], "lmdb": []}
        digests = set()
        for _ in range(repetitions):
            mine = in_process("changed_keys", "--one", json.dumps(sizes))
            theirs = run_peer("lmdb", "changed_keys", sizes, timeout_s=1_800).told
            for name, told in (("Rayad", mine), ("lmdb", theirs)):
                figures[name].append((told["load_s"] / keys * 1e6, told["seconds"] / (epochs * changed) * 1e6))
                digests.add(told["digest"])
    assert len(digests) == 1, f"the results differ: {digests}"
    medians = {name: [statistics.median(each) for each in zip(*some, strict=True)] for name, some in figures.items()}
    for name, (load, change) in medians.items():
        click.echo(f"{name}: {load:.2f} us a key to load, {change:.2f} us a changed key")
    loads, changes = (theirs / mine for mine, theirs in zip(medians["Rayad"], medians["lmdb"], strict=True))
    click.echo(f"lmdb over Rayad: {loads:.1f} times to load, {changes:.1f} times a changed key")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(ours(json.loads(sys.argv[2]))))
    else:
        main()
