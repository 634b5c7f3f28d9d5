"""Calling a user's function for many records in loops of C, where a StopIteration would look like the end of the input.

``list(map(f, rows))`` ends early and silently where ``f`` raises StopIteration (a bare ``next()`` does). Here it is an error
like any other: the loop must have asked for a record behind the last one. That check costs nothing per record.

Also: functions that cannot be called for their results at all, because they are coroutines or take other arguments.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

from rayad.progress import DataflowError, show


class WrongCall(DataflowError, TypeError):
    """A public name was called with arguments that it does not take; a TypeError, as Python's own is."""


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
                "and not a result; stream.map_async awaits it, for many records at once; elsewhere give a plain function, with "
                "asyncio.run(...) in it where it must await"
            )


def checked_function(value: Any, what: str, *arguments: str, rule: str = "it takes a function") -> Callable[..., Any]:
    """``value``, if it is a function that can be called with ``arguments`` and gives its result; else DataflowError that begins with
    ``what``."""
    if not callable(value):
        raise DataflowError(f"{what} was given {show(value, 60)}: {rule}")
    require_plain(value, what)
    require_arguments(value, what, arguments)
    return value  # type: ignore[no-any-return]


def require_arguments(function: Any, what: str, arguments: Sequence[str]) -> None:
    """Raise DataflowError if ``function`` cannot be called with so many arguments, where it shows what it takes (some in C does not)."""
    name = getattr(function, "__name__", type(function).__name__)
    told = _misfit(function, name, arguments)
    if told:
        count = f"{len(arguments)} argument{'s' * (len(arguments) != 1)}" if arguments else "no argument"
        raise DataflowError(f"{what} was given {told} and calls it as {name}({', '.join(arguments)}): give a function that takes {count}")


def _misfit(function: Any, name: str, arguments: Sequence[Any]) -> str:
    """How a function that cannot be called with these arguments is to be called; "" if it can be."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a wrapper may give arguments of its own
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"{name}({told_parameters(signature)})"
    return ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``: did you mean 'name'?``, or nothing where nothing is like it.

    >>> did_you_mean("nam", ["name", "value"])
    ": did you mean 'name'?"
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def told_parameters(signature: inspect.Signature) -> str:
    """The parameters of a signature, without annotations.

    >>> told_parameters(inspect.signature(lambda a, *, b=1, **c: None))
    'a, *, b=1, **c'
    """
    kinds = inspect.Parameter
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is kinds.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" if parameter.kind is kinds.VAR_POSITIONAL else "**" if parameter.kind is kinds.VAR_KEYWORD else ""
        default = "" if parameter.default is kinds.empty else f"={show(parameter.default, 30)}"
        parts.append(f"{stars}{parameter.name}{default}")
    return ", ".join(parts)


def require_methods(value: Any, base: type, names: Sequence[str]) -> None:
    """Raise DataflowError if one of these methods of an instance or subclass of ``base`` gives coroutines, or takes other arguments than
    that of ``base``."""
    owner = value.__name__ if isinstance(value, type) else type(value).__name__
    for name in names:
        method, declared = getattr(value, name, None), inspect.getattr_static(base, name)
        static = inspect.getattr_static(value, name, None)
        if method is None or static is declared:
            continue
        require_plain(method, f"{owner}.{name}: the job")
        is_unbound = isinstance(value, type) and isinstance(static, FunctionType)
        arguments = list(inspect.signature(declared).parameters)[1:]
        told = _misfit(method, name, ["self"] * is_unbound + arguments)
        if told:
            raise DataflowError(f"{owner} has {told}, and the job calls it as {name}({', '.join(arguments)}): give it these arguments")


def require_result(result: Any, what: str) -> None:
    """Raise DataflowError if what a function gave is a coroutine: for callables that do not show it before."""
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise DataflowError(
            f"the function given to {what} returned a {type(result).__name__}, which nobody awaits; stream.map_async awaits it, for many "
            "records at once; elsewhere give a plain function, with asyncio.run(...) in it where it must await"
        )


__all__ = [
    "Whole",
    "WrongCall",
    "checked_function",
    "did_you_mean",
    "mapped",
    "require_arguments",
    "require_methods",
    "require_plain",
    "require_result",
    "told_parameters",
]
