"""Files of state beyond memory: what is free in the process goes back to the system as they are written."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayad.actors.process.allocator import keep_freed_memory
from rayad.actors.worker import state_files
from rayad.actors.worker.state_files import StateFiles
from tests.fresh_process import in_fresh_process

LARGE, SMALL = 1 << 20, 1 << 12


def anonymous_mb() -> float:
    """Memory of this process that is no page of a file."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("Anonymous:"))


def free_and_left(every_bytes: int, directory: str) -> tuple[float, float]:
    """MB that a process keeps in holes between small arrays, before and after a file of state is written."""
    assert keep_freed_memory()
    pa.set_memory_pool(pa.system_memory_pool())  # as in actor processes (rayad._worker)
    state_files.RELEASED_EVERY_BYTES = every_bytes
    files, before = StateFiles("v", directory), anonymous_mb()
    arrays = [np.ones(size, np.uint8) for _ in range(150) for size in (LARGE, SMALL)]
    arrays = [array for array in arrays if len(array) == SMALL]
    free = anonymous_mb() - before
    files.mapped(pa.record_batch({"n": np.arange(1000)}))
    return free, anonymous_mb() - before


def new_memory_of_arrays(has_some: bool) -> float:
    """MB that arrays of 16 MB in all have taken from the kernel."""
    import rayad.actors.process.allocator as allocator

    if has_some:
        allocator.have_freed_memory()
    before = anonymous_mb()
    arrays = [np.ones(LARGE, np.uint8) for _ in range(16)]
    return anonymous_mb() - before if arrays else 0.0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it likes")
def test_a_process_of_a_session_has_memory_for_the_first_batches() -> None:
    assert in_fresh_process(new_memory_of_arrays, True) < 1
    assert in_fresh_process(new_memory_of_arrays, False) > 15


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library gives memory back as it likes")
@pytest.mark.parametrize(("every_bytes", "goes_back"), [(1 << 10, True), (1 << 30, False)])
def test_what_is_free_goes_back_when_as_much_has_been_written(every_bytes: int, goes_back: bool, tmp_path: Path) -> None:
    free_mb, left_mb = in_fresh_process(free_and_left, every_bytes, str(tmp_path))
    assert free_mb > 100
    assert (left_mb < free_mb / 4) is goes_back, f"{free_mb} MB were free, {left_mb} are left"
