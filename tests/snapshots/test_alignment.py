"""Barriers of one replica: what is captured, blocked and logged, on every small schedule; and the cut of a whole graph of replicas."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import pytest

from rayad.progress import ProtocolError
from rayad.snapshots.alignment import Alignment, Verdict


def test_a_source_captures_when_told() -> None:
    source = Alignment[str]([])
    assert source.begin(1) == Verdict(capture=True, complete=True)
    assert source.begin(1) == Verdict()
    assert source.begin(3) == Verdict(capture=True, complete=True)
    with pytest.raises(ProtocolError, match="comes with their barriers"):
        Alignment(["a"]).begin(1)


@pytest.mark.parametrize("order", list(itertools.permutations("abf")))
def test_regular_channels_are_waited_for_and_feedback_is_not(order: tuple[str, ...]) -> None:
    alignment = Alignment("ab", "f")
    seen: list[str] = []
    captured_after = complete_after = None
    for channel in order:
        verdict = alignment.on_barrier(channel, 1)
        seen.append(channel)
        if verdict.capture:
            captured_after = set(seen)
        if verdict.complete:
            complete_after = set(seen)
        captured = captured_after is not None
        for other in "abf":
            assert alignment.blocked(other) == (not captured and other in seen)
            assert alignment.logs(other) == (captured and other not in seen)
    assert captured_after is not None
    assert captured_after >= {"a", "b"}
    assert complete_after == {"a", "b", "f"}
    assert not alignment.is_pending


@pytest.mark.parametrize("order", list(itertools.permutations("abf")))
def test_unaligned_captures_first_and_blocks_nothing(order: tuple[str, ...]) -> None:
    alignment = Alignment("ab", "f")
    verdicts = []
    for number, channel in enumerate(order):
        verdicts.append(alignment.on_barrier(channel, 1, unaligned=True))
        assert not any(alignment.blocked(other) for other in "abf")
        assert {other for other in "abf" if alignment.logs(other)} == set(order[number + 1 :])
    assert [v.capture for v in verdicts] == [True, False, False]
    assert [v.complete for v in verdicts] == [False, False, True]


def test_alignment_that_takes_too_long_turns_unaligned() -> None:
    alignment = Alignment("ab")
    alignment.on_barrier("a", 1)
    assert alignment.blocked("a")
    assert alignment.turn_unaligned() == Verdict(capture=True)
    assert not alignment.blocked("a")
    assert alignment.logs("b")
    assert not alignment.logs("a")
    assert alignment.turn_unaligned() == Verdict()
    assert alignment.on_barrier("b", 1) == Verdict(complete=True)


def test_a_newer_snapshot_drops_an_unfinished_one() -> None:
    alignment = Alignment("ab", "f")
    alignment.on_barrier("a", 1)
    verdict = alignment.on_barrier("b", 2)
    assert verdict == Verdict(dropped=1)
    assert not alignment.blocked("a")
    assert alignment.blocked("b")
    assert alignment.on_barrier("b", 1) == Verdict()  # late, of the one that was given up
    assert alignment.on_barrier("a", 2) == Verdict(capture=True)
    assert alignment.on_barrier("a", 3).dropped == 2  # captured, but its log was not closed


def test_a_second_barrier_and_an_unknown_channel_are_errors() -> None:
    alignment = Alignment("ab")
    alignment.on_barrier("a", 1)
    with pytest.raises(ProtocolError, match="twice"):
        alignment.on_barrier("a", 1)
    with pytest.raises(ProtocolError, match="no input"):
        alignment.on_barrier("x", 1)
    with pytest.raises(ProtocolError, match="both"):
        Alignment("ab", "b")


def test_giving_up_an_attempt_unblocks_the_channels() -> None:
    alignment = Alignment("ab")
    assert alignment.give_up() is None
    alignment.on_barrier("a", 4)
    assert alignment.give_up() == 4
    assert not alignment.blocked("a")
    assert not alignment.logs("b")


def test_barriers_of_an_attempt_that_was_given_up_are_ignored() -> None:
    """Whether it has begun here or not: some channel may never bring its barrier, since its sender was told before it captured."""
    alignment = Alignment("ab")
    alignment.on_barrier("a", 4)
    assert alignment.give_up(4) == 4
    assert alignment.on_barrier("b", 4) == Verdict()
    assert alignment.give_up(5) is None
    assert alignment.on_barrier("a", 5) == Verdict()
    assert not alignment.blocked("a")
    alignment.on_barrier("a", 6)
    assert alignment.give_up(5) is None  # old news
    assert alignment.blocked("a")
    assert alignment.on_barrier("b", 6) == Verdict(capture=True, complete=True)
    source = Alignment[str]([])
    assert source.give_up(1) is None
    assert source.begin(1) == Verdict()


# -- the cut of a graph -------------------------------------------------------------------------------------
class Tokens:
    """Replicas that pass tokens round a graph with a back-edge; a token counts where it is: in a state, or on a channel.

    entry[i] -> body[i] -> entry (feedback, each to each). The number of tokens never changes, so a cut is consistent
    exactly when states and logs hold all of them, once.
    """

    def __init__(self, seed: int, unaligned: bool) -> None:
        self.rng = random.Random(seed)
        self.unaligned = unaligned
        names = ["source", "entry0", "entry1", "body0", "body1"]
        edges = [("source", e) for e in ("entry0", "entry1")]
        edges += [("entry0", "body0"), ("entry1", "body1")]  # so that one entry can be a whole round ahead of the other
        back = [(b, e) for b in ("body0", "body1") for e in ("entry0", "entry1")]
        self.out = {name: [edge for edge in edges + back if edge[0] == name] for name in names}
        self.channels: dict[tuple[str, str], deque[Any]] = {edge: deque() for edge in edges + back}
        self.alignment = {name: Alignment([e for e in edges if e[1] == name], [e for e in back if e[1] == name]) for name in names}
        self.state: dict[str, list[int]] = {name: [] for name in names}
        self.cut: dict[str, list[int]] = {}
        self.held: dict[tuple[str, str], deque[Any]] = {edge: deque() for edge in self.channels}
        self.complete: set[str] = set()
        self.state["source"] = list(range(12))

    def run(self, steps: int, barrier_at: int) -> None:
        for step in range(steps):
            if step == barrier_at:
                self.act("source", self.alignment["source"].begin(1, unaligned=self.unaligned))
            if self.rng.random() < 0.3:
                self.emit(self.rng.choice(list(self.state)))
                continue
            ready = [e for e, queue in self.channels.items() if queue or (self.held[e] and not self.alignment[e[1]].blocked(e))]
            edge = self.rng.choice(ready) if ready else None
            if edge is not None and (edge != ("source", "entry1") or self.rng.random() < 0.05):  # a slow channel
                self.deliver(edge)

    def emit(self, name: str) -> None:
        if self.state[name] and self.out[name]:
            token = self.state[name].pop(self.rng.randrange(len(self.state[name])))
            self.channels[self.rng.choice(self.out[name])].append(token)

    def deliver(self, edge: tuple[str, str]) -> None:
        """One arrival: held back while the channel is blocked, else consumed, and logged if the cut wants it."""
        alignment = self.alignment[edge[1]]
        if self.held[edge] and not alignment.blocked(edge):
            self.state[edge[1]].append(self.held[edge].popleft())
            return
        item = self.channels[edge].popleft()
        if item == "barrier":
            self.act(edge[1], alignment.on_barrier(edge, 1, unaligned=self.unaligned))
        elif alignment.blocked(edge) or self.held[edge]:
            self.held[edge].append(item)
        else:
            if alignment.logs(edge):
                self.cut[edge[1]].append(item)
            self.state[edge[1]].append(item)

    def act(self, name: str, verdict: Verdict) -> None:
        if verdict.capture:
            self.cut[name] = list(self.state[name])
            for edge in self.out[name]:
                self.channels[edge].append("barrier")
        if verdict.complete:
            self.complete.add(name)


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_cut_of_a_loop_holds_every_token_once(seed: int, unaligned: bool) -> None:
    tokens = Tokens(seed, unaligned)
    tokens.run(2_500, barrier_at=random.Random(seed).randrange(5, 200))
    assert tokens.complete == set(tokens.state)
    assert sorted(token for part in tokens.cut.values() for token in part) == list(range(12))


def test_the_paper_s_rule_for_feedback_loses_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 001, 3.3 does not hold back a feedback channel whose barrier comes before the capture: with two entries that counts twice."""
    monkeypatch.setattr(
        Alignment, "blocked", lambda self, channel: not self.captured and channel in self.regular and channel not in self._missing
    )
    wrong = 0
    for seed in range(60):
        tokens = Tokens(seed, unaligned=False)
        tokens.run(2_500, barrier_at=random.Random(seed).randrange(5, 200))
        wrong += sorted(token for part in tokens.cut.values() for token in part) != list(range(12))
    assert wrong > 0
