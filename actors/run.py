"""Running a dataflow to its end, which is what ``flow.run()`` does on both runtimes: submit, wait, and end the job where that is cut short.

Ctrl-C raises KeyboardInterrupt, as anywhere in Python. It is a plain one: Python ends a program with status 130, as shells count it, only
for exactly this class and no subclass. What would be printed of it, some forty lines of Rayad and Ray, says nothing; so it is raised anew
with one line about the job, and a program that does not catch it prints this line alone.
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rayad.actors.job import Job, Result
from rayad.actors.status.progress_line import duration
from rayad.actors.status.progress_shown import is_wanted
from rayad.actors.status.terminal import echo
from rayad.dataflow.config import RunConfig
from rayad.progress import mask, presentable, say

_SHORT = "_render_traceback_"
"""IPython shows what this method of an error gives, a list of lines, in place of its traceback."""


def run_to_end(
    name: str, config: RunConfig, submit: Callable[[], Job], *, timeout_s: float | None, progress: bool | None
) -> Result:
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


def interruption(told: str) -> KeyboardInterrupt:
    """A KeyboardInterrupt that shows itself as this line, in a program and in a notebook; for the main thread, which alone gets Ctrl-C."""
    error = KeyboardInterrupt(told)
    line = presentable(told)
    vars(error)[_SHORT] = lambda: [f"KeyboardInterrupt: {line}"]
    before = sys.excepthook
    if getattr(before, "__module__", None) != __name__:
        sys.excepthook = _short_of(before)
    return error


def _short_of(before: Any) -> Any:
    """What Python shows of an error that nobody has caught: a line of what :func:`interruption` gave, and of others the same as before."""

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and hasattr(error, _SHORT):
            echo(f"rayad: {error}", err=True)
        else:
            before(kind, error, trace)

    return excepthook


__all__ = ["interruption", "run_to_end"]
