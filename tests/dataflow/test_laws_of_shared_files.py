"""The laws of keyed state where replicas share a store of snapshots: what is in its files is handed over by name."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.runs import disk, files
from rayad.dataflow.operators.state.runs import runs as runs_module
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import Content, RunFile, opened
from rayad.dataflow.operators.state.runs.rows_that_leave import RowsThatLeave
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs_by_time import RunsByTime
from tests.dataflow.forms import FORMS, Form
from tests.dataflow.test_laws_of_run_files import (
    IN_FILES,
    SEEDS,
    SEEDS_OF_A_DEFECT,
    HeldWhenPut,
    Store,
    a_slice_from_the_beginning,
    around,
    marks_of_rows_that_are_over_are_lost,
)
from tests.dataflow.test_laws_of_run_files import _small_runs_are_written as _small_runs_are_written  # the same for these tests
from tests.dataflow.test_laws_of_state import _small_states_count as _small_states_count
from tests.dataflow.test_laws_of_state import run_one
from tests.thorough import by_turns

OF_RUNS = [form for form in FORMS if list(form.make().runs())]


class OfThree(Store):
    """The store of three replicas: a manifest has the files of all."""

    def __init__(self) -> None:
        super().__init__()
        self.named = 0
        """How often slices of files have come by their names."""
        self.used_again = 0
        """How often a run on disk became a file of the store."""
        self.parts: dict[int, list[Any]] = {}
        self.replicas: list[Sharing] = []

    def deliver(self, replica: int, names: list[Any]) -> None:
        """What a replica has written for an attempt; the third one publishes it."""
        self.parts[replica] = names
        if len(self.parts) == 3:
            self.publish([name for names in self.parts.values() for name in names])
            self.parts = {}


class Sharing(HeldWhenPut):
    """One of three replicas that share a store, and hand over what is in its files by name."""

    def __init__(self, form: Form, memory: MemoryBound | None, store: OfThree) -> None:
        self.shared = store
        super().__init__(form, memory)
        self.store = self.shared
        self.shared.replicas.append(self)

    @property
    def chain(self) -> list[bytes]:
        return self._chain

    @chain.setter
    def chain(self, data: list[bytes]) -> None:
        if not data:
            self.shared.parts = {}  # the attempt is given up
        self._chain, self.pending = data, None

    def snapshot(self) -> bool:
        """An attempt begins when the one before is over."""
        for replica in self.shared.replicas:
            replica.finish()
        return super().snapshot()

    def published(self) -> None:
        self.shared.deliver(id(self), self.names)

    def handed(self, given: Any) -> Any:
        found: dict[str, tuple[RunFile, Content]] = {}

        def content_of(name: str) -> tuple[RunFile, Content]:
            self.shared.named += 1
            return found.setdefault(name, (RunFile(None, name), opened(self.shared.files[name][1])))

        return loaded(b"".join(bytes(piece) for piece in dumped(given, by_name=True)), content_of)


class InStore(StateFiles):
    """Runs that do not fit in memory are in files of the store where they can be."""

    def __init__(self, store: OfThree) -> None:
        super().__init__("shared", None)
        self._of_three = store

    def in_store(self, name: Any) -> Content | None:
        self._of_three.used_again += 1
        return opened(self._of_three.files[name][1], is_mapped=True)


def run_sharing(form: Form, seed: int, bytes_max: int | None = None) -> OfThree:
    """Three replicas with one store."""
    store = OfThree()
    memory = None if bytes_max is None else MemoryBound(bytes_max, InStore(store))
    with patch.object(runs_module, "PIECES_MAX", 99), patch.object(files, "FILED_BYTES_MIN", 20):
        run_one(form, seed, memory, kind=lambda form, memory: Sharing(form, memory, store))
    return store


@pytest.mark.parametrize("form", IN_FILES, ids=lambda form: form.name)
def test_slices_of_files_are_handed_over_by_name(form: Form) -> None:
    named = sum(run_sharing(form, seed).named for seed in SEEDS)
    assert bool(named) is not isinstance(form.make(), RunsByTime), "what is sorted by time has no slices of key-groups"


@pytest.mark.parametrize("form", OF_RUNS, ids=lambda form: form.name)
def test_slices_of_files_are_handed_over_by_name_beyond_the_bound(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    stores = [run_sharing(form, seed, 1 << 9) for seed in SEEDS]
    assert any(store.named for store in stores) is not isinstance(form.make(), RunsByTime)
    assert any(store.used_again for store in stores), "what is on disk is a file of the store"


# -- defects that the laws must find ---------------------------------------------------------------


def the_rows_behind(real: Any, self: Any, low: int, high: int) -> Any:
    run = real(self, low, high)
    run.first += 1
    return run


def the_file_has_other_rows(real: Any, self: Any, name: Any) -> Any:
    content = real(self, name)
    return content._replace(rows=content.rows.take(np.arange(content.rows.num_rows)[::-1]))


DEFECTS_OF_SHARING = [
    (InStore, "in_store", the_file_has_other_rows),
    (Run, "slice", a_slice_from_the_beginning),
    (Run, "slice", the_rows_behind),
    (RowsThatLeave, "marked", marks_of_rows_that_are_over_are_lost),
]


@by_turns(2)
@pytest.mark.parametrize(("target", "name", "change"), DEFECTS_OF_SHARING, ids=lambda given: getattr(given, "__name__", ""))
def test_a_defect_of_what_is_handed_over_by_name_is_found(target: Any, name: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    with around(target, name, change), pytest.raises((AssertionError, ValueError, KeyError)):
        sum(run_sharing(form, seed, 1 << 9).named for form in OF_RUNS[::-1] for seed in range(SEEDS_OF_A_DEFECT))
