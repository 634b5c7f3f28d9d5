"""The spilling queue is a deque whose memory is bounded."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.plane import spilling_queue
from rayad.actors.plane.spilling_queue import SpillError, SpillingQueue
from rayad.progress import ConfigError, InternalError

actions = st.lists(st.one_of(st.integers(0, 60), st.none(), st.none()), max_size=120)


@given(memory=st.integers(0, 150), read=st.sampled_from([8, 9, 50, 1 << 20]), steps=actions)
def test_it_is_a_deque(memory: int, read: int, steps: list[int | None]) -> None:
    """A number pushes an item of so many bytes, None pops."""
    model: deque[bytes] = deque()
    queue = SpillingQueue(memory)
    before, spilling_queue.READ_BYTES = spilling_queue.READ_BYTES, read
    try:
        for number, step in enumerate(steps):
            if step is not None:
                item = bytes([number % 256]) * step
                queue.push(item)
                model.append(item)
            elif model:
                assert queue.pop() == model.popleft()
            else:
                with pytest.raises(IndexError):
                    queue.pop()
            assert len(queue) == len(model)
            assert queue.memory_bytes <= max(memory, 60)
            queue.check_invariants()
        assert [queue.pop() for _ in range(len(queue))] == list(model)
        assert queue.disk_bytes == 0
    finally:
        spilling_queue.READ_BYTES = before
        queue.close()


def test_memory_is_bounded_and_the_file_is_truncated_when_the_queue_is_empty(tmp_path: Path) -> None:
    queue = SpillingQueue(1000, str(tmp_path))
    for number in range(100):
        queue.push(bytes([number]) * 100)
    assert (queue.memory_bytes, queue.disk_bytes) == (1000, 90 * 108)
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    assert [queue.pop()[0] for _ in range(100)] == list(range(100))
    assert os.fstat(queue._fd).st_size == 0
    queue.push(b"x" * 1001)
    assert queue.pop() == b"x" * 1001
    queue.close()
    queue.close()
    with pytest.raises(InternalError, match="closed"):
        queue.push(b"")


def test_space_before_the_read_position_is_freed_while_the_file_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling_queue, "PUNCH_BYTES", 1 << 16)
    queue = SpillingQueue(0, str(tmp_path))
    for _ in range(64):
        queue.push(b"x" * (1 << 15))
    full = os.fstat(queue._fd).st_blocks
    for _ in range(60):
        queue.pop()
    left = os.fstat(queue._fd).st_blocks
    queue.close()
    if sys.platform.startswith("linux"):
        assert left < full / 2


def test_views_are_kept_without_a_copy_in_memory_and_survive_the_disk() -> None:
    data = bytearray(b"abcdef")
    queue = SpillingQueue(3)
    queue.push(memoryview(data)[:3])
    queue.push(memoryview(data)[3:])
    first = queue.pop()
    assert isinstance(first, memoryview)
    assert first.obj is data
    assert queue.pop() == b"def"
    queue.close()


def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    """The limit on the file size stands for the full disk: the write stops in the middle of the item."""
    queue = SpillingQueue(10, str(tmp_path))
    queue.push(b"memory")
    queue.push(b"x" * 50)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(SpillError) as caught:
            queue.push(b"y" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value) == (
        f"cannot spill an item of 500 bytes to {str(tmp_path)!r}, where this queue has 58 bytes already: File too large; "
        "free space there, or give a spill directory on a larger disk"
    )
    assert pickle.loads(pickle.dumps(caught.value)).errno == errno.EFBIG
    queue.push(b"after")
    assert [queue.pop(), queue.pop(), queue.pop()] == [b"memory", b"x" * 50, b"after"]
    queue.close()


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpillError, match=r"No such file or directory; give a directory that exists and can be written"):
        SpillingQueue(0, str(tmp_path / "no")).push(b"x")
    with pytest.raises(ConfigError):
        SpillingQueue(-1)


def test_nothing_is_left_behind_by_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal\nfrom rayad.actors.plane.spilling_queue import SpillingQueue\n"
        "q = SpillingQueue(0, sys.argv[1])\nq.push(b'x' * 100000)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
