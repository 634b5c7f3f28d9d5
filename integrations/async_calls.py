"""``Stream.map_async``: calls of something outside, side by side on an event loop of the replica.

The loop runs in a thread of its own: the replica's thread may be one in which a loop runs already (a notebook's), and what the user's
class holds, such as a session, lives on between batches. A batch is complete when all its calls are, so progress, snapshots and order
need nothing new; nothing is under way when a snapshot is taken.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import time as clock
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.operators.map_batches import is_built
from rayad.dataflow.operators.stateless import Element, Failures, PerRecord
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.calling import checked_function, require_arguments
from rayad.progress import DataflowError, arguments, show

PAUSE_S = 0.1
PAUSE_MOST_S = 5.0
CLOSE_S = 5.0
"""How long the user's ``close`` may take."""
LOOK_S = 0.5
"""How often a replica that waits for answers looks whether its event loop is still there."""


RetryOn = type[Exception] | tuple[type[Exception], ...]


class AsyncCalls(PerRecord):
    """The step behind :meth:`rayad.dataflow.streams.stream.Stream.map_async`. Raises DataflowError for impossible arguments."""

    base = "map_async"

    def __init__(
        self,
        function: Any,
        *,
        concurrency: int = 32,
        timeout_s: float = 30.0,
        retries: int = 0,
        retry_on: RetryOn = Exception,
        cache: int = 0,
        cache_s: float | None = None,
        cache_by: Callable[[Any], Any] | None = None,
        into: str | None = None,
        combine: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.function = _checked(function)
        self.concurrency = arguments.whole(concurrency, "map_async: concurrency, a number of calls,", least=1)
        self.timeout_s = arguments.number(timeout_s, "map_async: timeout_s")
        self.retries = arguments.whole(retries, "map_async: retries", least=0)
        kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise DataflowError(f"map_async: retry_on is {show(retry_on, 60)}: give a class of exceptions, or a tuple of such")
        self.retry_on = kinds
        self._room = arguments.whole(cache, "map_async: cache, a number of answers,", least=0)
        self._kept_s = None if cache_s is None else arguments.number(cache_s, "map_async: cache_s")
        if not self._room and (cache_s is not None or cache_by is not None):
            raise DataflowError("map_async: cache_s and cache_by are for a cache: say how many answers it keeps, such as cache=10_000")
        self._cache_by = None if cache_by is None else checked_function(cache_by, "map_async: cache_by", "record")
        if into is not None and combine is not None:
            raise DataflowError("map_async: into and combine both say what becomes of an answer: give one of them")
        if not (into is None or (isinstance(into, str) and into)):
            raise DataflowError(f"map_async: into is {show(into, 60)}: give the name of the field that the answer is put into")
        if cache_by is not None and into is None and combine is None:
            raise DataflowError(
                "map_async: with cache_by records that differ share an answer, so the function is not to give the record back with it: let "
                "it give the answer alone, and say what becomes of both: into='country' puts the answer into that field of each record, "
                "combine=lambda record, answer: ... gives the result, which may be the answer alone"
            )
        self._into = into
        self._combine = None if combine is None else checked_function(combine, "map_async: combine", "record", "answer")
        self._answers: Answers | None = None
        self._loop: _Loop | None = None
        self._culprit: Any = None

    def for_replica(self) -> Element:
        made = copy.copy(self)
        made.open()
        return made

    def open(self) -> None:
        """Start the event loop, with an empty cache."""
        self._loop = _Loop(self.function)
        self._answers = Answers(self._room, self._kept_s) if self._room else None

    def close(self) -> None:
        if self._loop is not None:
            self._loop.end()

    def call(self) -> Callable[[Any], Any]:
        function: Callable[[Any], Any] = self.function
        return function

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        return results

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        results, failed = self.attempt(rows)
        if failed:
            at, error = failed[0]
            self._culprit = rows[at]
            raise error
        return results

    def culprit(self, batch: Any) -> Any:
        return self._culprit

    def attempt(self, rows: list[Any]) -> tuple[list[Any], Failures]:
        assert self._loop is not None, "it runs in a replica"
        found = self._loop.run(self._all(self._loop.function, rows))
        if self._into is not None or self._combine is not None:
            found = [answer if answer[1] else self._combined(row, answer[0]) for row, answer in zip(rows, found, strict=True)]
        failed = [(at, one) for at, (one, is_error) in enumerate(found) if is_error]
        for _, error in failed:
            if isinstance(error, (DataflowError, MemoryError)) or not isinstance(error, Exception):
                raise error
        return [one for one, is_error in found if not is_error], failed

    async def _all(self, function: Callable[[Any], Awaitable[Any]], rows: list[Any]) -> list[tuple[Any, bool]]:
        room = asyncio.Semaphore(self.concurrency)

        async def one(row: Any) -> tuple[Any, bool]:
            async with room:
                return await self._until_done(function, row)

        if self._answers is None:
            return list(await asyncio.gather(*map(one, rows)))
        return await self._with_cache(self._answers, one, rows)

    async def _with_cache(
        self, answers: Answers, ask: Callable[[Any], Awaitable[tuple[Any, bool]]], rows: list[Any]
    ) -> list[tuple[Any, bool]]:
        """Ask once for each key that is not known. A failure is not kept; all records of the batch that have its key fail with it."""
        keys = list(map(self._key, rows))
        first: dict[Any, Any] = {}
        found: dict[Any, tuple[Any, bool]] = {}
        for key, row in zip(keys, rows, strict=True):
            known = answers.get(key, clock.monotonic())
            if known is not None:
                found[key] = known[0], False
            else:
                first.setdefault(key, row)
        asked = [key for key in first if key not in found]
        for key, answer in zip(asked, await asyncio.gather(*(ask(first[key]) for key in asked)), strict=True):
            found[key] = answer
            if not answer[1]:
                answers.put(key, answer[0], clock.monotonic())
        return [found[key] for key in keys]

    def _combined(self, row: Any, answer: Any) -> tuple[Any, bool]:
        """What a record and its answer make, or the error and True."""
        if self._combine is not None:
            try:
                return self._combine(row, answer), False
            except Exception as error:
                return error, True
        if not isinstance(row, Mapping):
            raise DataflowError(
                f"map_async(into={self._into!r}): the record {show(row, 60)} is a {type(row).__name__}, which has no fields: give "
                "combine=, a function of record and answer"
            )
        return {**row, self._into: answer}, False

    def _key(self, row: Any) -> Any:
        key = row if self._cache_by is None else self._cache_by(row)
        try:
            hash(key)
        except TypeError as error:
            what = "the record" if self._cache_by is None else "what cache_by gave"
            raise DataflowError(
                f"map_async(cache=...): {what} is {show(key, 60)}, a {type(key).__name__}, which cannot be a key of a cache: give "
                "cache_by=, a function from a record to what the answer depends on, and into= or combine="
            ) from error
        return key

    async def _until_done(self, function: Callable[[Any], Awaitable[Any]], row: Any) -> tuple[Any, bool]:
        """The result, or the last error and True."""
        pause_s = PAUSE_S
        for left in range(self.retries, -1, -1):
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await function(row), False
            except TimeoutError as error:
                failure: BaseException = error if str(error) else TimeoutError(f"no answer within timeout_s={self.timeout_s:g}")
            except asyncio.CancelledError as error:  # by the function itself: nothing of ours cancels a call but the time-out
                failure = RuntimeError(f"the call was cancelled by what it calls: CancelledError({error})")
            except BaseException as error:  # SystemExit would end the event loop, for which the replica waits
                failure = error
            if not left or not isinstance(failure, self.retry_on) or isinstance(failure, (DataflowError, MemoryError)):
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MOST_S)
        return failure, True


