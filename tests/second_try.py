"""A test of real processes that fails is tried once more in ``make test``, and what it said the first time is printed at the end.

Such tests depend on the machine: a processor that is taken away for seconds ends a heartbeat, a server starts late. Three landings in a
row were refused for one test each, of 11,000, that passed before and after. A test that computes (progress, dataflow, snapshots,
simulation ...) has no such excuse: it is seeded, and is never tried again. See docs/decisions/079-a-second-try.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

REAL_PROCESSES = ("tests/cluster/", "tests/machines/", "tests/examples/", "tests/commands/", "tests/integrations/", "tests/actors/")
"""Folders whose tests start processes, servers, or threads that keep to a clock."""

first_failures: list[pytest.TestReport] = []
"""What failed once and was tried again, in this run."""


def allowed(test: str) -> bool:
    """Whether a failure of this test may be the machine's.

    >>> allowed("tests/cluster/test_attach.py::test_names"), allowed("tests/simulation/test_fence.py::test_runs[3]")
    (True, False)
    """
    return test.startswith(REAL_PROCESSES)


def mark(items: Iterable[pytest.Item]) -> None:
    """Let those tests have a second try, where the environment asks for it as ``make test`` does."""
    if os.environ.get("RAYAD_SECOND_TRY") == "1":
        for item in items:
            if allowed(item.nodeid):
                item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=3))


def summary(terminal: pytest.TerminalReporter) -> None:
    """At the end of a run: each first failure, whole."""
    if not first_failures:
        return
    terminal.section(f"{len(first_failures)} failed and were tried again: each is a defect to look at", sep="=", yellow=True)
    for report in first_failures:
        terminal.section(report.nodeid, sep="-")
        terminal.write_line(report.longreprtext)
