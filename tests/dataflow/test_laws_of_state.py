"""The laws of keyed state, tried on each of its forms by itself: what was put in is there after snapshots, crashes and moves of key-groups
in any order, and nothing else."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest

from rayad.actors.replica.parts.part_files import loaded
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.order import groups_of_buckets, groups_of_places, places_of, slices_of_groups
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import FAN_IN, Runs
from rayad.dataflow.operators.state.runs.runs_by_time import RunsByTime
from rayad.dataflow.records.key_hashing import key_group
from tests.checkout import parse, python_files
from tests.dataflow.driven import pickled
from tests.dataflow.forms import FORMS, Form, Row, batch, let_small_states_count
from tests.thorough import amount

SEEDS = amount(each_run=40, soak=1000)
KEYS = 30


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    let_small_states_count(monkeypatch)


class Replica:
    """One of the replicas that have a state between them: its state, what must be there, and its last snapshots."""

    def __init__(self, form: Form, memory: MemoryBound | None = None) -> None:
        self.form = form
        self.memory = memory
        self.state = form.make()
        self.expected: list[Row] = []
        self.chain: list[bytes] = []
        self.then: list[Row] = []

    def put(self, rows: list[Row]) -> None:
        self.form.put(self.state, rows)
        self.expected = self.form.model(self.expected, rows)
        self.hold()

    def hold(self) -> None:
        """As the runtime does after each call of a vertex."""
        if self.memory is not None:
            self.memory.hold([self.state])

    def snapshot(self) -> bool:
        """Write what has changed, or all; gives whether it was what has changed."""
        changed = self.state.take_changes()
        is_whole = changed is None or not self.chain
        self.chain = [pickled(self.state.checkpoint())] if is_whole else [*self.chain, pickled(changed())]
        self.then = list(self.expected)
        self._check(self._again())
        return not is_whole

    def _again(self) -> Any:
        """The state of the last snapshot."""
        state = self.form.make()
        whole, *changes = map(loaded, self.chain)
        state.restore(whole)
        for some in changes:
            state.restore_changes(some)
        return state

    def handed(self, given: Any) -> Any:
        """What another replica gave, as it comes here."""
        return loaded(pickled(given))

    def crash(self) -> None:
        """Go back to the last snapshot."""
        self.state, self.expected, self.chain = self._again(), list(self.then), []
        self.hold()

    def check(self) -> None:
        self._check(self.state)

    def _check(self, state: Any) -> None:
        assert Counter(self.form.rows(state)) == Counter(self.expected)
        if isinstance(state, Runs):
            check_runs(state)


def check_runs(runs: Runs) -> None:
    """Each run is in its order, a key-group is a slice of it, and there are few."""
    is_by_time = isinstance(runs, RunsByTime)
    for run in runs.all():
        assert len(run)
        if run.place is not None:
            assert (run.place == runs.places(run.rows)).all()
            groups = groups_of_buckets(run.place) if is_by_time else groups_of_places(run.place, runs.key_groups)
            assert (groups == [key_group(key, runs.key_groups) for key in run.rows.column(0).to_pylist()]).all()
        columns = runs.leading(run) if is_by_time else (run.place, run.tick)
        order = list(zip(*(column for column in columns if column is not None), strict=True))
        assert order == sorted(order)
        if not is_by_time:
            assert (groups[1:] >= groups[:-1]).all()
            for some in (run.place[:1], run.place[-1:], np.unique(run.place[::2])):
                assert any(run is each for each in runs.near(some)), "what has a place is near it"


Kind: TypeAlias = Callable[[Form, MemoryBound | None], Replica]


def run_one(form: Form, seed: int, memory: MemoryBound | None = None, kind: Kind = Replica) -> int:
    """Random steps with three replicas; gives how many snapshots were of what has changed, or what else a kind of replica tells."""
    chance = random.Random(seed)
    key_groups = chance.choice([8, 12, 256])
    replicas = [kind(form, memory) for _ in range(3)]
    owner = [chance.randrange(3) for _ in range(key_groups)]
    is_moving = False
    increments = 0
    for _ in range(chance.randrange(5, 40)):
        step = chance.choice(["put", "put", "put", "snapshot", "snapshot", "crash", "begin", "move", "move", "end"])
        replica = chance.choice(replicas)
        if step == "put":
            rows = [(chance.randrange(KEYS), chance.randrange(6), chance.randrange(4)) for _ in range(chance.randrange(1, 12))]
            for at, each in enumerate(replicas):
                some = [row for row in rows if owner[key_group(row[0], key_groups)] == at]
                if some:
                    each.put(some)
        elif step == "snapshot" and not is_moving:
            increments += sum([each.snapshot() for each in replicas])
        elif step == "crash" and not is_moving and all(each.chain for each in replicas):
            for each in replicas:
                each.crash()
        elif step == "begin":
            is_moving = True
            slices = replica.state.index(key_groups)
            for _ in range(chance.choice([0, 1, 99])):
                next(slices, None)
        elif step == "move":
            is_moving = True
            move(replicas, owner, chance, key_groups)
        elif step == "end":
            is_moving = False
            for each in replicas:
                each.state.gave()
        if chance.random() < 0.5:
            for each in replicas:
                each.check()
    for each in replicas:
        each.check()
    return increments


def move(replicas: list[Replica], owner: list[int], chance: random.Random, key_groups: int) -> None:
    """Some groups of a replica go to another one."""
    old, new = chance.sample(range(3), 2)
    mine = [group for group in range(key_groups) if owner[group] == old]
    some = frozenset(chance.sample(mine, chance.randint(0, len(mine))))
    giver, taker = replicas[old], replicas[new]
    for replica in (giver, taker):
        replica.state.forget_changes()
        replica.chain = []
    given = giver.state.give(some, key_groups)
    leaves = [key_group(row[0], key_groups) in some for row in giver.expected]
    gone = [row for row, goes in zip(giver.expected, leaves, strict=True) if goes]
    giver.expected = [row for row, goes in zip(giver.expected, leaves, strict=True) if not goes]
    if given is not None:
        taker.state.take(taker.handed(given))
    taker.expected = taker.expected + gone
    for group in some:
        owner[group] = new


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_was_put_in_is_there_and_nothing_else(form: Form) -> None:
    assert sum([run_one(form, seed) for seed in range(SEEDS)]) > 0


# -- defects that the laws must find ---------------------------------------------------------------


class Forgetful(Runs):
    """Does not note every third run that comes."""

    def add(self, runs: Any) -> None:
        super().add(runs)
        if self.count % 3 == 0:
            self._noted.take()


class Losing(Runs):
    """Loses what groups leave behind in a run where these are in several slices."""

    def parted(self, run: Run, groups: frozenset[int]) -> tuple[Run, list[Run]]:
        given, left = super().parted(run, groups)
        return given, left[:1]


class Unsorted(Runs):
    """Puts runs one behind the other without sorting them."""

    def arranged(self, run: Run) -> list[Run]:
        return [run]


@pytest.mark.parametrize("defect", [Forgetful, Losing, Unsorted])
def test_the_laws_find_a_defect(defect: type[Runs]) -> None:
    sound = FORMS[0]
    broken = Form(defect.__name__, lambda: defect(1), sound.put, sound.rows, sound.model)
    with pytest.raises(AssertionError):
        sum(run_one(broken, seed) for seed in range(SEEDS))


class ForgetfulDict(KeyedDict):
    """Does not note every third key that is changed."""

    def changing(self, keys: Any) -> Any:
        return super().changing([key for key in keys if key % 3])


def test_the_laws_find_a_dict_that_forgets_to_note() -> None:
    sound = next(form for form in FORMS if form.name == "KeyedDict")
    broken = Form("ForgetfulDict", ForgetfulDict, sound.put, sound.rows, sound.model)
    with pytest.raises(AssertionError):
        sum(run_one(broken, seed) for seed in range(SEEDS))


def test_no_operator_notes_changes_by_hand() -> None:
    """A form notes what its own methods change. What it gives to be read mypy lets nobody change."""
    found = []
    for path in python_files("dataflow/operators"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note":
                receiver = ast.unparse(node.func.value)
                if receiver != "self" and not receiver.startswith(("self._", "self.versions")):
                    found.append(f"{path}:{node.lineno}: {receiver}.note()")
    assert not found, f"{found}: change state within changing() or adding(), which note"


# -- runs ------------------------------------------------------------------------------------------


def test_there_are_few_runs_and_a_row_is_copied_a_logarithmic_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, copied = Runs(1), []
    merged = runs.arranged
    for number in range(1000):
        (run,) = runs.arranged(runs.read(batch([(number * 7 % 1000, 0, i) for i in range(4)])))
        copied.append(0)
        monkeypatch.setattr(runs, "arranged", lambda run: (copied.append(copied.pop() + len(run)), merged(run))[1])
        runs.add([run])
        runs.all()
        monkeypatch.setattr(runs, "arranged", merged)
    in_order = sum(a.place[-1] < b.place[0] for a, b in pairwise(runs.all()))
    assert len(runs.all()) - in_order <= FAN_IN * 5
    assert sum(copied) <= 4000 * 5
    assert max(copied) <= 4000 // 2, "none waits until all is merged"


def test_a_run_stays_as_it_is_written() -> None:
    runs, written = Runs(1, 1), []
    for number in range(60):
        (run,) = runs.arranged(runs.read(batch([(i, number, i) for i in range(number % 9 + 1)])))
        written.append((run, run.rows.to_pydict(), run.place.tolist()))
        runs.add([run])
        runs.all()
    assert all(run.rows.to_pydict() == rows and run.place.tolist() == place for run, rows, place in written)


@pytest.mark.parametrize("key_groups", [1, 2, 7, 12, 256, 1000])
def test_key_groups_are_slices_of_rows_sorted_by_place(key_groups: int) -> None:
    keys = np.arange(500)
    place = np.sort(places_of([batch([(int(key), 0, 0) for key in keys]).column(0)], key_groups))
    groups = groups_of_places(place, key_groups)
    assert sorted(groups.tolist()) == sorted(key_group(int(key), key_groups) for key in keys)
    for some in ([0], [key_groups - 1], list(range(0, key_groups, 2)), list(range(key_groups)), []):
        inside = np.zeros(len(place), bool)
        for low, high in slices_of_groups(place, some, key_groups):
            inside[low:high] = True
        assert (inside == np.isin(groups, some)).all()


def test_partials_that_a_version_before_stored_with_a_flag_are_read() -> None:
    """Windows of version 2 had whether a run was grouped where there are now the numbers beside it."""
    panes = next(form for form in FORMS if form.name == "Panes")
    state = panes.make()
    panes.put(state, [(1, 2, 3), (4, 5, 6)])
    rows, _, _ = state.checkpoint()[0]
    again = panes.make()
    again.restore([(rows, True, 9)])
    assert sorted(panes.rows(again)) == [(1, 2, 3), (4, 5, 6)]
    assert [run.passed for run in again.all()] == [9]
