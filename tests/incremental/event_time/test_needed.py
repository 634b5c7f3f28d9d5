"""What an as-of join and sessions need of a key: whatever comes or goes at the limit or later, what is kept gives the same difference."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import rayad as rd
from rayad.dataflow.windows import AsOf
from rayad.incremental.event_time.functions import Latest, Sessions
from tests.thorough import amount

LIMIT = 4
OLD, NEW = (0, 2, 3), (4, 5, 7)


def _at(record: Any) -> Any:
    return record


def _same_differences(function: Any, values: Iterable[Any], may_change: list[Any], chance: random.Random) -> None:
    there = dict.fromkeys(values, 1)
    needed, then = function.needed(there, LIMIT)
    kept = dict.fromkeys(needed, 1)
    assert kept.keys() <= there.keys()
    assert all(value in kept for value in there if function.time_of(value) >= LIMIT)
    assert then is None or then >= LIMIT
    for changes in chance.sample(list(itertools.combinations(may_change, 2)), 4):
        for one, some in ((there, dict(there)), (kept, dict(kept))):
            for value in changes:
                if some.pop(value, None) is None:
                    some[value] = 1
            difference = Counter(dict(_weights(function(None, some))))
            difference.subtract(_weights(function(None, one)))
            if one is there:
                want = {result: weight for result, weight in difference.items() if weight}
            else:
                got = {result: weight for result, weight in difference.items() if weight}
        assert got == want, f"of {sorted(there)} {sorted(kept)} are kept, and {changes} change"


def _weights(results: Any) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for result, weight in results:
        out[result] += weight
    return out


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tolerance", [None, 2, 3])
def test_as_of(direction: Any, exact: bool, tolerance: Any) -> None:
    chance = random.Random(1)
    may_change = _on_both_sides(NEW)
    every = _on_both_sides(OLD + NEW)
    function = Latest(AsOf(tolerance, exact, direction), _at, _at, inner=False)
    forgotten = 0
    for bits in chance.sample(range(1 << len(every)), amount(each_run=120, soak=1 << len(every))):
        values = [value for i, value in enumerate(every) if bits >> i & 1]
        _same_differences(function, values, may_change, chance)
        forgotten += len(values) - len(function.needed(dict.fromkeys(values, 1), LIMIT)[0])
    assert forgotten > 40


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_sessions(gap: int) -> None:
    chance = random.Random(2)
    function = Sessions(rd.windows.session(gap), _at)
    forgotten = 0
    for size in range(7):
        for values in itertools.combinations((0, 1, 3, *NEW), size):
            _same_differences(function, values, [*NEW, 6, 9], chance)
            forgotten += len(values) - len(function.needed(dict.fromkeys(values, 1), LIMIT)[0])
    assert forgotten > 0


def test_what_is_kept_of_an_as_of_join_is_the_last_right_record_and_what_is_not_final() -> None:
    values = dict.fromkeys([(1, None), (3, None), (None, 0), (None, 2), (6, None)], 1)
    kept = {direction: set(_latest(direction).needed(values, LIMIT)[0]) for direction in ("backward", "forward", "nearest")}
    assert kept == {"backward": {(6, None), (None, 2)}, "forward": {(3, None), (6, None)}, "nearest": {(3, None), (6, None), (None, 2)}}


def _on_both_sides(times: Iterable[int]) -> list[tuple[int | None, int | None]]:
    return [*((at, None) for at in times), *((None, at) for at in times)]


def _latest(direction: Any) -> Latest:
    return Latest(AsOf(None, True, direction), _at, _at, inner=False)
