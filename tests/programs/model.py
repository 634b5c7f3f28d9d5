"""What operators mean, in plain Python: a stream is a list of ``(Timestamp, record)``, an operator a function of whole streams.

No batches, replicas, frontiers or notifications: this is the oracle for the engine. A loop is a fixed point: since a feedback advances
time, what a body gives for rounds below k depends on rounds below k only, so each evaluation makes one more round right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from rayad import Timestamp, Window

Timed = list[tuple[Timestamp, Any]]
Function = Callable[[Any], Any]


def epochs(lists: Iterable[Iterable[Any]]) -> Timed:
    """Item i of the outer list is epoch i."""
    return [(Timestamp(epoch), record) for epoch, records in enumerate(lists) for record in records]


def mapped(stream: Timed, function: Function) -> Timed:
    return [(time, function(record)) for time, record in stream]


def filtered(stream: Timed, predicate: Function) -> Timed:
    return [(time, record) for time, record in stream if predicate(record)]


def flat_mapped(stream: Timed, function: Function) -> Timed:
    return [(time, out) for time, record in stream for out in function(record)]


def by_time(stream: Timed) -> list[tuple[Timestamp, list[Any]]]:
    """Groups of one time, in lexicographic order of times."""
    groups: dict[Timestamp, list[Any]] = {}
    for time, record in stream:
        groups.setdefault(time, []).append(record)
    return sorted(groups.items(), key=lambda item: item[0].sort_key())


def folded(
    stream: Timed, key: Function, start: Callable[[], Any], step: Callable[[Any, Any], Any], result: Function = lambda x: x
) -> Timed:
    """Running totals: each key that a time touches, once, with its total so far. ``step`` gives a new state."""
    state: dict[Any, Any] = {}
    out: Timed = []
    for time, records in by_time(stream):
        touched: dict[Any, None] = {}
        for record in records:
            at = key(record)
            state[at] = step(state[at] if at in state else start(), record)
            touched[at] = None
        out.extend((time, (at, result(state[at]))) for at in touched)
    return out


def collected(stream: Timed, key: Function, value: Function, result: Callable[[list[Any]], Any]) -> Timed:
    """Running totals as a function of all values of a key so far."""
    return folded(stream, key, list, lambda values, record: [*values, value(record)], result)


def per_epoch(stream: Timed, key: Function, result: Callable[[list[Any]], Any]) -> Timed:
    """Each time alone: ``(key, window, result(records))``."""
    out: Timed = []
    for time, records in by_time(stream):
        start = time.counters[-1] if time.counters else time.epoch
        groups: dict[Any, list[Any]] = {}
        for record in records:
            groups.setdefault(key(record), []).append(record)
        out.extend((time, (at, Window(start, start + 1), result(group))) for at, group in groups.items())
    return out


def distinct(stream: Timed, key: Function, value: Function = lambda record: record) -> Timed:
    seen: set[Any] = set()
    out: Timed = []
    for time, records in by_time(stream):
        for record in records:
            pair = (key(record), value(record))
            if pair not in seen:
                seen.add(pair)
                out.append((time, pair))
    return out


def joined(left: Timed, right: Timed, left_key: Function, right_key: Function) -> Timed:
    """Every pair with equal keys, at the least upper bound of the two times; a null key equals nothing."""
    by_key: dict[Any, Timed] = {}
    for time, record in right:
        by_key.setdefault(right_key(record), []).append((time, record))
    return [
        (time.join(then), (left_key(record), (record, match)))
        for time, record in left
        for then, match in by_key.get(left_key(record), ())
        if left_key(record) is not None and not (isinstance(left_key(record), tuple) and None in left_key(record))
    ]


def iterated(stream: Timed, body: Callable[[Timed], tuple[Timed, Timed]], max_rounds: int | None = None, limit: int = 200) -> Timed:
    """The loop's result: ``body`` gives what is fed back and what leaves."""
    entered = [(time.enter(), record) for time, record in stream]
    fed: Timed = []
    for _ in range(limit):
        again, out = body(entered + fed)
        following = [(time.next_round(), record) for time, record in again]
        following = [item for item in following if max_rounds is None or item[0].counters[-1] < max_rounds]
        if same(following, fed):
            return [(time.leave(), record) for time, record in out]
        fed = following
    raise AssertionError(f"the model's loop did not end within {limit} rounds")


def entered(stream: Timed) -> Timed:
    """A stream inside one more loop, in round 0."""
    return [(time.enter(), record) for time, record in stream]


def canonical(stream: Iterable[tuple[Timestamp, Any]]) -> Counter[str]:
    """As a multiset that can be compared whatever the records are."""
    return Counter(f"{time} {record!r}" for time, record in stream)


def same(left: Timed, right: Timed) -> bool:
    return canonical(left) == canonical(right)


def require_same(got: Iterable[tuple[Timestamp, Any]], expected: Timed, what: str) -> None:
    """Fail with the differences, record for record."""
    mine, theirs = canonical(got), canonical(expected)
    if mine != theirs:
        missing, extra = theirs - mine, mine - theirs
        raise AssertionError(f"{what}: missing {sorted(missing.elements())[:12]}, too many {sorted(extra.elements())[:12]}")
