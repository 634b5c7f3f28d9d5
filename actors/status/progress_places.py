"""Where the line of progress is shown: on a terminal, in a notebook, or in a log. All of it goes to stderr, or to the notebook.

A terminal has the line once, renewed in place. What the program itself prints meanwhile goes above it, unchanged: while the line is shown,
``sys.stdout`` and ``sys.stderr`` are wrapped so that a write removes the line first. (rich's Live prints such text itself, and so breaks
long lines and moves a redirected stdout to the terminal.) Where another live display is on the terminal already, or ``TERM`` is dumb, the
line goes to the log instead. What takes less than :data:`KEPT_S` leaves nothing behind there; a notebook, from which an output cannot be
removed, keeps the last line.
"""

from __future__ import annotations

import os
import sys
import threading
import time as clock
from abc import ABC, abstractmethod
from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rayad.actors.status.progress_line import Line
from rayad.actors.status.terminal import console, echo
from rayad.progress import presentable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

KEPT_S = 10.0
"""A wait of at least so long leaves a line on a terminal and in a log."""
REDRAW_S = 0.1
"""After the program has printed something the line is drawn again at once, but not more often than this."""
BAR_WIDTH = 20
MARGIN = 4
"""Columns that the line leaves free, so that the ``^C`` of a terminal does not begin another row, which would not be erased."""
_LIVE = threading.Lock()
"""Held by the one line that is on the terminal."""


class Place(ABC):
    """Where a line is shown."""

    first_s: float
    """Nothing is shown before so many seconds."""

    @abstractmethod
    def next_s(self, at_s: float) -> float:
        """When the line that follows one shown at ``at_s`` is due, both since the wait began."""

    @abstractmethod
    def show(self, line: Line) -> None:
        """Show it, in place of the one before where that is possible."""

    @abstractmethod
    def end(self, summary: str | None, at_s: float) -> None:
        """The last call. ``summary``: what there is to say of the whole; None: nothing, as an error follows that says it."""


class OnTerminal(Place):
    """On a terminal; to be made while :data:`_LIVE` is held, which :meth:`end` releases.

    Args:
        stream: the terminal.
    """

    first_s = 0.5

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._line: Line | None = None
        self._is_shown = False
        self._drawn_s = 0.0
        self._is_over = False
        self._wrapped: list[tuple[str, Beside]] = []
        self._at_start = True
        """Whether the cursor is at the start of a line; else the program has printed part of one."""

    @cached_property
    def _console(self) -> Console:
        """Made when something is shown first: a short job need not pay for it."""
        return console(file=self._stream, highlight=False, force_terminal=True)

    def next_s(self, at_s: float) -> float:
        """Five times a second, if the look is as quick."""
        return at_s + 0.2

    def show(self, line: Line) -> None:
        """Renew the line, unless the program has printed part of a line, or it has ended."""
        with self._lock:
            if self._is_over:
                return
            self._line = line
            if self._at_start:
                if not self._wrapped:
                    self._wrap()
                self._draw(line)

    def _draw(self, line: Line) -> None:
        shown = self._as_text(line)
        shown.truncate(self._console.width - MARGIN, overflow="ellipsis")
        with self._console:  # one write
            self._erase()
            self._console.print(shown, end="", no_wrap=True, crop=True)
        self._is_shown, self._drawn_s = True, clock.monotonic()

    def beside(self, stream: Any, text: str) -> Any:
        """The program prints this to the terminal."""
        with self._lock:
            self.clear()
            written = stream.write(text)
            if text:
                self._at_start = text.endswith("\n")
            if self._at_start and self._line is not None and clock.monotonic() - self._drawn_s >= REDRAW_S:
                stream.flush()
                self._draw(self._line)
            return written

    def clear(self) -> None:
        """Remove the line, if it is there."""
        with self._lock:
            if self._is_shown:
                self._is_shown = False
                self._erase()

    def end(self, summary: str | None, at_s: float) -> None:
        """Remove the line; after a long wait the summary takes its place."""
        with self._lock:
            self._is_over, self._line = True, None
            for name, wrapper in self._wrapped:
                if getattr(sys, name) is wrapper:
                    setattr(sys, name, wrapper.stream)
            self.clear()
            if summary is not None and at_s >= KEPT_S:
                echo(f"rayad: {summary}", err=True)
        _LIVE.release()

    def _wrap(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if is_terminal(stream):
                wrapper = Beside(stream, self)
                setattr(sys, name, wrapper)
                self._wrapped.append((name, wrapper))

    def _erase(self) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))

    def _as_text(self, line: Line) -> Text:
        from rich.text import Text

        text = Text(f"rayad: {presentable(line.name)!r} ")
        if line.share is not None:
            done = round(line.share * BAR_WIDTH)
            marks = ("=", "-") if self._console.options.ascii_only else ("━", "─")
            text.append(marks[0] * done, "cyan").append(marks[1] * (BAR_WIDTH - done), "dim").append(f" {line.share:.0%}  ")
        return text.append(presentable(line.text))


