"""Running a dataflow to its end, which is what ``flow.run()`` does on both runtimes: submit, wait, and end the job where that is cut short.

Ctrl-C raises KeyboardInterrupt, as anywhere in Python. Its traceback would be some forty lines of Rayad and Ray that say nothing, so it is
raised anew as :class:`Interrupted`, with one line about the job. A program that does not catch it prints this line and ends with status
130 (decision 082).
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rayad.actors.job import Job, Result
from rayad.actors.status.progress_line import duration
from rayad.actors.status.progress_places import is_terminal
from rayad.actors.status.progress_shown import is_wanted
from rayad.actors.status.terminal import echo
from rayad.dataflow.config import RunConfig
from rayad.progress import mask, presentable, say

STATUS = 130
"""The exit status of a program that Ctrl-C has ended, as shells count it."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during ``run()``; the message says what became of the job."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"KeyboardInterrupt: {presentable(str(self))}"]


def run_to_end(name: str, config: RunConfig, submit: Callable[[], Job], *, timeout_s: float | None, progress: bool | None) -> Result:
    """Submit a job, wait for its end, and give its results; the job is over when this returns or raises.

    Args:
        name: of the dataflow; the configuration may have another one for the job.
        config: of the run.
        submit: starts the job.
        timeout_s: a job that is not complete by then is cancelled, and TimeoutError raised.
        progress: whether to show how far it is; None: unless the environment says otherwise.

    Raises what ended the job; KeyboardInterrupt with a line about the job after Ctrl-C.
    """
    is_wanted(progress, "run")  # refused before anything is started
    began_s = clock.monotonic()
    job: Job | None = None
    try:
        job = submit()
        return job.wait(timeout_s=timeout_s, progress=progress)
    except TimeoutError:
        if job is None:
            raise
        job.cancel()
        raise TimeoutError(
            f"job {job.name!r} was not complete after {timeout_s} s and has been cancelled: give run() a longer timeout_s, or use "
            "submit() and job.wait(timeout_s), which leaves it running"
        ) from None
    except KeyboardInterrupt:
        raise interruption(_cancelled(job, config.name or name, config, began_s)) from None
    except BaseException:
        if job is not None:
            job.cancel()
        raise


def _cancelled(job: Job | None, name: str, config: RunConfig, began_s: float) -> str:
    """Cancel the job; gives what is told of it."""
    if job is None:
        return f"interrupted after {duration(clock.monotonic() - began_s)}: job {name!r} had not begun"
    how = "cancelled"
    try:
        job.cancel()  # nobody has a handle to end it with
    except KeyboardInterrupt:
        how = "given up, interrupted again while it was being cancelled,"
    except Exception as error:
        how = f"given up, as it could not be cancelled ({say(error)}),"
    told = f"interrupted: job {name!r} {how} after {duration(clock.monotonic() - began_s)}"
    if not config.keeps_snapshots:
        return f"{told}; it kept no snapshots to resume from (RunConfig(storage_path=...))"
    return mask(f"{told}; resume it with resume='latest', name={name!r} and storage_path={config.storage_path!r}")


def interruption(told: str) -> Interrupted:
    """An Interrupted with this message, which a program that does not catch it shows as one line."""
    before = sys.excepthook
    if getattr(before, "__module__", None) != __name__:
        sys.excepthook = _shortening(before)
    return Interrupted(told)


def _shortening(before: Any) -> Any:
    """What Python calls for an error that nobody has caught: an Interrupted is one line and ends the program, others go to ``before``."""

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, Interrupted):
            before(kind, error, trace)
            return
        echo(f"rayad: {error}", err=True, is_over=is_terminal(sys.stderr))  # over the ^C that the terminal has shown
        if not (hasattr(sys, "ps1") or sys.flags.interactive):  # somebody types at a prompt, and goes on
            raise SystemExit(STATUS)

    return excepthook


__all__ = ["Interrupted", "interruption", "run_to_end"]
