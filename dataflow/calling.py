"""Calling a user's function for many records in loops of C, where a StopIteration would be taken for the end of the input.

``list(map(f, rows))`` ends early, and without a word, where ``f`` raises StopIteration (a bare ``next()`` does). In here it is an error
like any other. What decides is whether the loop came to ask for a record behind the last one; that costs nothing for each record.

Also: functions that cannot be called for their results at all, because they are coroutines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from rayad.progress import DataflowError, show


class Whole:
    """Records as an iterable of loops in C, that knows afterwards whether all were taken.

    >>> whole = Whole([1, 2, 3])
    >>> list(map(lambda x: next(iter([])) if x == 3 else x, whole)), whole.is_taken
    ([1, 2], False)
    """

    __slots__ = ("_rows", "is_taken")

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows
        self.is_taken = False

    def __iter__(self) -> Iterator[Any]:
        return chain(self._rows, _End(self))

    def check(self) -> None:
        """Raise StopIteration if the loop ended before its input did."""
        if not self.is_taken:
            raise StopIteration("raised by a function that was called for a record; next(iterator, default) raises none")


class _End:
    """An empty iterable that says when it is reached."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Whole) -> None:
        self._whole = whole

    def __iter__(self) -> Iterator[Any]:
        self._whole.is_taken = True
        return iter(())


def mapped(function: Callable[[Any], Any], rows: list[Any]) -> list[Any]:
    """``function`` of each of ``rows``; raises what it raises, StopIteration included."""
    out = list(map(function, rows))
    if len(out) < len(rows):
        function(rows[len(out)])  # once more, for the line in the traceback
        raise StopIteration(f"raised for {show(rows[len(out)])}, but not when it was called again")
    return out


def require_plain(function: Any, what: str) -> None:
    """Raise DataflowError if ``function`` can be seen to give a coroutine and not its result."""
    seen = function
    while hasattr(seen, "func") and hasattr(seen, "keywords"):  # functools.partial
        seen = seen.func
    bodies = [seen, inspect.unwrap(seen) if callable(seen) else seen]
    if not isinstance(seen, type):
        bodies.append(vars(type(seen)).get("__call__"))
    else:
        bodies.append(vars(seen).get("__call__"))  # built in each replica, and called
    for body in bodies:
        if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
            raise DataflowError(
                f"{what} was given the async function {getattr(function, '__name__', show(function, 60))!r}: calling it gives a coroutine "
                "and not a result; give a plain function, with asyncio.run(...) in it where it must await"
            )


def require_plain_methods(value: Any, names: Sequence[str]) -> None:
    """:func:`require_plain` of these methods of an instance or a class, as far as it has them."""
    for name in names:
        method = getattr(value, name, None)
        if method is not None:
            require_plain(method, f"{value.__name__ if isinstance(value, type) else type(value).__name__}.{name}: the job")


def require_result(result: Any, what: str) -> None:
    """Raise DataflowError if what a function gave is a coroutine: for callables that do not show it before."""
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise DataflowError(
            f"the function given to {what} returned a {type(result).__name__}, which nobody awaits; give a plain function, with "
            "asyncio.run(...) in it where it must await"
        )


__all__ = ["Whole", "mapped", "require_plain", "require_plain_methods", "require_result"]