class Beside:
    """A stream of the program while the line is on the same terminal: what is written takes the line away first.

    Everything else is the stream's own.
    """

    def __init__(self, stream: Any, place: OnTerminal) -> None:
        self.stream = stream
        self._place = place

    def write(self, text: str) -> Any:
        """Write to the stream, on a line of its own."""
        return self._place.beside(self.stream, text)

    def writelines(self, lines: Any) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Any:
        return iter(self.stream)


class InNotebook(Place):
    """In the output of a notebook's cell: one display, which is updated."""

    first_s = 1.0

    def __init__(self) -> None:
        self._display: Any = None

    def next_s(self, at_s: float) -> float:
        """Twice a second: each update is a message to the browser."""
        return at_s + 0.5

    def show(self, line: Line) -> None:
        """Update the display."""
        bar = "" if line.share is None else f'<progress value="{line.share:.3f}" max="1"></progress> {line.share:.0%} '
        self._put(f"<div><b>{escape(presentable(line.name))}</b> {bar}{escape(presentable(line.text))}</div>")

    def end(self, summary: str | None, at_s: float) -> None:
        """The summary takes the line's place, if there has been one."""
        if self._display is not None:
            self._put(f"<div>{escape(presentable(summary or ''))}</div>")

    def _put(self, text: str) -> None:
        notebook: Any = import_module("IPython.display")
        if self._display is None:
            self._display = notebook.display(notebook.HTML(text), display_id=True)
        else:
            self._display.update(notebook.HTML(text))


class InLog(Place):
    """As lines of text on stderr: of a wait of less than 10 s none, then one each 10 s, of long ones each minute."""

    first_s = KEPT_S
    EVERY_MOST_S = 60.0

    def next_s(self, at_s: float) -> float:
        """After a tenth of the time so far."""
        return at_s + min(self.EVERY_MOST_S, max(KEPT_S, at_s / 10))

    def show(self, line: Line) -> None:
        """Print a line."""
        share = f"{line.share:.0%} " if line.share is not None else ""
        echo(f"rayad: job {line.name!r}: {share}{line.text}", err=True)

    def end(self, summary: str | None, at_s: float) -> None:
        """Print the summary of a long wait."""
        if summary is not None and at_s >= KEPT_S:
            echo(f"rayad: {summary}", err=True)


def place_here() -> Place | None:
    """Where this process shows progress; None: it has no stderr."""
    if is_notebook():
        return InNotebook()
    if sys.stderr is None:
        return None
    can_erase = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if can_erase and is_terminal(sys.stderr) and not hasattr(sys.stderr, "rich_proxied_file") and _LIVE.acquire(timeout=0):
        return OnTerminal(sys.stderr)
    return InLog()


def is_terminal(stream: Any) -> bool:
    """Whether somebody sees at once what is written to this stream."""
    try:
        return stream is not None and bool(stream.isatty())
    except (AttributeError, ValueError):  # closed, or no stream at all
        return False


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


__all__ = ["InLog", "InNotebook", "OnTerminal", "Place", "is_notebook", "is_terminal", "place_here"]
