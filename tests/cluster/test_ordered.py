"""``ordered()`` on Ray: uneven work in several processes, output in the order of the input."""

from __future__ import annotations

import time as clock
from collections.abc import Callable

import rayad as rd

EPOCHS = [list(range(60)), [], list(range(100, 130))]


def work(n: int) -> list[tuple[int, bytes]]:
    clock.sleep(0.05 if n % 17 == 0 else 0.001)
    return [(n, bytes(1000))] * (n % 3)


def test_uneven_work_comes_out_in_the_order_of_the_input(nothing_left: Callable[[], None]) -> None:
    flow = rd.Dataflow("ordered")
    worked = flow.from_epochs(EPOCHS, batch_rows=1).rebalance().flat_map(work)
    worked.ordered(memory_bytes=2000).map(lambda pair: pair[0]).collect("out")
    worked.collect("as it comes")
    result = flow.run(parallelism=3, timeout_s=60)
    expected = [(rd.Timestamp(epoch), n) for epoch, numbers in enumerate(EPOCHS) for n in numbers for _ in range(n % 3)]
    assert result["out"] == expected
    assert sorted((time, pair[0]) for time, pair in result["as it comes"]) == expected
