"""How control calls reach an event loop: questions are queued, the loop answers them between two polls.

A vertex or progress actor runs its loop as one long call; control calls arrive in other threads (a second concurrency group). They never
touch the loop's state: they put a function here, wake the loop, and wait for the answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from rayad.progress import ProtocolError

WHILE_IT_LIVES_S = 30 * 86400.0
"""No bound of its own: it ends with the event loop, or with the process; whoever waits for the answer has the bound."""
ENDED = "the event loop has ended before what was waited for came true"


class NoAnswer(ProtocolError):
    """The loop has not answered a question in time."""


class Question:
    """Something that a loop is to answer."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.answered = threading.Event()
        self.answer: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Answer it."""
        try:
            self.answer = self.function()
        except Exception as error:
            self.error = error
        self.answered.set()

    def value(self) -> Any:
        """The answer, once it is there; raises the error that there was instead."""
        if self.error is not None:
            raise self.error
        return self.answer


class _Note(Question):
    """A call whose answer is not waited for."""

    def settle(self) -> None:
        self.function()


class Mailbox:
    """Questions to one loop. ``ask`` from any thread, ``serve`` from the loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: deque[Question] = deque()
        self._watchers: list[Question] = []
        self._given_up: set[Question] = set()
        self._wake: Callable[[], None] | None = None
        self._closed = False

    def open(self, wake: Callable[[], None]) -> None:
        """The loop exists; ``wake`` ends its wait, so that it serves the mailbox."""
        with self._lock:
            self._wake = wake

    def ask(self, function: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        """Run ``function`` in the loop's thread and give its answer."""
        question = self.put(function)
        if not question.answered.wait(timeout_s) and (self.withdraw(question) or not question.answered.wait(timeout_s)):
            raise NoAnswer(f"the event loop did not answer a control call within {timeout_s} s: it is busy in user code or was stopped")
        return question.value()

    def put(self, function: Callable[[], Any]) -> Question:
        """Let the loop call ``function``, without waiting; when it has ended, that is done at once."""
        question = Question(function)
        with self._lock:
            if self._closed:
                question.settle()
                return question
            self._questions.append(question)
            wake = self._wake
        if wake is not None:
            wake()
        return question

    def withdraw(self, question: Question) -> bool:
        """Take a question back that is still queued; False: it is answered, or being answered."""
        with self._lock:
            if question not in self._questions:
                return False
            self._questions.remove(question)
            return True

    def post(self, function: Callable[[], Any]) -> None:
        """Run ``function`` in the loop's thread in its next round, without waiting; an error in it is raised in the loop."""
        with self._lock:
            if not self._closed:
                self._questions.append(_Note(function))
            wake = self._wake
        if wake is not None:
            wake()

    def watch(self, predicate: Callable[[], Any], timeout_s: float) -> Any:
        """Wait until ``predicate``, which the loop evaluates after each change, is true, and give its value; False after ``timeout_s``."""
        watcher = self.put_watcher(predicate)
        if not watcher.answered.wait(timeout_s) and self.give_up(watcher):
            return False
        return watcher.value()

    def put_watcher(self, predicate: Callable[[], Any]) -> Question:
        """Let the loop look whether ``predicate`` is true, without waiting; when it has ended, it is looked at once more."""
        watcher = Question(predicate)
        with self._lock:
            if self._closed:
                watcher.settle()
                _look_at_last(watcher)
                return watcher
            self._watchers.append(watcher)
            wake = self._wake
        if wake is not None:
            wake()
        return watcher

    def give_up(self, watcher: Question) -> bool:
        """Nobody waits for that any more: the loop forgets it; False: it has come true."""
        with self._lock:
            self._given_up.add(watcher)
        return not watcher.answered.is_set() or watcher.error is not None

    def serve(self) -> None:
        """Answer what has been asked, and look whether what is waited for has come true. Cheap when there is nothing."""
        self.answer()
        self.look()

    def answer(self) -> None:
        """Answer what has been asked: before a turn of the loop, which then sends what follows."""
        while self._questions:
            with self._lock:
                question = self._questions.popleft() if self._questions else None
            if question is not None:
                question.settle()

    def look(self) -> None:
        """Look whether what is waited for has come true: after a turn."""
        if self._watchers:
            with self._lock:
                watchers, self._watchers = self._watchers, []
                given_up, self._given_up = self._given_up, set()
            still = []
            for watcher in watchers:
                if watcher in given_up:
                    continue
                try:
                    watcher.answer = watcher.function()
                except Exception as error:
                    watcher.error = error
                if watcher.answer or watcher.error is not None:
                    watcher.answered.set()
                else:
                    still.append(watcher)
            with self._lock:
                self._watchers.extend(still)

    def close(self) -> None:
        """The loop has ended: answer everything now; later questions run in the asking thread."""
        with self._lock:
            self._closed = True
        self.serve()
        with self._lock:
            watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            _look_at_last(watcher)
            watcher.answered.set()


def _look_at_last(watcher: Question) -> None:
    """The loop has ended: what has not come true will not."""
    if not watcher.answer and watcher.error is None:
        watcher.error = ProtocolError(ENDED)
