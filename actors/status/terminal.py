"""The one place where texts go to a terminal.

Names, errors and records are the users', or come from outside with the data. A terminal obeys what is in them: a title is set, lines are
erased, text runs from right to left. So control characters are shown as escapes (``\\x1b``), and only colours of our own are sent.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rayad.progress import presentable, visible

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.text import Text


def echo(text: str = "", *, err: bool = False, is_data: bool = False, is_over: bool = False) -> None:
    """Print a line, or several, to stdout or stderr. ``is_data``: the user's records, in which nothing is masked. ``is_over``: over what
    the row of the cursor shows."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        stream.write(f"{chr(13) if is_over else ''}{visible(text) if is_data else presentable(text)}\n")
        stream.flush()


def echo_json(value: Any, *, indent: int | None = None, default: Any = None) -> None:
    """Print a value as JSON, which has escapes of its own."""
    echo(json.dumps(value, indent=indent, default=default).replace("\x7f", "\\u007f"), is_data=True)


def console(**options: Any) -> Console:
    """Rich's console, whose texts are visible in whatever they stand."""
    from rich.console import Console
    from rich.segment import Segment

    class Visible(Console):
        def render(self, *args: Any, **kwargs: Any) -> Any:
            for segment in super().render(*args, **kwargs):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Visible(**options)


def as_written(text: str) -> Text:
    """For a cell of a table: brackets in it are no markup."""
    from rich.text import Text

    return Text(visible(text), overflow="fold")


def show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error that nobody has caught, as ``sys.excepthook``."""
    import traceback

    echo("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"), err=True)


__all__ = ["as_written", "console", "echo", "echo_json", "show_exception"]
