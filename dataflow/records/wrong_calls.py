"""Errors for calls of public names with wrong arguments: which one, what was probably meant, and the right signature.

Python's own TypeError for ``count(nam="c")`` says neither, and may come from an inner call. A decorator on the
public classes and functions turns exactly those errors into a `WrongCall`: a TypeError whose traceback ends in the wrapper was
raised by the call itself, before anything of the function ran.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from rayad.dataflow.records.calling import WrongCall, did_you_mean, told_parameters
from rayad.dataflow.records.users_line import users_line
from rayad.progress import RayadError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def explained(function: F, name: str = "") -> F:
    """``function``, whose wrong calls raise an error with its signature. ``name``: its public name."""
    called = name or getattr(function, "__name__", "")

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, RayadError) or error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # raised inside the function
            raise wrong_call(function, called, args, kwargs, str(error)) from None

    return call  # type: ignore[return-value]


def explains_calls(cls: C) -> C:
    """A class whose public methods are :func:`explained`; of a dataclass its making, too."""
    for name, value in list(vars(cls).items()):
        is_made = name == "__init__" and hasattr(cls, "__dataclass_fields__")
        if isinstance(value, FunctionType) and (is_made or not name.startswith("_")) and not hasattr(value, "__wrapped__"):
            setattr(cls, name, explained(value, cls.__name__ if is_made else name))
    return cls


def wrong_call(function: Any, called: str, args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> WrongCall:
    """The error for a call whose arguments could not be bound; ``said``: what Python says of it."""
    signature = inspect.signature(function)
    known = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    names = [parameter.name for parameter in known if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    unknown = [name for name in kwargs if name not in names]
    positional = [parameter for parameter in known if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    given = len(args) - ("self" in signature.parameters)
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
        told = f"there is no argument {unknown[0]!r}{did_you_mean(unknown[0], names)}"
    elif given > len(positional):
        told = f"{given} arguments were given without a name, and it takes {len(positional) or 'none'} so"
    else:
        told = said.partition("() ")[2] or said
    spelled = told_parameters(signature.replace(parameters=known))
    return WrongCall(f"{called} at {users_line()}: {told}; it is called as {called}({spelled})")


__all__ = ["explained", "explains_calls"]