class Answers:
    """The answers used last, each for so many seconds.

    >>> answers = Answers(2, 10.0)
    >>> for key in "abc":
    ...     answers.put(key, key.upper(), now_s=0.0)
    >>> answers.get("a", 1.0), answers.get("b", 1.0), answers.get("c", 10.0)
    (None, ('B',), None)
    """

    def __init__(self, room: int, kept_s: float | None) -> None:
        self._room, self._kept_s = room, kept_s
        self._kept: OrderedDict[Any, tuple[Any, float]] = OrderedDict()

    def get(self, key: Any, now_s: float) -> tuple[Any] | None:
        """The answer, in a tuple; None: it is not known any more."""
        found = self._kept.get(key)
        if found is None or (self._kept_s is not None and now_s - found[1] >= self._kept_s):
            return None
        self._kept.move_to_end(key)
        return (found[0],)

    def put(self, key: Any, answer: Any, now_s: float) -> None:
        """Know this answer; the one that was not used for the longest time is forgotten where there is no room."""
        self._kept[key] = answer, now_s
        self._kept.move_to_end(key)
        if len(self._kept) > self._room:
            self._kept.popitem(last=False)


class _Loop:
    """An event loop in a thread, and what is called there. Both end with :attr:`end`, if that is forgotten with this object."""

    def __init__(self, function: Any) -> None:
        loop = asyncio.new_event_loop()
        self._ended_by: list[BaseException] = []
        stop = partial(loop.call_soon_threadsafe, loop.stop)
        thread = OwnedThread("map-async", partial(_serve, loop, self._ended_by), stop=stop).start()
        self._loop = loop
        self._thread = thread
        self.function: Any = function
        close = None
        if is_built(function):
            self.function = made = self.run(_made(function))
            close = getattr(made, "close", None)
        self.end = weakref.finalize(self, _end, loop, thread, close)

    def run(self, work: Any) -> Any:
        """The result of a coroutine of ours; each wait in it has a bound. Raises DataflowError when the event loop ends meanwhile."""
        asked = asyncio.run_coroutine_threadsafe(_kept(work), self._loop)
        while True:  # ends with the calls: each has timeout_s
            try:
                result, error = asked.result(LOOK_S)
            except TimeoutError:  # not of the work, whose errors are values
                if self._thread.is_alive or asked.done():
                    continue
                result = error = None
            if self._ended_by or not self._thread.is_alive:
                why = show(self._ended_by[0], 80) if self._ended_by else "it was stopped"
                raise DataflowError(
                    f"map_async: the event loop in which the function is called has ended: {why}; a task that the function has begun may "
                    "not exit, nor stop the loop"
                )
            if error is not None:
                raise error
            return result


