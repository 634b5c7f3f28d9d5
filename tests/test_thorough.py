"""Which cases of a test with many run at a commit."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import thorough
from tests.thorough import share

pytest_plugins = ["pytester"]
CASES = [{"operator": operator, "form": form} for operator in range(40) for form in range(3)]
NAMES = [f"tests/test_laws.py::test_law[{case['operator']}-{case['form']}]" for case in CASES]
COMMITS = [f"{number:040x}" for number in range(40)]


def test_one_in_three_runs_and_each_value_of_a_parameter_with_few() -> None:
    for commit in COMMITS:
        run = share(CASES, NAMES, 3, commit)
        assert 40 <= len(run) <= 80, "a third, and of operators that this leaves out one case each"
        assert {CASES[number]["form"] for number in run} == {0, 1, 2}
        assert {CASES[number]["operator"] for number in run} == set(range(40))


def test_cases_of_which_each_has_a_value_of_its_own_are_a_third() -> None:
    alone = [{"operator": number} for number in range(120)]
    assert {len(share(alone, NAMES, 3, commit)) for commit in COMMITS} == {40}


def test_a_test_with_fewer_cases_than_turns_has_one() -> None:
    assert {len(share([{"form": number} for number in range(2)], NAMES[:2], 3, commit)) for commit in COMMITS} == {1}
    assert share([], [], 3, "a commit") == set()


def test_a_commit_always_has_the_same_and_commits_together_have_all() -> None:
    alone = [{"operator": number} for number in range(120)]
    times = Counter(number for commit in COMMITS for number in share(alone, NAMES, 3, commit))
    assert set(times) == set(range(120))
    assert max(times.values()) < len(COMMITS), "none runs each time"
    assert share(alone, NAMES, 3, COMMITS[0]) == share(alone, NAMES, 3, COMMITS[0]) != share(alone, NAMES, 3, COMMITS[1])


FILE = """
import pytest
from tests.thorough import by_turns

@by_turns(3)
@pytest.mark.parametrize("number", range(30), ids=lambda number: f"{'rare' if number == 7 else 'often'}, {number}")
def test_some(number): pass

@pytest.mark.parametrize("number", range(4))
def test_all(number): pass
"""


@pytest.mark.parametrize(
    ("turn", "in_soak", "run"),
    [("commit", False, 15), ("0123abcd", False, 15), ("", False, 34), (None, False, 34), ("commit", True, 34)],
)
def test_cases_go_by_turns_where_the_environment_says_so(
    turn: str | None, in_soak: bool, run: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, _ = pytester.inline_genitems(pytester.makepyfile(FILE))
    monkeypatch.setattr(thorough, "IN_SOAK", in_soak)
    if turn is None:
        monkeypatch.delenv(thorough.TURN, raising=False)
    else:
        monkeypatch.setenv(thorough.TURN, turn)
    names = [item.nodeid for item in items]
    left_out = thorough.others_turn(items)
    assert len(items) in ({run, run - 1} if run < 34 else {run}), "a third of 30, the one whose first word is rare among them or besides"
    assert [item.name for item in items if "rare" in item.name] == ["test_some[rare, 7]"]
    assert [item.nodeid for item in items] == [name for name in names if name not in {item.nodeid for item in left_out}], "in their order"
    assert all(item.get_closest_marker("thorough") for item in left_out), "make soak runs those"
