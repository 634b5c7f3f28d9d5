"""How an actor's work failed, as a value."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from rayad.actors.replica.user_errors import sign_of
from rayad.progress import RayadError, presentable, say
from rayad.snapshots.errors import Damaged


@dataclass(frozen=True, slots=True)
class Failure:
    """How an actor's work failed: a value, so that it survives pickling whatever the exception was."""

    who: str
    message: str
    details: str
    error: bytes | None
    """The pickled RayadError, when it is one."""
    is_lost_peer: bool
    sign: str = ""
    """Equal for failures that are the same error and would come back; see ``user_errors.sign_of``."""
    has_ended: bool = False
    """Whether its process ended, and said nothing."""
    working: str = ""
    """The step that ran in it then, where that is known."""
    is_raised: bool = False
    """Whether code raised it: no death, and no connection that was lost."""
    damaged: str = ""
    """The file of a snapshot that is missing or not what was written, where it is that."""

    @property
    def rank(self) -> tuple[bool, bool]:
        """Of failures that were reported together the one with the lowest rank is the cause: a lost peer is the consequence of something
        else, and an actor's own error explains more than one of Ray's."""
        return self.is_lost_peer, self.error is None and "died" not in self.message

    def rebuild(self) -> BaseException | None:
        """The original RayadError."""
        return pickle.loads(self.error) if self.error is not None else None


def failure_of(who: str, error: BaseException) -> Failure:
    """Describe an exception as a value."""
    pickled = None
    if isinstance(error, RayadError):
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = None
    details = presentable("".join(traceback.format_exception(error)))
    is_lost_peer = isinstance(error, ConnectionError)
    told = f"{type(error).__name__}: {say(error)}"
    return Failure(who, told, details, pickled, is_lost_peer, sign_of(error), is_raised=not is_lost_peer, damaged=damaged_by(error))


def damaged_by(error: BaseException) -> str:
    """The file of a snapshot that an error is about, where that is missing or not what was written; else ""."""
    return error.path if isinstance(error, Damaged) else ""
