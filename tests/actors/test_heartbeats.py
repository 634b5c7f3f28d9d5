"""Silence counts only while the listener runs, and only of actors that have not left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.lead.heartbeats import Heartbeats


def test_an_actor_that_does_not_answer_is_silent_after_the_timeout() -> None:
    beats = Heartbeats(4.0)
    assert beats.look({"a", "b"}, 0.0) == ["a", "b"]
    for second in range(1, 5):
        beats.on_answer("a")
        assert beats.look({"a", "b"}, float(second)) == ["a"]
    assert beats.silent() is None  # for 4 s, and it may be
    beats.look({"a", "b"}, 5.0)
    assert (beats.silent(), beats.silence_s("b")) == ("b", 5.0)


def test_the_time_in_which_the_listener_was_stopped_does_not_count() -> None:
    """Regression: a coordinator that got no processor for a minute then counted all its replicas as dead."""
    beats = Heartbeats(60.0)
    beats.look({"a"}, 0.0)
    beats.look({"a"}, 100.0)
    assert (beats.silent(), beats.silence_s("a")) == (None, 10.0)


def test_an_actor_that_has_left_is_not_silent() -> None:
    beats = Heartbeats(4.0)
    beats.look({"a", "b"}, 0.0)
    beats.forget(["a"])
    for second in range(1, 10):
        beats.on_answer("b")
        beats.look({"b"}, float(second))
        beats.check_invariants()
    assert beats.silent() is None


def test_an_actor_that_returns_is_counted_from_its_return() -> None:
    beats = Heartbeats(4.0)
    for second in range(4):
        beats.look({"a"}, float(second))
    beats.look(set(), 4.0)
    assert beats.look({"a"}, 5.0) == ["a"]
    assert beats.silence_s("a") == 0.0


STEPS = st.lists(st.tuples(st.sampled_from(["look", "answer", "forget"]), st.sampled_from(["a", "b"]), st.floats(0.0, 30.0)), max_size=30)


@given(STEPS)
def test_silence_never_exceeds_the_time_since_the_question(steps: list[tuple[str, str, float]]) -> None:
    beats, now_s = Heartbeats(8.0), 0.0
    asked: dict[str, float] = {}
    for step, name, passed_s in steps:
        now_s += passed_s
        if step == "look":
            there = {"a", "b"} - ({name} if passed_s < 1.0 else set())
            asked = {one: since_s for one, since_s in asked.items() if one in there}
            for one in beats.look(there, now_s):
                assert one not in asked
                asked[one] = now_s
        else:
            (beats.on_answer if step == "answer" else lambda one: beats.forget([one]))(name)
            asked.pop(name, None)
        beats.check_invariants()
        for one in ("a", "b"):
            assert beats.silence_s(one) <= (now_s - asked[one] if one in asked else 0.0) + 1e-9
