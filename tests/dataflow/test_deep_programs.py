"""Thousands of operators in a row: nothing that walks a program recurses into it.

Issue 11, "500 maps in a row (bare RecursionError)": planning, pickling, showing and running all went down the chain by recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

import rayad as rd

LENGTH = 2000
Longer = Callable[[rd.Stream, int], rd.Stream]


def same(value: Any) -> Any:
    return value


def always(value: Any) -> bool:
    return True


def collected(stream: rd.Stream, number: int) -> rd.Stream:
    return (stream if number % 4 else stream.collect(f"c{number}")).map(same)


CHAINS: dict[str, Longer] = {
    "map": lambda stream, _: stream.map(same),
    "filter": lambda stream, _: stream.filter(always),
    "flat_map": lambda stream, _: stream.flat_map(lambda value: (value,)),
    "map_batches": lambda stream, _: stream.map_batches(same),
    "inspect": lambda stream, _: stream.inspect(same),
    "union with nothing": lambda stream, _: stream.union(),
    "probe": lambda stream, _: stream.probe().map(same),
    "collect": collected,
    "mixed": lambda stream, number: stream.map(same) if number % 2 else stream.map_batches(same).inspect(same),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_two_thousand_operators_in_a_row_run(chain: str) -> None:
    flow = rd.Dataflow("deep")
    stream = flow.from_items([3, 1, 2])
    for number in range(LENGTH):
        stream = CHAINS[chain](stream, number)
    stream.collect("out")
    assert [value for _, value in flow.run(runtime="local")["out"]] == [3, 1, 2]
    plan = flow.plan()
    assert len(plan.stages) == 1
    assert cloudpickle.loads(cloudpickle.dumps(plan)).stages[0].outputs == plan.stages[0].outputs
    assert flow.explain().count("\n") < 10
    assert flow.to_mermaid().count("-->") >= LENGTH


def test_an_error_in_the_middle_of_a_long_chain_names_its_operator() -> None:
    flow = rd.Dataflow("deep")
    stream = flow.from_items([0])
    for number in range(LENGTH):
        stream = stream.map(lambda value: value + 1 if value != 777 else 1 // 0, name=f"m{number}")
    stream.collect("out")
    with pytest.raises(rd.DataflowError, match=r"'m777'\[0\] .* on record 777: ZeroDivisionError"):
        flow.run(runtime="local")


def test_a_union_of_one_stream_two_thousand_times_is_planned_at_once() -> None:
    """Each union beyond COPIES_MAX made the whole plan start again: 1,000 of them took 20 s."""
    flow = rd.Dataflow("deep")
    stream, other = flow.from_items([1]), flow.from_items([5], name="other")
    for _ in range(LENGTH):
        stream = stream.union(other)
    stream.collect("out")
    plan = flow.plan()
    assert sum(len(stage.steps) for stage in plan.stages) < 4 * LENGTH


def test_hundreds_of_exchanges_unions_and_loops_in_a_row_run() -> None:
    flow = rd.Dataflow("deep")
    stream = flow.from_items([1])
    for number in range(500):
        stream = stream.key_by(same).reduce(max).map(lambda pair: pair[0])
        if number % 10 == 0:
            stream = stream.union(flow.from_items([1])).rebalance().map(same)
        if number % 50 == 0:
            stream = stream.iterate(lambda inner: (inner.filter(lambda value: False), inner))
    stream.collect("out")
    assert {value for _, value in flow.run(runtime="local")["out"]} == {1}


def test_sixty_nested_loops_run() -> None:
    flow = rd.Dataflow("deep")
    stream, loops = flow.from_items([1]), []
    for _ in range(60):
        loop = flow.loop(inside=loops[-1]) if loops else flow.loop()
        loops.append(loop)
        stream = loop.enter(stream)
        back = loop.feedback(max_rounds=2)
        stream = stream.union(back)
        back.connect(stream.filter(lambda value: False))
    for loop in reversed(loops):
        stream = loop.leave(stream)
    stream.collect("out")
    assert [value for _, value in flow.run(runtime="local")["out"]] == [1]
    assert flow.to_mermaid().count("subgraph") == 60
