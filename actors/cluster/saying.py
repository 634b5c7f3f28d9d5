"""Says what a long start waits for and how long it took: starting Ray, Spark or a job's processes takes seconds.

A terminal shows a spinner that leaves nothing behind, a notebook and a terminal with a live display of its own get plain lines on stderr.
Anywhere else nobody looks on: the lines are log records of level INFO, which Python drops unless it is told otherwise.
:mod:`rayad.actors.cluster.start_lines` decides what is said and when.
"""

from __future__ import annotations

import logging
import sys
import threading
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from rayad.actors.cluster.start_lines import FIRST_S, StartLines
from rayad.actors.process.threads import OwnedThread
from rayad.actors.status.terminal import as_written, console, echo
from rayad.progress import presentable

_log = logging.getLogger(__name__)
LOOK_S = 1.0
"""How often it is asked what is waited for, after the first time."""


@contextmanager
def saying(what: str, told: Callable[[], str | None] = lambda: "") -> Iterator[None]:
    """While the block runs say what it waits for, and at its end how long that was.

    ``told`` gives the details, "" where there are none, and None when it is over though the block goes on. It is called in a thread of
    its own. A block that raises says nothing more: its error does.
    """
    if not (_is_watched() or _log.isEnabledFor(logging.INFO)):
        yield
        return
    lines, began_s, over, failed = StartLines(what, FIRST_S), clock.monotonic(), threading.Event(), threading.Event()
    thread = OwnedThread("saying", partial(_say, lines, told, began_s, over, failed), stop=over.set).start()
    try:
        yield
    except BaseException:
        failed.set()
        raise
    finally:
        thread.stop()
        thread.join(LOOK_S)  # a spinner is gone before others print; one that is asking is not waited for


def _say(lines: StartLines, told: Callable[[], str | None], began_s: float, over: threading.Event, failed: threading.Event) -> None:
    if over.wait(FIRST_S):
        return
    with _spinner() as spinner:
        while not over.is_set():
            try:
                text = told()
            except Exception:  # it is over, one way or another: who waits hears of it
                _log.debug("what is waited for could not be told", exc_info=True)
                return
            if text is None:
                break
            if not over.is_set():
                _show(lines, text, clock.monotonic() - began_s, spinner)
            over.wait(LOOK_S)
    last = None if failed.is_set() or spinner is not None else lines.over(clock.monotonic() - began_s)
    if last is not None:
        _say_line(last)


def _is_watched() -> bool:
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _spinner() -> Any:
    """Rich's, on a terminal; a live display that is there already shows lines above itself, and two would overwrite each other."""
    if sys.stderr is None or not sys.stderr.isatty() or hasattr(sys.stderr, "rich_proxied_file"):
        return nullcontext()
    return console(stderr=True, highlight=False).status("rayad")


def _show(lines: StartLines, text: str, at_s: float, spinner: Any) -> None:
    if spinner is not None:
        spinner.update(as_written(presentable(f"rayad: {lines.now(text, at_s)}")))
        return
    line = lines.due(text, at_s)
    if line is not None:
        _say_line(line)


def _say_line(line: str) -> None:
    if _is_watched():
        echo(f"rayad: {line}", err=True)
    else:
        _log.info("%s", presentable(line))


__all__ = ["saying"]
