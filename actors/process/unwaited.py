"""Jobs that nobody has waited for when their process ends, or that nobody can wait for any more: one line says what becomes of each."""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import Protocol

from rayad.progress import presentable


class Waitable(Protocol):
    """A job as this module sees it."""

    name: str
    is_watched: bool

    def unwaited(self) -> str:
        """What is lost if the process ends now, and what to do, in words; "" where nothing is."""


class Unwaited:
    """The jobs of this process."""

    def __init__(self) -> None:
        self._jobs: weakref.WeakSet[Waitable] = weakref.WeakSet()
        atexit.register(self.tell_all)

    def watch(self, job: Waitable) -> None:
        """Tell of this job, unless it is waited for."""
        job.is_watched = True
        self._jobs.add(job)

    def tell(self, job: Waitable) -> None:
        """The process ends, or nobody has this job any more: then its weak references may be gone before it is."""
        if job.is_watched:
            job.is_watched = False
            lost = job.unwaited()
            if lost and sys.stderr is not None:
                sys.stderr.write(f"rayad: {presentable(f'job {job.name!r} {lost}')}\n")

    def forget_all(self) -> None:
        """Tell of none of those that there are now."""
        for job in list(self._jobs):
            job.is_watched = False

    def tell_all(self) -> None:
        """The process ends."""
        for job in list(self._jobs):
            self.tell(job)


OF_THIS_PROCESS = Unwaited()

__all__ = ["OF_THIS_PROCESS", "Unwaited", "Waitable"]
