"""The calls of a job's store and sinks, one after the other, in a thread of their own: one that hangs keeps nobody from watching.

The coordinator's own thread hears replicas and heartbeats. What may take long, or for ever, it posts here: reading, publishing and
committing snapshots, deleting old ones, publishing results. The order of the posts is the order of the calls, so that a commit has ended
before the next snapshot is published. The answers come back to the coordinator's thread, which asks for them.

Owner: the supervisor, which closes it when the job is over. A call that hangs cannot be ended; it ends with the process.
"""

from __future__ import annotations

import queue
import threading
import time as clock
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

from rayad.actors.coordinator.surroundings import Event, Steps, in_thread

T = TypeVar("T")


@dataclass(slots=True)
class Returned(Generic[T]):
    """What has come of a call."""

    value: T | None = None
    error: BaseException | None = None

    def given(self) -> T:
        """What the call gave. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


Then = Callable[[Returned[Any]], None]
"""What follows on a call that has ended."""


@dataclass(slots=True)
class _Call:
    what: str
    function: Callable[[], Any]
    then: Then
    answer: Returned[Any] = field(default_factory=Returned)
    began_s: float = 0.0


class StoreThread:
    """Calls of one job.

    Args:
        wake: called in this thread when a call has ended, so that the owner's serves it.
        now_s: the clock.
        event, beside: what the owner waits for, and where the calls are made; see :class:`CoordinatorSurroundings`.

    >>> thread, seen = StoreThread(lambda: None), []
    >>> thread.post("adding", lambda: 1 + 1, lambda answer: seen.append(answer.given()))
    >>> thread.wait(60.0); thread.serve(); seen, thread.is_busy, thread.close(60.0)
    ([2], False, True)
    """

    def __init__(
        self,
        wake: Callable[[], None],
        now_s: Callable[[], float] = clock.monotonic,
        event: Callable[[], Event] = threading.Event,
        beside: Callable[[str, Callable[[], bool], Callable[[], object]], Steps] = in_thread,
    ) -> None:
        self._wake = wake
        self._now_s = now_s
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._ended: deque[_Call] = deque()
        self._has_ended = event()
        self._beside = beside
        self._unserved = 0
        self._current: _Call | None = None
        self._is_closed = False
        self._thread: Steps | None = None

    # -- the owner's thread ----------------------------------------------------------------------------
    def post(self, what: str, function: Callable[[], Any], then: Then) -> None:
        """Call ``function`` after all that was posted before. ``what``: for people, as in "publishing snapshot 7"."""
        if self._thread is None:
            self._thread = self._beside("store", self._perform, partial(self._calls.put, None))
        self._unserved += 1
        self._calls.put(_Call(what, function, then))

    def serve(self) -> None:
        """Do what follows on the calls that have ended, in their order. Raises what that raises; the others stay for the next time."""
        self._has_ended.clear()
        while self._ended:
            call = self._ended.popleft()
            self._unserved -= 1
            call.then(call.answer)

    @property
    def is_busy(self) -> bool:
        """Whether a call has been posted whose answer has not been served."""
        return self._unserved > 0

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to serve, not longer than this."""
        self._has_ended.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """No further call begins; wait for the one under way. False when it did not end in time."""
        self._is_closed = True
        return self._thread is None or self._thread.close(timeout_s)

    def forget(self) -> None:
        """Who posted is gone: calls that have not begun are void, and nothing follows on those that have ended."""
        while not self._calls.empty():
            self._calls.get_nowait()
            self._unserved -= 1
        self._unserved -= len(self._ended)
        self._ended.clear()

    @property
    def has_work(self) -> bool:
        """Whether a call waits to be made."""
        return not self._calls.empty()

    # -- any thread ------------------------------------------------------------------------------------
    def under_way(self) -> tuple[str, float] | None:
        """What is being done, and for how many seconds; None: nothing."""
        current = self._current
        return (current.what, self._now_s() - current.began_s) if current is not None else None

    # -- this thread -----------------------------------------------------------------------------------
    def _perform(self) -> bool:
        """The next call, which is waited for; False: there will be none, since it is closed."""
        call = self._calls.get()  # ends with close(), or with the process
        if call is None or self._is_closed:
            return False
        call.began_s = self._now_s()
        self._current = call
        try:
            call.answer.value = call.function()
        except BaseException as error:  # whatever the user's code raises is for the owner
            call.answer.error = error
        self._current = None
        self._ended.append(call)
        self._has_ended.set()
        self._wake()
        return True


__all__ = ["Returned", "StoreThread", "Then"]
