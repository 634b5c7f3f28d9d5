"""Packets: what one replica has for another one, as a single record, instead of a record for each node.

A keyed exchange hashes every row. Where a replica has something for all the nodes that it shares with another replica, round after
round, it sends one row: an address, which is a number that the exchange brings there, and a list of values; the list of their nodes
goes along the first time only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.graphs.numbers import Floats, Ints, owners, to_array, to_column
from rayad.graphs.rounds import SENDER, TO, VALUE, packed

NODES = "nodes"


@lru_cache(maxsize=64)
def addresses(parallelism: int, key_groups: int) -> tuple[int, ...]:
    """For each replica the smallest number from 0 that the exchange brings there.

    >>> [owners(np.array([number]), 3, 256).item() for number in addresses(3, 256)]
    [0, 1, 2]
    """
    count = 64
    while True:
        home = owners(np.arange(count), parallelism, key_groups)
        found, first = np.unique(home, return_index=True)
        if len(found) == parallelism:
            return tuple(first.tolist())
        count *= 4


def packet(sender: int, address: int, values: Floats, nodes: Ints | None = None) -> pa.RecordBatch:
    """One row for the replica of ``address``: ``values`` and, where the receiver does not know them yet, their ``nodes`` (numbers)."""
    columns = {TO: to_column(np.array([address])), VALUE: _one_list(to_column(values))}
    if nodes is not None:
        columns[NODES] = _one_list(packed(nodes))
    return pa.record_batch(columns, metadata={SENDER: b"%d" % sender})


def _one_list(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(to_column(np.array([0, len(values)])), values)


def unpacked(batch: Any) -> tuple[Floats, Ints | None]:
    """The values of a packet, and their nodes if it has them."""
    values = to_array(batch.column(VALUE).flatten())
    if NODES not in batch.schema.names:
        return values, None
    return values, to_array(batch.column(NODES).flatten()).astype(np.int64, copy=False)
