"""Whether a job that has failed is restarted, and when: so many failures within so much time, after delays that grow. Pure.

After a crash the job restarts at once; after repeated failures it waits longer each time, so that an unavailable store, sink or service
has time to come back before ``failures_max`` is used up. Only running makes good: delays begin anew when the job has run for long enough
without a failure, and failures are forgotten by the time that the job has run since, not by time that it spent waiting or starting. So a
job that dies at every start ends, however long its starts take; one that fails once a day never does. A snapshot proves nothing here: a
job can take one and die, again and again. An error of the user's code that repeats at the same vertex and time, word for word, after each
restart will repeat for ever: it ends the job early.

Prior art: Flink's failure-rate strategy (the window) and its exponential-delay strategy (the growing delay, jitter, and
``reset-backoff-threshold``, which counts from when the delay is over); Kubernetes' CrashLoopBackOff, which begins anew after ten minutes of
running; Ray Train's ``FailureConfig(max_failures)``.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

GROWTH = 2.0
"""From one delay to the next."""
JITTER = 0.1
"""A delay is drawn this much above or below: jobs that failed together do not come back together."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The job resumes from its last snapshot, so many seconds after the failure; ``number``: failures that count, with this one."""

    delay_s: float
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """The job fails; ``why``: in words that follow those of its cause: the newest failure, or the first one decided here that counts."""

    why: str
    number: int
    is_newest: bool


class Restarts:
    """The failures of one run.

    Args:
        failures_max: so many failures within ``window_s`` are survived; the next one ends the job.
        window_s: seconds that the job runs; failures before them do not count. None: all count.
        reset_after_s: when the job has run for so many seconds without a failure, the next one is the first of a row, unless it is the same
            error again.
        delay_s: before the second restart in a row; the first one is at once. Later ones wait GROWTH times as long each, ``delay_max_s`` at
            most.
        same_max: so many times in a row the same failure ends the job; None: no limit.
        chance: the generator that jitter is drawn from.

    >>> restarts = Restarts(failures_max=9, reset_after_s=600.0, delay_s=1.0, delay_max_s=3.0, chance=random.Random(0))
    >>> [round(restarts.on_failure("", float(at)).delay_s, 1) for at in range(5)]
    [0.0, 1.1, 2.1, 3.0, 2.9]
    >>> restarts.on_running(10.0); restarts.on_failure("", 609.0).delay_s > 0
    True
    >>> restarts.on_running(620.0); restarts.on_failure("", 1220.0).delay_s
    0.0
    """

    def __init__(
        self,
        *,
        failures_max: int,
        window_s: float | None = None,
        reset_after_s: float = 600.0,
        delay_s: float = 1.0,
        delay_max_s: float = 60.0,
        same_max: int | None = None,
        chance: random.Random,
    ) -> None:
        self.failures_max = failures_max
        self.window_s = window_s
        self._reset_after_s = reset_after_s
        self._delays_s = (delay_s, delay_max_s)
        self._same_max = same_max
        self._chance = chance
        self._running_since_s: float | None = None
        self._ran_s = 0.0  # all in all, until the newest failure
        self._failed_at_s: deque[float] = deque()  # by _ran_s
        self._earlier = 0  # how many of these were decided elsewhere
        self._in_a_row = 0
        self._sign = ""
        self._alike = 0

    def on_earlier(self, number: int) -> None:
        """``number`` failures were survived by coordinators before this one. They grow old like others."""
        self._earlier += number
        self._failed_at_s.extend([self._ran_s] * number)

    def on_running(self, now_s: float) -> None:
        """The job runs; telling it again changes nothing."""
        if self._running_since_s is None:
            self._running_since_s = now_s

    def on_failure(self, sign: str, now_s: float) -> Restart | End:
        """Decide. ``sign`` is equal for equal failures, and empty for those that may pass (a death, an unavailable service)."""
        ran_s = max(0.0, now_s - self._running_since_s) if self._running_since_s is not None else 0.0
        self._running_since_s = None
        is_same = bool(sign) and sign == self._sign
        if ran_s >= self._reset_after_s and not is_same:
            self._in_a_row = 0
        self._in_a_row += 1
        self._alike = self._alike + 1 if is_same else 1
        self._sign = sign
        number = self._count(ran_s)
        if number > self.failures_max:
            within = f" within {self.window_s:g} s of running" if self.window_s is not None else ""
            why = f"failure {self._earlier + 1} of {number}{within}; FailureConfig.max_failures is {self.failures_max}"
            return End(why, number, is_newest=False)
        if sign and self._same_max is not None and self._alike >= self._same_max:
            told = (
                f"the same error came back after each of {self._alike - 1} restarts, so another one would not help; mend the program or "
                "the data and run it with resume='latest', or allow more restarts with FailureConfig(same_error_max=None)"
            )
            return End(told, number, is_newest=True)
        return Restart(self._delay_s(), number)

    def _count(self, ran_s: float) -> int:
        """One more failure, after the job has run so long; gives how many count."""
        self._ran_s += ran_s
        failed_at_s = self._failed_at_s
        failed_at_s.append(self._ran_s)
        while self.window_s is not None and self._ran_s - failed_at_s[0] > self.window_s:
            failed_at_s.popleft()
            self._earlier = max(0, self._earlier - 1)
        return len(failed_at_s)

    def _delay_s(self) -> float:
        first_s, most_s = self._delays_s
        if self._in_a_row == 1 or not first_s:
            return 0.0
        growing_s = min(first_s * GROWTH ** min(self._in_a_row - 2, 64), most_s)
        return min(most_s, growing_s * self._chance.uniform(1 - JITTER, 1 + JITTER))


class Succession:
    """Coordinators of one job, one after another: whether another one takes the place of one that died, and after which delay. Pure.

    >>> restarts = Restarts(failures_max=2, delay_s=4.0, chance=random.Random(0))
    >>> line = Succession(restarts)
    >>> line.on_start(); line.on_running(0.5); line.on_death(1.0)
    Restart(delay_s=0.0, number=1)
    >>> line.on_start(); 3.6 < line.on_death(2.0).delay_s < 4.4
    True
    """

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._decision: Restart | End | None = None

    def on_start(self) -> None:
        """One begins."""
        self._decision = None

    def on_running(self, now_s: float) -> None:
        """Its job runs; telling it again changes nothing."""
        if self._decision is None:
            self._restarts.on_running(now_s)

    def on_death(self, now_s: float) -> Restart | End:
        """It died; decided once for each death, however often it is reported."""
        if self._decision is None:
            self._decision = self._restarts.on_failure("", now_s)
        return self._decision

    @property
    def end(self) -> End | None:
        """Why nobody takes the place of the one that died, if it has been decided so."""
        return self._decision if isinstance(self._decision, End) else None


__all__ = ["End", "Restarts", "Succession", "Restart"]
