"""The laws of former values: whatever is changed, moved and forgotten, an epoch that can be read is what it was when it was over."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.dataflow.operators.state import versions as versions_module
from rayad.dataflow.operators.state.by_key.dicts import DictByKey, GrowingDict, KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.live import LiveState
from rayad.dataflow.operators.state.versions import ABSENT, copied
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.vertex import begin
from tests.dataflow.driven import Context

KEY_GROUPS = 6
KEYS = 12
REPLICAS = 3


class Keeps(KeyedVertex):
    """Nothing but a state, which is changed from outside."""

    def __init__(self, state: DictByKey) -> None:
        self.state = state


class Replica:
    """One of several that have keys between them, each in an epoch of its own."""

    def __init__(self, make: type[DictByKey]) -> None:
        self.epoch = self.applied = -1
        self.vertex = Keeps(make())
        context = Context()
        context.key_groups = KEY_GROUPS
        begin(self.vertex, context)
        self.live = self.vertex.live = LiveState(self.vertex, lambda: self.epoch, lambda: self.applied)

    def change(self, epoch: int, changes: list[tuple[str, int]], history: dict[int, dict[int, Any]]) -> None:
        """One epoch of this replica; ``history``: by key what it had at the end of each epoch in which it changed."""
        self.epoch, self.applied = epoch, max(epoch, self.applied)
        with self.vertex.state.changing([key for _, key in changes]) as kept:
            for kind, key in changes:
                if kind == "put":
                    kept[key] = [epoch]
                elif kind == "in place":
                    kept.setdefault(key, []).append(epoch)
                elif kind == "got":
                    (kept.get(key) or []).append(epoch)  # an operator that hands the value to user code
                elif kind == "pop" and isinstance(self.vertex.state, KeyedDict):
                    kept.pop(key, None)
        if isinstance(self.vertex.state, KeyedDict):
            self.vertex.state.drop([key for kind, key in changes if kind == "drop"])
        for _, key in changes:
            history.setdefault(key, {})[epoch] = copied(self.vertex.state.kept[key]) if key in self.vertex.state.kept else ABSENT


def at(history: dict[int, dict[int, Any]], epoch: int) -> dict[int, Any]:
    """What all keys had when an epoch was over."""
    out = {}
    for key, changes in history.items():
        past = [each for each in changes if each <= epoch]
        if past and changes[max(past)] is not ABSENT:
            out[key] = changes[max(past)]
    return out


CHANGES = st.lists(st.tuples(st.sampled_from(["put", "in place", "got", "pop", "drop"]), st.integers(0, KEYS - 1)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.integers(0, REPLICAS - 1), CHANGES),
        st.tuples(st.just("begin"), st.integers(0, REPLICAS - 1)),
        st.tuples(st.just("move"), st.integers(0, REPLICAS - 1), st.sets(st.integers(0, KEY_GROUPS - 1))),
        st.tuples(st.just("forget"), st.integers(0, REPLICAS - 1), st.integers(0, 3)),
    ),
    max_size=40,
)


def run(make: type[DictByKey], steps: list[Any]) -> int:
    """Drive replicas, and read every epoch that all can be read at after each step; gives how many have been.

    A key-group that moves may be ahead of its new owner, or behind it: then that applies to it what it has applied to its own already.
    """
    replicas = [Replica(make) for _ in range(REPLICAS)]
    owner = [group % REPLICAS for group in range(KEY_GROUPS)]
    reached = [-1] * KEY_GROUPS
    history: dict[int, dict[int, Any]] = {}
    reads = 0
    for step in steps:
        replica = replicas[step[1]]
        if step[0] == "epoch":
            mine = [group for group in range(KEY_GROUPS) if owner[group] == step[1]]
            epoch = 1 + min((reached[group] for group in mine), default=replica.applied)
            groups = {group for group in mine if reached[group] < epoch}
            replica.change(epoch, [change for change in step[2] if key_group(change[1], KEY_GROUPS) in groups], history)
            for group in groups:
                reached[group] = epoch
        elif step[0] == "begin":
            replica.live.begin(None, "it")
        elif step[0] == "forget" and replica.live.is_read:
            replica.live.forget(min(reached) - step[2])
        elif step[0] == "move":
            move(replicas, owner, step[1], step[2])
        reads += check(replicas, owner, history, min(reached))
    return reads


def move(replicas: list[Replica], owner: list[int], new: int, groups: set[int]) -> None:
    """These groups go to a replica, which takes what their owners have given."""
    for old, giver in enumerate(replicas):
        leaving = frozenset(group for group in groups if owner[group] == old)
        if old == new or not leaving:
            continue
        taker = replicas[new]
        given = giver.vertex.give(leaving)
        taker.epoch = taker.applied = max(giver.applied, taker.applied)
        if given is not None:
            taker.vertex.take(loaded(b"".join(dumped(given))))
        else:
            taker.live.take({})
        for group in leaving:
            owner[group] = new


def check(replicas: list[Replica], owner: list[int], history: dict[int, dict[int, Any]], last: int) -> int:
    if not all(replica.live.is_read for replica in replicas):
        return 0
    for replica in replicas:
        replica.live.begin("state", "it")
    first = max(replica.live.since("state") for replica in replicas)
    for epoch in range(first, last + 1):
        expected = at(history, epoch)
        found: dict[int, Any] = {}
        for number, replica in enumerate(replicas):
            owned = {group for group, each in enumerate(owner) if each == number}
            entries = replica.live.of_groups("state", epoch, owned).in_python()
            found.update(zip(entries.keys, entries.columns["value"], strict=True))
            keys = [key for key in range(KEYS) if owner[key_group(key, KEY_GROUPS)] == number]
            some, has_one = replica.live.of_keys("state", epoch, keys)
            assert has_one
            assert dict(zip(some.keys, some.columns["value"], strict=True)) == {key: expected[key] for key in keys if key in expected}
        assert found == expected
    return max(0, last + 1 - first)


@pytest.mark.parametrize("make", [KeyedDict, GrowingDict])
@given(STEPS)
def test_an_epoch_is_read_as_it_was_when_it_was_over(make: type[DictByKey], steps: list[Any]) -> None:
    run(make, steps)


def _busy() -> list[Any]:
    chance = random.Random(5)
    steps: list[Any] = [("begin", replica) for replica in range(REPLICAS)]
    for epoch in range(20):
        changes = [(chance.choice(["put", "put", "in place", "got", "pop", "drop", "drop"]), key) for key in range(KEYS)]
        steps += [("epoch", replica, changes) for replica in range(REPLICAS)]
        steps.append(("move", epoch % REPLICAS, {epoch % KEY_GROUPS, (epoch + 1) % KEY_GROUPS}))
    return steps


def test_the_laws_read_former_epochs() -> None:
    assert run(KeyedDict, _busy()) > 50


@pytest.mark.parametrize("planted", ["values are not copied", "moves leave former values behind", "drops are not noted"])
def test_the_laws_find_what_is_planted(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted == "values are not copied":
        monkeypatch.setattr(versions_module, "copied", lambda value: value)
    elif planted == "moves leave former values behind":
        monkeypatch.setattr(versions_module.Versions, "give", lambda self, groups, key_groups: ({}, self.since))
    else:
        monkeypatch.setattr(KeyedDict, "before_change", lambda self, keys: None)
    with pytest.raises(AssertionError):
        run(KeyedDict, _busy())


@settings(max_examples=50)
@given(STEPS)
def test_what_no_epoch_needs_any_more_is_forgotten(steps: list[Any]) -> None:
    replica = Replica(KeyedDict)
    replica.live.begin(None, "it")
    for step in steps:
        if step[0] == "epoch":
            replica.change(replica.applied + 1, step[2], {})
    replica.live.forget(replica.applied)
    assert replica.vertex.state.versions is not None
    assert len(replica.vertex.state.versions) == 0
