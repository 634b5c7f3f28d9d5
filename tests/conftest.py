"""Settings of all tests: hypothesis profiles, and what is collected.

The rest is in pyproject.toml: 600 s for a test, warnings from our own modules are errors, doctests through src/rayad.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from rayad.actors.process import unwaited
from tests import second_try, thorough
from tests.unsynced import keep_folders_in_memory, leave_files_unsynced

# ci: the same examples on every run, so that a red build is red for everybody; it prints the blob that repeats a failure.
# Not Phase.explain: below Python 3.12 it traces every line while it shrinks, and a failure would then show as a timeout.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink]
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, phases=PHASES)
# explore: other examples each time; deep: many of them. HYPOTHESIS_PROFILE=deep pytest tests/progress
# soak: as ci; tests/thorough.py then tries all of what make test tries some of.
settings.register_profile("soak", settings.get_profile("ci"))
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile(
    "deep", deadline=None, print_blob=True, phases=PHASES, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Ray gives its workers the lowest priority but four. Beside a process of tests that computes they would hardly run at all.
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray's agent looks at all processes every 5 s otherwise, for its dashboard: a fortieth of a core.
os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")
# Ray begins with a worker for each CPU, 0.4 s of a processor each, before anything asks for one.
os.environ.setdefault("RAY_prestart_worker_first_driver", "false")


leave_files_unsynced()
keep_folders_in_memory()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs which test with ``-n 2``."""
    from tests.side_by_side import FromBothEnds

    return FromBothEnds(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What is there when all tests are known (700,000 objects) is not looked through for cycles, 0.4 s at a time: that was a third of the
    processor time of tests of columns."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What the tests of a file leave behind, modules and what these keep, is not looked through again for each of the files behind it."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)  # behind pytest, which collects five times
def pytest_unconfigure() -> None:
    """Libraries count what is left of theirs when the process ends."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of real processes may have a second try; those of which ``make soak`` tries more are marked for it; some go by turns."""
    second_try.mark(items)
    thorough.mark(items)
    config.hook.pytest_deselected(items=thorough.others_turn(items))


def pytest_report_header() -> str | None:
    """Say how to repeat a run in which tests went by turns."""
    turn = thorough.turn_of_this_run()
    return None if turn is None else f"tests by turns: {thorough.TURN}={turn}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what is tried again."""
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # pytest-rerunfailures adds it
        second_try.first_failures.append(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show it."""
    second_try.summary(terminalreporter)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Keep ``--doctest-modules`` from importing what stands beside the tests: scripts for ``ray job submit`` run when imported."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") and collection_path.name != "conftest.py":
        return True
    return None


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    """A test that leaves warnings turned off (a library's main function does) hides them from every later test of its process."""
    before = _logging_now()
    yield
    after = _logging_now()
    assert after == before, "this test left logging changed"


@pytest.fixture(autouse=True)
def jobs_of_earlier_tests_are_not_told() -> None:
    """A job that a test leaves behind is told when Python collects it: in the output of a later test that looks at its own."""
    unwaited.OF_THIS_PROCESS.forget_all()


def _logging_now() -> dict[str, Any]:
    ours = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.split(".")[0] == "rayad"]
    off = sorted(one.name for one in ours if one.disabled or not one.propagate or one.level != logging.NOTSET)
    return {"root": logging.root.level, "below": logging.root.manager.disable, "changed": off}
