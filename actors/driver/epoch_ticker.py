"""The thread that advances the live inputs with ``epoch_s`` of a job on Ray, in the process that feeds it."""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable, Mapping

from rayad.actors.inputs.epoch_ticks import EpochTicks
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.process.threads import Threads

_log = logging.getLogger(__name__)


class EpochTicker:
    """Runs until all these inputs are closed, or the job is over.

    Args:
        job: its name.
        lengths_s: how long the epochs of each input are.
        open_input: gives an input when the job runs; raises what ended it.
        threads: of the job, which end with it.
    """

    def __init__(self, job: str, lengths_s: Mapping[str, float], open_input: Callable[[str], JobInput], threads: Threads) -> None:
        self._job = job
        self._lengths_s = lengths_s
        self._open = open_input
        self._over = threading.Event()
        if lengths_s:
            threads.start("epochs", self._run, stop=self._over.set)  # a call that is under way raises when the inputs are closed

    def _run(self) -> None:
        try:
            inputs = {name: self._open(name) for name in self._lengths_s}
            ticks = EpochTicks(self._lengths_s, clock.monotonic())
            while (due_in_s := ticks.due_in_s(clock.monotonic())) is not None and not self._over.wait(due_in_s):
                for name in ticks.take_due(clock.monotonic()):
                    if not inputs[name].tick():
                        ticks.drop(name)
        except Exception as error:  # the job has ended: the next call that sends or waits reports how
            _log.debug("job %r: its epochs stand still", self._job, exc_info=error)


__all__ = ["EpochTicker"]
