"""What a job leaves is freed, also where it is a circle; modules are looked through once."""

import gc
import sys
import types
import weakref

import pytest

from rayad.actors.process.garbage import forget_job, freeze_modules


class Holder:
    """State of a job that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def frozen_as_before() -> object:
    """What these tests leave is freed; what was there before them is frozen again, or every later collection in this process would look
    through all tests: a second each."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_a_circle_that_a_job_left_is_freed_although_modules_are_frozen() -> None:
    freeze_modules()
    left = weakref.ref(Holder())
    forget_job()
    assert left() is None


def test_what_is_here_is_frozen_again_only_when_modules_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_job()
    before = gc.get_freeze_count()
    kept = [Holder() for _ in range(1000)]
    forget_job()
    assert gc.get_freeze_count() <= before  # of the job that runs next nothing is frozen
    monkeypatch.setitem(sys.modules, "a_module_that_a_job_imports", types.ModuleType("a_module_that_a_job_imports"))
    forget_job()
    assert gc.get_freeze_count() >= before + len(kept)
