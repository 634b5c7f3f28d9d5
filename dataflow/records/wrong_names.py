"""Advice for names that are not there: what was probably meant, or what other libraries call so.

A public class, or a module, has a table of the names that users of pandas, Spark, Flink, Polars, Ray Data and Bytewax type, each with the
call that does it here. A name in no table is compared with those that are there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rayad.dataflow.records.users_line import users_line
from rayad.progress import DataflowError

ALIKE = 0.7
"""How like a name must be to be proposed; by less 'sample' is like 'name'."""


class NoSuchMethod(DataflowError, AttributeError):
    """An object or module was asked for a name that it does not have. ``hasattr`` gives False, as for every attribute that is not there."""


def no_such_name(what: str, name: str, known: Iterable[str], instead: Mapping[str, str]) -> NoSuchMethod:
    """The error for ``name`` of ``what``, "a Job" say, which has the public names ``known``."""
    return NoSuchMethod(f"{name} at {users_line()}: {what} has no {name!r}{advice(name, known, instead)}")


def advice(name: str, known: Iterable[str], instead: Mapping[str, str]) -> str:
    """What to use in place of a name, as the end of a sentence.

    >>> advice("where", ["filter", "map"], {"where": "filter(...)"}), advice("filtre", ["filter", "map"], {})
    ('; use filter(...)', "; did you mean 'filter'?")
    """
    if name in instead:
        return f"; use {instead[name]}"
    known = sorted(one for one in known if not one.startswith("_"))
    near = difflib.get_close_matches(name, known, n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"


class Advising:
    """An object that says what to write in place of a name that it does not have."""

    _not_here: ClassVar[Mapping[str, str]] = {}
    """Names of other libraries, and what does it here."""
    _called: ClassVar[str] = ""
    """What the object is called in messages, with its article."""

    if not TYPE_CHECKING:  # a type checker should go on knowing which attributes there are

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            if name.startswith("_"):  # Python itself looks for such names
                raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise no_such_name(cls._called or f"a {cls.__name__}", name, dir(self), cls._not_here)


def no_such_name_in(module: str, name: str, known: Iterable[str], instead: Mapping[str, str]) -> AttributeError:
    """The error for a name that a module does not have: a bare one for names that Python itself looks for.

    >>> str(no_such_name_in("rayad.windows", "tumblin", ["tumbling"], {})).partition(": ")[2]
    "module 'rayad.windows' has no attribute 'tumblin'; did you mean 'tumbling'?"
    """
    told = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(told, name=name)
    return NoSuchMethod(f"{name} at {users_line()}: {told}{advice(name, known, instead)}")


def by_instead(said: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """A table by name, from one that has the names by what does it here."""
    return {name: instead for instead, names in said.items() for name in names}


__all__ = ["Advising", "NoSuchMethod", "advice", "by_instead", "no_such_name", "no_such_name_in"]
