"""Says what a long start waits for, to a person who looks on: starting Ray, Spark or a job's processes takes seconds.

Lines go to stderr, and only where that is a terminal or a notebook: logs and scripts get none.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)
AFTER_S = (2.0, 8.0, 20.0)
"""What is over before the first of these says nothing; then a line after each, the last again and again."""


@contextmanager
def saying(told: Callable[[], str | None]) -> Iterator[None]:
    """While the block runs say what ``told`` gives, now and then; None: there is no more to say. It is called in a thread of its own."""
    if not _is_watched():
        yield
        return
    over = threading.Event()
    threading.Thread(target=_say, args=(told, over), name="rayad-saying", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _is_watched() -> bool:
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _say(told: Callable[[], str | None], over: threading.Event) -> None:
    for pause_s in itertools.chain(AFTER_S, itertools.repeat(AFTER_S[-1])):
        if over.wait(pause_s):
            return
        try:
            text = told()
        except Exception:  # it is over, one way or another: who waits hears of it
            _log.debug("what is waited for could not be told", exc_info=True)
            return
        if text is None or over.is_set():
            return
        sys.stderr.write(f"rayad: {text}\n")
        sys.stderr.flush()


__all__ = ["saying"]
