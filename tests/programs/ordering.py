"""Programs whose output has the order of the input, with exchanges, filters and flat maps in between."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program

EPOCHS = [list(range(30)), [], [5, 5, 6], list(range(40, 60))]


def _some(n: int) -> list[int]:
    return [10 * n + i for i in range(n % 4)]


def _is_wanted(n: int) -> bool:
    return n % 7 != 1


def ordered(flow: rd.Dataflow) -> None:
    spread = flow.from_epochs(EPOCHS, batch_rows=2).rebalance().filter(_is_wanted)
    spread.ordered(memory_bytes=256).collect("wanted")
    more = spread.rebalance().flat_map(_some)
    more.ordered().collect("some")
    more.key_by(lambda n: n % 3).count().collect("counts")


def ordered_expected() -> Expected:
    wanted = m.filtered(m.epochs(EPOCHS), _is_wanted)
    some = m.flat_mapped(wanted, _some)
    return {"wanted": wanted, "some": some, "counts": m.collected(some, lambda n: n % 3, lambda n: n, len)}


def check_order(result: Any) -> None:
    for sink in ("wanted", "some"):
        assert list(result[sink]) == ordered_expected()[sink]


def ordered_columns(flow: rd.Dataflow) -> None:
    source = flow.from_epochs([pa.record_batch({"n": list(range(50))}), pa.record_batch({"n": [3, 2, 1]})], batch_rows=4)
    odd = source.rebalance().map_batches(lambda b: b.filter(pc.equal(pc.bit_wise_and(b.column("n"), 1), 1)))
    odd.ordered(name="in order").collect("odd", columnar=True)


def check_columns(result: Any) -> None:
    assert result["odd"].to_pydict() == {"n": [*range(1, 50, 2), 3, 1]}


PROGRAMS = [
    Program("ordered", ordered, ordered_expected, check_order),
    Program("ordered-columns", ordered_columns, dict, check_columns),
]
