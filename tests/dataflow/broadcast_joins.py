"""Steps for the join with a small side that every replica has, with and without the end of that side."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rayad.dataflow.operators.joins.broadcast import OVER, labelled
from rayad.dataflow.operators.keys.key_first import KeyFirst, pairs_of
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.selectors import KeySelector
from rayad.progress import Timestamp
from tests.dataflow.driven import Step, steps_with

Steps = st.SearchStrategy[list[Step]]
BROADCAST = frozenset({1})


def steps(columns: bool, rows: bool) -> Steps:
    """The numbers of the small side are those of its one sender; batches of the large side have a few tags."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    element = KeyFirst(KeySelector(columns=("k",)))
    numbers = itertools.count()

    def batch(some: list[tuple[int, int]], side: int, columns: bool, tag: int) -> tuple[int, Any]:
        records = [{"k": key, "v": value} for key, value in some]
        found = element.apply(pa.RecordBatch.from_pylist(records, schema=schema) if columns else records)
        return side, labelled(found, [next(numbers) if side else tag for _ in records])

    some = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=4)
    batches = st.builds(batch, some, st.integers(0, 1), st.sampled_from([True] * 9 * columns + [False] * rows), st.integers(0, 30))
    first = [batch([(key, 7) for key in range(4)], side, columns, 5) for side in (0, 1)]
    return steps_with(batches, first=first)


def steps_to_the_end(columns: bool, rows: bool) -> Steps:
    """The same; behind the last batch of the small side is told how many records it had."""
    return steps(columns, rows).map(_with_end)


def _with_end(some: list[Step]) -> list[Step]:
    right = [at for at, step in enumerate(some) if step[0] == "recv" and step[1] == 1]
    last = max(some[at][3] for at in right)
    total = sum(len(to_rows(some[at][2])) for at in right)
    out = [*some[: right[-1] + 1], ("recv", 1, [(OVER, total)], last)]
    for at, step in enumerate(some[right[-1] + 1 :]):
        is_later = step[0] == "recv" and step[3] > last
        out.append((*step[:3], Timestamp(100 + at)) if is_later else step)  # nobody asks for its notification: later than all others
    return out


def view(vertex: Any) -> Any:
    """All that is kept."""
    left = sorted(repr((tag, time, pair)) for tag, some in vertex.left.kept[0].items() for kept, time in some for pair in pairs_of(kept))
    return left, vertex.met.kept, small_side(vertex)


def small_side(vertex: Any) -> Any:
    """What is kept of the small side; of one that has ended what is left of the large one is forgotten at the next notification."""
    return {name: sorted(map(repr, table.keys)) for name, table in vertex.right.entries().items()}


__all__ = ["BROADCAST", "small_side", "steps", "steps_to_the_end", "view"]
