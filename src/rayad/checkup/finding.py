"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rayad.progress import presentable


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """Something will be slow, unsafe, or is not there but for some programs."""
    FAIL = "fail"
    """Jobs will not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``rayad doctor``."""

    level: Level
    what: str
    seen: str
    mend: str = ""
    """What to do; empty when all is well."""


def ok(what: str, seen: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, what, presentable(seen))


def warn(what: str, seen: str, mend: str) -> Finding:
    """It will do, with a disadvantage."""
    return Finding(Level.WARN, what, presentable(seen), mend)


def fail(what: str, seen: str, mend: str) -> Finding:
    """It will not do."""
    return Finding(Level.FAIL, what, presentable(seen), mend)