def _serve(loop: asyncio.AbstractEventLoop, ended_by: list[BaseException]) -> None:
    try:
        loop.run_forever()
    except BaseException as error:  # of a task of the user's: SystemExit or KeyboardInterrupt
        ended_by.append(error)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            with suppress(BaseException):
                loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_S))


async def _kept(work: Any) -> tuple[Any, BaseException | None]:
    """The result, or what was raised: SystemExit, too, which would end the event loop."""
    try:
        return await work, None
    except BaseException as error:
        return None, error


async def _made(cls: Any) -> Any:
    return cls()


def _end(loop: asyncio.AbstractEventLoop, thread: OwnedThread, close: Any) -> None:
    with suppress(Exception):
        if close is not None and inspect.iscoroutinefunction(close):
            asyncio.run_coroutine_threadsafe(close(), loop).result(CLOSE_S)
    if thread.close(CLOSE_S):
        loop.close()


def _checked(function: Any) -> Any:
    what = "map_async"
    if is_built(function):
        call = inspect.getattr_static(function, "__call__")
        require_arguments(function, f"{what}, to make one in each replica,", ())
        require_arguments(call, f"{what}, for each record,", ("self", "record"))
    elif callable(function):
        call = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__")
        require_arguments(function, what, ("record",))
    else:
        raise DataflowError(f"{what} was given {show(function, 60)}: it takes an async function")
    seen = call
    while hasattr(seen, "func") and hasattr(seen, "keywords"):  # functools.partial
        seen = seen.func
    partial = getattr(function, "func", None)
    if not (inspect.iscoroutinefunction(seen) or inspect.iscoroutinefunction(partial)):
        name = getattr(function, "__name__", show(function, 60))
        raise DataflowError(f"{what} was given {name!r}, which is no async function: write async def, or use map")
    return function


__all__ = ["AsyncCalls"]
