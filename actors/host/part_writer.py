"""Writing a replica's parts while it processes on: a thread writes to the store, a forked copy of the process pickles large state.

The copy sees the state as it was at the capture, however long pickling takes, and shares its memory until either side writes; the replica
continues after the few milliseconds that fork takes. (Redis saves its data in the same way.) The copy runs one thread, which only pickles
into a pipe: it uses none of the sockets and threads that it inherited, and ends by ``end_at_once``.

A lock that another thread held at the fork is never released in the copy: what waits for it there (a ``__reduce__`` that asks a client
library, an allocator) hangs. So a copy that writes nothing and uses no processor time is killed, its attempt fails, and from then on the
state is pickled in place. A copy whose attempt is given up is killed at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import queue
import select
import signal
import sys
import threading
import time as clock
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rayad.actors.process.ending import end_at_once
from rayad.actors.process.threads import OwnedThread
from rayad.actors.replica.captures import Capture, Written
from rayad.actors.replica.parts.part_files import dumped, write_rest, write_staged, write_state
from rayad.dataflow.plan import Stage
from rayad.progress import SnapshotError, say
from rayad.snapshots.store import SnapshotStore

FORK_BYTES_MIN = 1 << 18
"""State of at least this size is pickled in a forked copy; below, pickling at once takes less than the fork."""
FORK_RECORDS_MIN = 20_000
"""State of unknown size is treated as large when the replica has received this many records since it was last written."""
HUNG_S = 20.0
"""A copy that writes nothing and uses no processor time for so long counts as hung."""
CHUNK_BYTES = 1 << 20
_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


class PartWriter:
    """Writes the parts of one replica, one after another, in a thread of its own.

    Args:
        store, stage, replica, incarnation: what names the files.
        wake: called, from that thread, when something is in :attr:`done`.
        hung_s: see HUNG_S.
    """

    def __init__(
        self, store: SnapshotStore, stage: Stage, replica: int, incarnation: int, wake: Callable[[], None], *, hung_s: float = HUNG_S
    ) -> None:
        self.done: deque[Written] = deque()
        self._where = (store, stage, replica, incarnation)
        self._wake = wake
        self._queue: queue.SimpleQueue[tuple[str, Written, Any] | None] = queue.SimpleQueue()
        self._thread: OwnedThread | None = None
        self._open: dict[int, Written] = {}
        self._last_bytes = 0
        self._children: dict[int, int] = {}  # copies that have not been waited for, by attempt
        self._lock = threading.Lock()
        self._hung_s = hung_s
        self._copies_hang = False

    def take_state(self, capture: Capture, *, records: int, inline: bool) -> None:
        """Take the state as it is now: pickle it, or fork a copy that will. ``records``: received since the last time."""
        written = self._open[capture.barrier.number] = Written(capture)
        make = capture.state
        if make is None:
            return
        is_large = records >= FORK_RECORDS_MIN or (self._last_bytes >= FORK_BYTES_MIN and not capture.is_increment)
        source: Any
        try:
            if is_large and not inline and not self._copies_hang and sys.platform == "linux":
                source = self._fork(capture.barrier.number, lambda: dumped(make(), capture.runs))
            else:
                source = dumped(make(), capture.runs)
        except Exception as error:
            written.why_failed = f"its state could not be taken: {type(error).__name__}: {say(error)}"
            return
        self._put("state", written, source)

    def complete(self, capture: Capture) -> None:
        """The log of a capture is complete: write the rest, then report."""
        written = self._open.pop(capture.barrier.number, None)
        if written is not None:
            self._put("rest", written, None)

    def give_up(self, number: int) -> None:
        """A capture is no longer wanted."""
        self._open.pop(number, None)
        self._kill(number)

    def close(self) -> None:
        """End the thread, and the copy of the process if there is one."""
        if self._thread is not None:
            self._queue.put(None)
            for number in list(self._children):
                self._kill(number)
            self._thread.close(5.0)
            self._thread = None

    def _put(self, what: str, written: Written, source: Any) -> None:
        if self._thread is None:
            self._thread = OwnedThread("part-writer", self._run).start()
        self._queue.put((what, written, source))

    # -- in the writer's thread --------------------------------------------------------------------
    def _run(self) -> None:
        while (item := self._queue.get()) is not None:  # ends with the None that close() puts
            what, written, source = item
            began_s = clock.thread_time()
            try:
                if what == "state":
                    self._write_state(written, source)
                elif not written.why_failed:
                    self._write_rest(written)
            except Exception as error:
                told = str(error) if isinstance(error, SnapshotError) else f"{type(error).__name__}: {say(error)}"
                written.why_failed = written.why_failed or told
            written.cost_s += clock.thread_time() - began_s
            if what == "rest":
                self.done.append(written)
                self._wake()

    def _write_state(self, written: Written, source: Any) -> None:
        write_state(*self._where, written, source if isinstance(source, list) else self._chunks(source, written))
        if not written.capture.is_increment and written.state is not None:
            self._last_bytes = written.state.size

    def _write_rest(self, written: Written) -> None:
        store, stage, replica, incarnation = self._where
        capture = written.capture
        written.rest = write_rest(store, stage, replica, incarnation, capture.barrier, capture.rest)
        written.staged = write_staged(store, stage, replica, incarnation, capture.barrier, capture.staged)

    def _chunks(self, source: tuple[int, int, int], written: Written) -> Iterator[bytes]:
        child, data, trouble = source
        number, told, is_over = written.capture.barrier.number, "", False
        try:
            while self._has_output(child, data):
                chunk = os.read(data, CHUNK_BYTES)
                if not chunk:
                    is_over = True
                    told = os.read(trouble, 4096).decode(errors="replace")
                    break
                yield chunk
            else:
                self._copies_hang = True
                told = (
                    f"the copy of the process that pickled it hung, without output and without processor time for {self._hung_s:g} s, as "
                    "when another thread held a lock at the fork; from now on it is pickled in place"
                )
        finally:
            if not is_over:  # it hangs, or the store takes no more
                self._kill(number)
            os.close(data)
            os.close(trouble)
            used_s, status = self._reap(number, child)
            written.cost_s += used_s
        code = os.waitstatus_to_exitcode(status)
        if code:
            raise SnapshotError(f"its state could not be taken: {told or f'the copy of the process that pickled it ended with {code}'}")

    def _has_output(self, child: int, data: int) -> bool:
        """Wait for something to read, or the end; False when the copy hangs."""
        used, since_s = -1, clock.monotonic()
        poll = select.poll()
        poll.register(data, select.POLLIN | select.POLLHUP)
        while not poll.poll(1000 * min(1.0, self._hung_s / 4)):
            now_s, before = clock.monotonic(), used
            used = _ticks_of(child)
            if used != before:
                since_s = now_s
            elif now_s - since_s > self._hung_s:
                return False
        return True

    def _kill(self, number: int) -> None:
        """End the copy of an attempt, if there is one that has not been waited for: then its id is still its own."""
        with self._lock:
            child = self._children.get(number)
            if child is not None:
                os.kill(child, signal.SIGKILL)

    def _reap(self, number: int, child: int) -> tuple[float, int]:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
        with self._lock:
            _, status, usage = os.wait4(child, 0)
            self._children.pop(number, None)
        return usage.ru_utime + usage.ru_stime, status

    # -- the copy ----------------------------------------------------------------------------------
    def _fork(self, number: int, make: Callable[[], list[bytes | memoryview]]) -> tuple[int, int, int]:
        data_in, data_out = os.pipe()
        trouble_in, trouble_out = os.pipe()
        try:
            fcntl.fcntl(data_out, _PIPE_SIZE, CHUNK_BYTES)
        except OSError:
            pass  # smaller pieces
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: see the module's docstring
            child = os.fork()
        if child == 0:
            _in_the_copy(make, data_out, trouble_out)
        os.close(data_out)
        os.close(trouble_out)
        self._children[number] = child
        return child, data_in, trouble_in


def _in_the_copy(make: Callable[[], list[bytes | memoryview]], data: int, trouble: int) -> None:
    """Pickle into the pipe and end. Never returns."""
    code = 1
    try:
        gc.disable()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
        keep = sorted((data, trouble))
        highest = os.sysconf("SC_OPEN_MAX")
        os.closerange(3, keep[0])
        os.closerange(keep[0] + 1, keep[1])
        os.closerange(keep[1] + 1, min(highest, 1 << 16))
        with open(data, "wb", buffering=CHUNK_BYTES) as stream:
            for piece in make():
                stream.write(piece)
        code = 0
    except BaseException as error:
        os.write(trouble, f"{type(error).__name__}: {say(error)}".encode()[:4000])
    finally:
        end_at_once(code)


def _ticks_of(process: int) -> int:
    """The processor time that a process has used, in the kernel's ticks; -1 when it is gone."""
    try:
        with open(f"/proc/{process}/stat", encoding="latin-1") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])  # utime and stime, 14 and 15 of all
