"""A function that changes its argument in place is an error if another consumer has the same object, and only then.

Issue 11: "a function that changes its argument in place changes what other branches and emitted state see: say what is allowed and check
it in the local runtime".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import rayad as rd

ADVICE = (
    "too, which sees the change or not as batches travel: leave it as it is and return a new one, such as "
    "{**record, 'x': 1} or copy.deepcopy(record)"
)


def mark(record: Any) -> Any:
    record["seen"] = True
    return record


def keep(record: Any) -> bool:
    record["seen"] = True
    return True


def fresh(record: Any) -> Any:
    return {"a": 1}


def shorten(batch: Any) -> Any:
    batch.pop()
    return batch


def run(build: Callable[[rd.Dataflow], Any], **options: Any) -> Any:
    flow = rd.Dataflow("shared")
    build(flow)
    return flow.run(runtime="local", **options)


def two_branches(flow: rd.Dataflow) -> None:
    made = flow.from_items([1]).map(fresh)
    made.map(mark, name="m").collect("marked")
    made.collect("plain")


def two_branches_behind_an_exchange(flow: rd.Dataflow) -> None:
    made = flow.from_items([1]).map(fresh)
    made.rebalance().map(mark, name="m").collect("marked")
    made.collect("plain")


def join(flow: rd.Dataflow) -> None:
    left = flow.from_items([1]).map(fresh).key_by("a")
    left.join(left).map(lambda pair: mark(pair[1][0]), name="m").collect("out")


CHANGED = "changed a record in place: {'a': 1} became {'a': 1, 'seen': True}. It is held by"
THE_LIST = "the list that was given to the source"
BRANCH = "another consumer of the same stream"


def items(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_items([{"a": 1}])


def append(pair: Any) -> Any:
    pair[1].append(3)


FOUND: dict[str, tuple[Callable[[rd.Dataflow], Any], str]] = {
    "branches": (two_branches, f"mark {CHANGED} {BRANCH}"),
    "branches behind an exchange": (two_branches_behind_an_exchange, f"mark {CHANGED} {BRANCH}"),
    "items": (lambda flow: items(flow).map(mark, name="m").collect("o"), f"mark {CHANGED} {THE_LIST}"),
    "items behind a filter": (lambda flow: items(flow).filter(bool).map(mark, name="m").collect("o"), f"mark {CHANGED} {THE_LIST}"),
    "epochs": (lambda flow: flow.from_epochs([[{"a": 1}]]).map(mark, name="m").collect("o"), f"mark {CHANGED} {THE_LIST}"),
    "filter": (lambda flow: items(flow).filter(keep, name="m").collect("o"), f"keep {CHANGED} {THE_LIST}"),
    "inspect": (lambda flow: items(flow).inspect(mark, name="m").collect("o"), f"mark {CHANGED} {THE_LIST}"),
    "flat_map": (lambda flow: items(flow).flat_map(mark, name="m").collect("o"), f"mark {CHANGED} {THE_LIST}"),
    "in a tuple": (
        lambda flow: flow.from_items([(1, [2])]).map(append, name="m").collect("o"),
        f"append changed a record in place: (1, [2]) became (1, [2, 3]). It is held by {THE_LIST}",
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_a_record_that_others_hold_is_not_changed(case: str) -> None:
    build, told = FOUND[case]
    with pytest.raises(rd.DataflowError) as caught:
        run(build)
    shown = re.sub(r"\(test_sharing.py:\d+\)", "(LINE)", str(caught.value))
    assert shown == f"'m'[0] (LINE) failed at (0): the function {told}, {ADVICE}"
    run(build, check_records=False)


def test_what_a_join_keeps_is_not_changed() -> None:
    with pytest.raises(rd.DataflowError, match=r"'m'\[0\] .* changed a record in place: .* It is held by the state of 'join', too"):
        run(join)


def test_a_list_that_another_consumer_gets_is_not_changed() -> None:
    def build(flow: rd.Dataflow) -> None:
        items = flow.from_items([1, 2])
        items.map_batches(shorten, name="m").collect("short")
        items.collect("long")

    with pytest.raises(rd.DataflowError, match=r"the function shorten changed the list that it was given: \[1, 2\] became \[1\]\."):
        run(build)


@dataclass
class Point:
    x: int

    @cached_property
    def far(self) -> bool:
        return self.x > 5


HARMLESS: dict[str, Callable[[rd.Dataflow], Any]] = {
    "a record of its own": lambda flow: flow.from_items([1, 2]).map(fresh).map(mark).collect("o"),
    "a copy": lambda flow: flow.from_items([{"a": 1}]).map(lambda r: {**r, "b": 2}).collect("o"),
    "a cached property": lambda flow: flow.from_items([Point(1)]).filter(lambda p: not p.far).collect("o"),
    "an array that is read": lambda flow: flow.from_items([{"v": np.zeros(3)}]).map(lambda r: r["v"].sum()).collect("o"),
    "what cannot be pickled": lambda flow: flow.from_items([lambda: 1]).map(lambda f: f()).collect("o"),
    "its own list": lambda flow: flow.from_items([1, 2]).map_batches(shorten).collect("o"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_functions_that_change_only_their_own_records_run(case: str) -> None:
    assert len(run(HARMLESS[case])["o"]) in (1, 2)
