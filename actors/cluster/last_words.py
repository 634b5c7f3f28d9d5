"""How a replica's process ends itself, kept in Ray's control store before it does, for the coordinator.

Ray tells the exit status of ``sys.exit()``, but not where it was called; of ``os._exit()`` only that a connection has ended, as of a
process that a signal has ended. So ``os._exit`` of the process says first what it was called with and by which function. What ends a
process from outside says nothing here, nor does native code that does.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from rayad.actors.process.activity import users_function
from rayad.actors.process.threads import OwnedThread

_NAMESPACE = b"rayad"
_KEPT_S = 2.0
"""How long a process that ends, or the coordinator, waits for the store: nothing depends on it."""


def tell_exits(actor_id: str) -> None:
    """From here on ``os._exit`` of this process, not of its forks, leaves last words."""
    functions, mine = vars(os), os.getpid()
    end: Callable[[int], NoReturn] = functions["_exit"]

    def exit_and_tell(status: int) -> NoReturn:
        if os.getpid() == mine:
            here = inspect.currentframe()
            leave(actor_id, told(status, "os._exit()", here.f_back if here is not None else None))
        end(status)

    functions["_exit"] = exit_and_tell


def told(status: Any, how: str, frame: FrameType | None) -> str:
    """What is known of an exit.

    >>> told(3, "os._exit()", None)
    'exit status 3 by os._exit()'
    """
    inside = users_function(frame)
    status = 0 if status is None else status if isinstance(status, int) else 1  # as Python does
    return f"exit status {status} by {how}{f' in {inside}' if inside else ''}"


def told_of(error: SystemExit) -> str:
    """What is known of a ``sys.exit()``."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return told(error.code, "sys.exit()", at.tb_frame if at is not None else None)


def leave(actor_id: str, words: str) -> None:
    """Keep the last words of an actor."""
    _soon(partial(_internal_kv_put, _key(actor_id), words.encode(), overwrite=True, namespace=_NAMESPACE))


def take(actor_id: str | None) -> str:
    """The last words of an actor that has died, which are forgotten; "" where there are none."""
    if not actor_id:
        return ""
    found = _soon(partial(_internal_kv_get, _key(actor_id), namespace=_NAMESPACE))
    if not found:
        return ""
    _soon(partial(_internal_kv_del, _key(actor_id), namespace=_NAMESPACE))
    return bytes(found).decode()


def _key(actor_id: str) -> bytes:
    return f"last words of {actor_id}".encode()


def _soon(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it fails, or takes too long."""
    given: list[Any] = []

    def make() -> None:
        with suppress(Exception):
            given.append(call())

    OwnedThread("last-words", make).start().join(_KEPT_S)  # one that hangs ends with the process, which is about to end
    return given[0] if given else None


__all__ = ["leave", "take", "tell_exits", "told", "told_of"]
