"""Ending a process without running any more of its code: no `finally`, no `atexit`, no destructor."""

from __future__ import annotations

import os
from typing import NoReturn


def end_at_once(status: int) -> NoReturn:
    """End this process now. For a forked child, which must not touch what it inherited, and when time is up."""
    os._exit(status)


__all__ = ["end_at_once"]
