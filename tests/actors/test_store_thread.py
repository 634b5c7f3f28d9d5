"""Calls of the store in a thread of their own: their order, their answers, and one that hangs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rayad.actors.coordinator.stored.store_thread import Returned, StoreThread
from tests.patience import PATIENCE_S


class Posted:
    """A thread, what its calls did, and what followed on them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.woken, self.done, self.answers = threading.Semaphore(0), [], []  # type: ignore[var-annotated]
        self.thread = StoreThread(self.woken.release, lambda: self.now_s)

    def post(self, name: str, function: Any = lambda: None) -> None:
        def call() -> str:
            function()
            self.done.append(name)
            return name

        def then(answer: Returned[str]) -> None:
            assert threading.current_thread() is threading.main_thread()
            self.answers.append(answer.given())

        self.thread.post(name, call, then)

    def ended(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.woken.acquire(timeout=PATIENCE_S)


def test_calls_are_made_in_the_order_of_their_posts_and_answered_in_the_owners_thread() -> None:
    posted = Posted()
    gate = threading.Event()
    posted.post("commit 1", lambda: gate.wait(PATIENCE_S))
    posted.post("publish 2")
    posted.thread.serve()
    assert (posted.done, posted.answers, posted.thread.is_busy) == ([], [], True)
    gate.set()
    posted.ended(2)
    assert (posted.done, posted.answers, posted.thread.is_busy) == (["commit 1", "publish 2"], [], True)
    posted.thread.serve()
    assert (posted.answers, posted.thread.is_busy) == (["commit 1", "publish 2"], False)
    assert posted.thread.close(PATIENCE_S)


def test_what_a_call_raises_is_raised_where_it_is_answered_and_the_next_answer_stays() -> None:
    posted = Posted()

    def fail() -> None:
        raise ValueError("no such table")

    posted.post("commit 1", fail)
    posted.post("commit 2", lambda: exec("raise SystemExit(3)"))
    posted.post("commit 3")
    posted.ended(3)
    with pytest.raises(ValueError, match=r"^no such table$"):
        posted.thread.serve()
    with pytest.raises(SystemExit, match=r"^3$"):
        posted.thread.serve()
    assert posted.thread.is_busy
    posted.thread.serve()
    assert (posted.answers, posted.thread.is_busy) == (["commit 3"], False)
    assert posted.thread.close(PATIENCE_S)


def test_a_call_that_hangs_is_named_and_no_other_begins_after_the_end() -> None:
    posted = Posted()
    begun, gate = threading.Event(), threading.Event()
    assert posted.thread.under_way() is None

    def hang() -> None:
        begun.set()
        gate.wait(PATIENCE_S)

    posted.post("publishing snapshot 7", hang)
    posted.post("publishing snapshot 8")
    assert begun.wait(PATIENCE_S)
    posted.now_s += 12.5
    assert posted.thread.under_way() == ("publishing snapshot 7", 12.5)
    assert not posted.thread.close(0.0)
    gate.set()
    assert posted.thread.close(PATIENCE_S)
    assert posted.done == ["publishing snapshot 7"]
    assert posted.thread.under_way() is None


def test_a_thread_that_was_never_needed_ends() -> None:
    assert StoreThread(lambda: None).close(0.0)
