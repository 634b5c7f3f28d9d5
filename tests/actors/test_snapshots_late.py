"""That snapshots fail, take long or do not come, in one line; and nothing where they come in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayad.actors.status.snapshots_late import INTERVALS, LONG_S, SnapshotsLate, late_of

IN_TIME = SnapshotsLate(newest=7, age_s=5.0, interval_s=2.0)
FULL = replace(IN_TIME, given_up=3, since_s=1_790_000_000.0, why="the disk is full", age_s=8.0)
SLOW = replace(IN_TIME, doing="publishing snapshot 8", doing_s=LONG_S, age_s=12.5)
OLD = replace(IN_TIME, age_s=86_400.0, awaited_s=INTERVALS * 2.0 + LONG_S + 0.1)
FAILS = "snapshots fail since 2026-09-21 14:13:20 UTC: 3 in a row, the last because the disk is full"


@pytest.mark.parametrize(
    ("late", "told"),
    [
        (FULL, f"{FAILS}; the newest snapshot, 7, is 8.0 s old"),
        (
            replace(FULL, since_s=None, newest=None),
            "snapshots fail: 3 in a row, the last because the disk is full; there has been no snapshot for 8.0 s",
        ),
        (
            replace(FULL, doing="snapshot 8", doing_s=LONG_S),
            f"{FAILS}; snapshot 8 has taken 10.0 s so far; the newest snapshot, 7, is 8.0 s old",
        ),
        (replace(FULL, doing="snapshot 8", doing_s=LONG_S - 0.1), f"{FAILS}; the newest snapshot, 7, is 8.0 s old"),
        (SLOW, "publishing snapshot 8 has taken 10.0 s so far; the newest snapshot, 7, is 12.5 s old"),
        (OLD, "the newest snapshot, 7, is 86400.0 s old, although one is due every 2 s"),
        (replace(OLD, newest=None, age_s=16.1), "there has been no snapshot for 16.1 s, although one is due every 2 s"),
    ],
)
def test_what_is_late_is_told_in_one_line(late: SnapshotsLate, told: str) -> None:
    assert str(late_of(late)) == told


@pytest.mark.parametrize(
    "late",
    [
        IN_TIME,
        replace(SLOW, doing_s=LONG_S - 0.1),
        replace(OLD, awaited_s=INTERVALS * 2.0 + LONG_S),
        replace(OLD, awaited_s=None),  # it was resumed after a day, and starts
        replace(OLD, interval_s=None),
        SnapshotsLate(),
    ],
)
def test_nothing_is_told_of_snapshots_that_come_in_time(late: SnapshotsLate) -> None:
    assert late_of(late) is None


def test_without_clocks_it_says_the_same_of_the_same_trouble() -> None:
    def still(late: SnapshotsLate) -> str:
        return str(replace(late, doing_s=None, age_s=None))

    assert still(FULL) == FAILS
    assert still(SLOW) == "publishing snapshot 8 takes long"
    assert still(OLD) == "the newest snapshot is old, although one is due every 2 s"
