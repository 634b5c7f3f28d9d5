"""What a small batch of Python objects takes does not depend on how much state there is: no keyed operator goes through all of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from operator import itemgetter
from types import FrameType
from typing import Any

import pytest

import rayad as rd
from tests.thorough import by_turns

FEW_KEYS, MANY_KEYS, TEN, EPOCHS = 500, 5_000, 10, 12
key, value, at = itemgetter(0), itemgetter(1), itemgetter(2)
windows = rd.windows


class Wakes(rd.Process):
    """Sets a timer for each record."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = record
        context.set_timer(context.time + 1_000)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.state = None


def _in_time(rows: rd.Stream) -> rd.Stream:
    return rows.assign_timestamps(at)


def _none(rows: rd.Stream) -> rd.Stream:
    return rows.filter(lambda row: row[1] < 0)


def _two(rows: rd.Stream) -> tuple[Any, Any]:
    timed = _in_time(rows)
    return timed.key_by(key), _none(timed).key_by(key)


def _last(state: Any, row: Any) -> Any:
    return row, row


def _later(left: Any, right: Any) -> Any:
    return max(left, right)


OPERATORS: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "stateful_map": lambda rows: rows.key_by(key).stateful_map(_last, None),
    "reduce": lambda rows: rows.key_by(key).reduce(_later),
    "latest": lambda rows: rows.key_by(key).latest(at),
    "lag": lambda rows: rows.key_by(key).lag(at),
    "head": lambda rows: rows.key_by(key).head(2, at),
    "distinct": lambda rows: rows.key_by(key).distinct(),
    "distinct, of records that end": lambda rows: _in_time(rows).key_by(key).ttl(1_000).distinct(value),
    "count, of keys that end": lambda rows: _in_time(rows).key_by(key).ttl(1_000).count(),
    "changes of totals": lambda rows: rows.key_by(key).reduce(_later).changes(),
    "process": lambda rows: _in_time(rows).key_by(key).process(Wakes),
    "tumbling windows": lambda rows: _in_time(rows).key_by(key).window(windows.tumbling(1_000)).reduce(_later),
    "sliding windows": lambda rows: _in_time(rows).key_by(key).window(windows.sliding(1_000, 500)).reduce(_later),
    "sessions": lambda rows: _in_time(rows).key_by(key).window(windows.session(1_000)).reduce(_later),
    "windows that are updated": lambda rows: _in_time(rows).key_by(key).window(windows.tumbling(1_000), lateness=500).reduce(_later),
    "windows of counts": lambda rows: _in_time(rows).key_by(key).window(windows.count(5)).reduce(_later),
    "join": lambda rows: rows.key_by(key).join(_none(rows).key_by(key)),
    "join within": lambda rows: _two(rows)[0].join(_two(rows)[1], within=rd.between(-1_000, 1_000)),
    "as-of join": lambda rows: _two(rows)[0].join_asof(_two(rows)[1]),
    "join in windows": lambda rows: _two(rows)[0].window(windows.tumbling(1_000)).join(_none(_in_time(rows)).key_by(key)),
}


COLLECTIONS: dict[str, Callable[[Any], Any]] = {
    "count": lambda rows: rows.key_by(key).count(),
    "sum": lambda rows: rows.key_by(key).sum(value),
    "max": lambda rows: rows.key_by(key).max(value),
    "distinct": lambda rows: rows.distinct(),
    "join": lambda rows: rows.key_by(key).join(rows.filter(lambda row: row[1] < 0).key_by(key), how="left"),
    "except": lambda rows: rows.except_(rows.filter(lambda row: row[1] < 0)),
    "a loop": lambda rows: rows.map(key).iterate(lambda inner: inner.map(lambda n: max(n - 100_000, 0)).concat(inner).distinct()),
    "remembered": lambda rows: rows.map(key, remember=True),
    "windows": lambda rows: rows.key_by(key).window(windows.tumbling(1_000), at=at).count(),
}


class Steps:
    """How many steps of Python's interpreter are taken."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self


def steps_of_ten(operator: Callable[[Any], Any], keys: int, *, of_collection: bool) -> int:
    """The steps of an epoch of ten keys beside so many: the least of several epochs, since now and then something is tidied up."""
    flow = rd.Dataflow("few")
    stream = flow.input("rows")
    out = operator(stream.as_collection()).stream if of_collection else operator(stream)
    out.probe("seen").filter(lambda row: False).collect("none")
    job = flow.submit(runtime="local", parallelism=1)
    rows, seen, chance, found = job.input("rows"), job.probe("seen"), random.Random(1), list[int]()
    rows.send([(number, number, 0) for number in range(keys)])
    for epoch in range(EPOCHS):
        steps = Steps()
        if epoch:
            rows.send([(chance.randrange(keys), epoch, epoch) for _ in range(TEN)])
        before = sys.gettrace()
        sys.settrace(steps if epoch > 2 else before)
        try:
            rows.advance_to(epoch + 1)
            seen.wait(epoch)
        finally:
            sys.settrace(before)
        if epoch > 2:
            found.append(steps.count)
    job.cancel()
    return min(found)


@by_turns(3)
@pytest.mark.parametrize(("of_collection", "name"), [*((False, name) for name in OPERATORS), *((True, name) for name in COLLECTIONS)])
def test_ten_keys_do_not_go_through_all_keys(of_collection: bool, name: str) -> None:
    operator = COLLECTIONS[name] if of_collection else OPERATORS[name]
    few, many = (steps_of_ten(operator, keys, of_collection=of_collection) for keys in (FEW_KEYS, MANY_KEYS))
    assert few > TEN
    assert many < few + MANY_KEYS - FEW_KEYS, f"{few} steps of the interpreter beside {FEW_KEYS} keys, {many} beside {MANY_KEYS}"
