"""Waiting for something outside this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.patience import PATIENCE_S


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until the condition gives a true value, and return it; fails with ``what`` after the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)
    return found
