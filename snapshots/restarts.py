"""Whether a job that has failed is restarted, and when: so many failures within so much time, after delays that grow. Pure.

After a crash the job restarts at once; after repeated failures it waits longer each time, so that an unavailable store, sink or service
has time to come back before ``failures_max`` is used up. An error of the user's code that repeats at the same vertex and time, word for
word, after each restart will repeat for ever: it ends the job early. Prior art: Flink's failure-rate and exponential-delay restart
strategies (taken: the window, the growing delay, jitter, and that the delay is reset by good times) and
Ray Train's ``FailureConfig(max_failures)``.
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
    """The job resumes from its last snapshot, so many seconds after the failure; ``number``: failures within the window, with this one."""

    delay_s: float
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """The job fails; ``why``: in words that follow those of its cause: the newest failure, or the first one within the window."""

    why: str
    number: int
    is_newest: bool


class Restarts:
    """The failures of one run.

    Args:
        failures_max: so many failures within ``window_s`` are survived; the next one ends the job.
        window_s: seconds; None: ever.
        delay_s: before the second restart in a row; the first one is at once. Later ones wait GROWTH times as long each, ``delay_max_s`` at
            most. After a snapshot, or after ``window_s`` without a failure, it begins anew, unless the same failure comes back.
        same_max: so many times in a row the same failure ends the job; None: no limit.
        chance: the generator that jitter is drawn from.

    >>> restarts = Restarts(failures_max=9, delay_s=1.0, delay_max_s=3.0, chance=random.Random(0))
    >>> [round(restarts.on_failure("", float(at)).delay_s, 1) for at in range(5)]
    [0.0, 1.1, 2.1, 3.0, 2.9]
    >>> restarts.on_snapshot(); restarts.on_failure("", 10.0).delay_s
    0.0
    """

    def __init__(
        self,
        *,
        failures_max: int,
        window_s: float | None = None,
        delay_s: float = 1.0,
        delay_max_s: float = 60.0,
        same_max: int | None = None,
        chance: random.Random,
    ) -> None:
        self.failures_max = failures_max
        self.window_s = window_s
        self._delays_s = (delay_s, delay_max_s)
        self._same_max = same_max
        self._chance = chance
        self._times_s: deque[float] = deque()
        self._in_a_row = 0
        self._sign = ""
        self._alike = 0
        self._has_snapshot = False

    def on_snapshot(self) -> None:
        """A snapshot has been published: the restart before it succeeded."""
        self._has_snapshot = True

    def on_failure(self, sign: str, now_s: float) -> Restart | End:
        """Decide. ``sign`` is equal for equal failures, and empty for those that may pass (a death, an unavailable service)."""
        is_same = bool(sign) and sign == self._sign
        is_quiet = self.window_s is not None and bool(self._times_s) and now_s - self._times_s[-1] > self.window_s
        if is_quiet or (self._has_snapshot and not is_same):
            self._in_a_row = 0
        self._in_a_row += 1
        self._alike = self._alike + 1 if is_same else 1
        self._sign, self._has_snapshot = sign, False
        self._times_s.append(now_s)
        while self.window_s is not None and now_s - self._times_s[0] > self.window_s:
            self._times_s.popleft()
        number = len(self._times_s)
        if number > self.failures_max:
            within = f" within {self.window_s:g} s" if self.window_s is not None else ""
            return End(f"failure 1 of {number}{within}; FailureConfig.max_failures is {self.failures_max}", number, is_newest=False)
        if sign and self._same_max is not None and self._alike >= self._same_max:
            told = (
                f"the same error came back after each of {self._alike - 1} restarts, so another one would not help; mend the program or "
                "the data and run it with resume='latest', or allow more restarts with FailureConfig(same_error_max=None)"
            )
            return End(told, number, is_newest=True)
        return Restart(self._delay_s(), number)

    def _delay_s(self) -> float:
        first_s, most_s = self._delays_s
        if self._in_a_row == 1 or not first_s:
            return 0.0
        growing_s = min(first_s * GROWTH ** min(self._in_a_row - 2, 64), most_s)
        return min(most_s, growing_s * self._chance.uniform(1 - JITTER, 1 + JITTER))


class Succession:
    """Coordinators of one job, one after another: whether another one takes the place of one that died, and from when on. Pure.

    The driver does not see snapshots; a coordinator that has lived for ``good_s`` counts as one: its restart succeeded.

    >>> restarts = Restarts(failures_max=2, delay_s=4.0, chance=random.Random(0))
    >>> line = Succession(restarts, good_s=60.0)
    >>> line.on_start(0.0); line.on_death(1.0), line.is_due(1.0)
    (Restart(delay_s=0.0, number=1), True)
    >>> line.on_start(1.0); type(line.on_death(2.0)).__name__, line.is_due(5.0), line.is_due(7.0)
    ('Restart', False, True)
    """

    def __init__(self, restarts: Restarts, *, good_s: float) -> None:
        self._restarts = restarts
        self._good_s = good_s
        self._began_s = 0.0
        self._decision: Restart | End | None = None
        self._due_s = 0.0

    def on_start(self, now_s: float) -> None:
        """One begins."""
        self._began_s, self._decision = now_s, None

    def on_death(self, now_s: float) -> Restart | End:
        """It died; decided once for each death, however often it is reported."""
        if self._decision is None:
            if now_s - self._began_s >= self._good_s:
                self._restarts.on_snapshot()
            self._decision = self._restarts.on_failure("", now_s)
            self._due_s = now_s + (self._decision.delay_s if isinstance(self._decision, Restart) else 0.0)
        return self._decision

    def is_due(self, now_s: float) -> bool:
        """Whether the delay after a death is over."""
        return now_s >= self._due_s


__all__ = ["End", "Restarts", "Succession", "Restart"]
