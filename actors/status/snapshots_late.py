"""That a job has no fresh snapshot, and why: attempts fail, something takes long, or none has come for several intervals. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

LONG_S = 10.0
"""A snapshot, or a call of the store, that takes longer is told."""
INTERVALS = 3
"""A snapshot that has been awaited for so many intervals, and LONG_S, is overdue."""


@dataclass(frozen=True, slots=True)
class SnapshotsLate:
    """What is known of snapshots that fail or take long. A job whose snapshots come in time has none.

    >>> str(SnapshotsLate(2, 0.0, "the disk is full", newest=7, age_s=95.2))
    'snapshots fail since 1970-01-01 00:00:00 UTC: 2 in a row, the last because the disk is full; the newest snapshot, 7, is 95.2 s old'
    """

    given_up: int = 0
    """Attempts in a row that were given up since the newest snapshot."""
    since_s: float | None = None
    """When the first of them was, in seconds since 1970; None: there are none, or that is not known."""
    why: str = ""
    """Why the last of them was."""
    doing: str = ""
    """What has been under way for long, as "publishing snapshot 7"; "": nothing has."""
    doing_s: float | None = None
    """For how long."""
    newest: int | None = None
    """Number of the newest snapshot; None: there is none yet."""
    age_s: float | None = None
    """How old that is, or for how long the job has run without one; None: not known."""
    awaited_s: float | None = None
    """For how long the next one has been awaited: since the newest one, or since the job runs, if that is later. None: it is not."""
    interval_s: float | None = None
    """Seconds between two snapshots as they should be; None: on demand only."""

    @property
    def told_doing(self) -> str:
        """What takes long, in words; "" where nothing does."""
        if not self.doing:
            return ""
        return f"{self.doing} has taken {self.doing_s:.1f} s so far" if self.doing_s is not None else f"{self.doing} takes long"

    def __str__(self) -> str:
        facts = []
        if self.given_up:
            since = f" since {datetime.fromtimestamp(self.since_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.since_s is not None else ""
            facts.append(f"snapshots fail{since}: {self.given_up} in a row, the last because {self.why}")
        if self.doing:
            facts.append(self.told_doing)
        if self.age_s is not None and self.newest is not None:
            facts.append(f"the newest snapshot, {self.newest}, is {self.age_s:.1f} s old")
        elif self.age_s is not None:
            facts.append(f"there has been no snapshot for {self.age_s:.1f} s")
        elif not facts:
            facts.append("the newest snapshot is old")
        is_due = self.interval_s is not None and not self.given_up and not self.doing
        return "; ".join(facts) + (f", although one is due every {self.interval_s:.3g} s" if is_due else "")


def late_of(late: SnapshotsLate) -> SnapshotsLate | None:
    """What is told of this: nothing where no attempt has failed, nothing takes long, and the next snapshot is not overdue.

    >>> late_of(SnapshotsLate(doing="publishing snapshot 7", doing_s=9.9, newest=6, age_s=12.9, awaited_s=12.9, interval_s=1.0)) is None
    True
    >>> print(late_of(SnapshotsLate(doing="publishing snapshot 7", doing_s=9.9, newest=6, age_s=13.1, awaited_s=13.1, interval_s=1.0)))
    the newest snapshot, 6, is 13.1 s old, although one is due every 1 s
    """
    takes_long = late.doing_s is not None and late.doing_s >= LONG_S
    is_old = late.interval_s is not None and late.awaited_s is not None and late.awaited_s > INTERVALS * late.interval_s + LONG_S
    if not (late.given_up or takes_long or is_old):
        return None
    return late if takes_long else replace(late, doing="", doing_s=None)


__all__ = ["INTERVALS", "LONG_S", "SnapshotsLate", "late_of"]
