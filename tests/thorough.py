"""How much of a thing that repeats itself is tried: some of it in ``make test``, all of it in ``make soak``.

For tests whose seconds are many and whose examples go the same way: fewer of them in each run, none of them given up.
Where a test has a case for each operator, type or program, :func:`by_turns` runs a share of the cases, another one for each commit.
See docs/decisions/084-warm-workers.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from tests.checkout import ROOT

T = TypeVar("T")
TURN = "RAYAD_TURN"
"""``make test`` sets it to ``commit``; the name of a commit repeats what ran there; unset, all cases run."""
IN_SOAK = os.environ.get("HYPOTHESIS_PROFILE", "ci") != "ci"  # also with deep and explore: whoever asks for more gets all


def amount(each_run: T, soak: T) -> T:
    """How many, or which. ``make soak`` runs the tests of a module that asks for it again, with the second figure."""
    return soak if IN_SOAK else each_run


def mark(items: list[pytest.Item]) -> None:
    """Mark the tests of modules that ask for an :func:`amount` as ``thorough``."""
    for item in items:
        if isinstance(item, pytest.Function) and vars(item.module).get("amount") is amount:
            item.add_marker(pytest.mark.thorough)


def examples(each_run: int, soak: int) -> Callable[[Any], Any]:
    """In the place of ``@settings(max_examples=soak)``."""

    def decorate(test: Any) -> Any:
        return pytest.mark.thorough(settings(max_examples=amount(each_run, soak), deadline=None)(test))

    return decorate


def by_turns(every: int) -> Callable[[T], T]:
    """Mark a test with many cases: ``make test`` runs one in ``every`` of them, and ``make soak``, or pytest alone, all.

    Which ones depends on the commit alone, so a failure is everybody's, and commits together run all. In each run there is a case of each
    value of a parameter that has few values, and of each first word of the cases' names where these are few: of each operator, if cases are
    named "Totals, sum of numbers" and "Totals, mean of numbers".
    """

    def decorate(test: T) -> T:
        return pytest.mark.thorough(pytest.mark.by_turns(every)(test))  # type: ignore[type-var, no-any-return]

    return decorate


def others_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the cases out of ``items`` that do not run at this commit; gives them."""
    turn = turn_of_this_run()
    if turn is None:
        return []
    tests = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and (mark := item.get_closest_marker("by_turns")) is not None:
            tests[item.nodeid.partition("[")[0]].append((mark.args[0], item))
    left_out: set[pytest.Item] = set()
    for cases in tests.values():
        every, chosen = cases[0][0], [item for _, item in cases]
        names = [item.nodeid for item in chosen]
        run = share([{**item.callspec.indices, "": first_word(item.nodeid)} for item in chosen], names, every, turn)
        left_out.update(item for number, item in enumerate(chosen) if number not in run)
    items[:] = [item for item in items if item not in left_out]
    return list(left_out)


def first_word(name: str) -> str:
    """What the name of a case begins with.

    >>> first_word("tests/test_laws.py::test_law[Totals, sum of numbers]"), first_word("tests/test_laws.py::test_law[int8-rows]")
    ('Totals', 'int8')
    """
    return re.split(r"[^\w ]", name.partition("[")[2], maxsplit=1)[0]


def share(cases: Sequence[Mapping[str, Hashable]], names: Sequence[str], every: int, turn: str) -> set[int]:
    """Numbers of the cases that run: one in ``every``, and of each value of a parameter with at most that many values one.

    >>> cases = [{"kind": number // 3, "form": number % 3} for number in range(9)]
    >>> run = share(cases, [f"test[{number}]" for number in range(9)], 3, "a commit")
    >>> len(run) >= 3, {cases[number]["form"] for number in run}
    (True, {0, 1, 2})
    """
    order = sorted(range(len(cases)), key=lambda number: zlib.crc32(f"{turn} {names[number]}".encode()))
    enough = -(-len(cases) // every)
    run = set(order[:enough])
    values = defaultdict(set)
    for case in cases:
        for name, value in case.items():
            values[name].add(value)
    few = {name for name, found in values.items() if len(found) <= enough}
    seen = {(name, cases[number][name]) for number in run for name in few}
    for number in order[enough:]:
        new = {(name, cases[number][name]) for name in few} - seen
        if new:
            run.add(number)
            seen |= new
    return run


def turn_of_this_run() -> str | None:
    """The name of the commit by which cases are chosen, or None if all run."""
    asked = os.environ.get(TURN)
    if not asked or IN_SOAK:
        return None
    return _commit() if asked == "commit" else asked


@cache
def _commit() -> str:
    """Of the checkout. Sources without git have one share of their own."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:  # there is no git
        told = ""
    return told.strip() or "no commit"
