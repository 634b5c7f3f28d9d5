"""The clock of the machine on which records arrive."""

from __future__ import annotations

import datetime as dt


def utc_now() -> dt.datetime:
    """The moment, in UTC."""
    return dt.datetime.now(dt.UTC)
