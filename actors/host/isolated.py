"""A step that runs in a process beside its replica's, so that a record which ends the process does not end the replica.

    replica: Isolated ── batch ──> helper: Tried, and the user's function in it
                      <── what came out, and the records that failed ──

A replica begins so when processes of its vertex have ended too often (``after_crashes``, ``actors/lead/crashes.py``); else nothing here
is made or paid. When the helper ends, another one is started and gets the records of the batch one by one: one that ends the helper
ALONE_MAX times in a row is set aside. It is an ordinary bad record from then on: of its time, in the snapshots, counted.

Why a process, and not a note of what is worked on that outlives the replica: a note says what ran when a process ended, whatever ended
it; a record is at fault when it does so again, alone. The job restarts no more meanwhile, however many such records there are. Prior
art: the delivery limit of SQS and RabbitMQ, Dask's ``allowed-failures``, Celery's ``reject_on_worker_lost``; all count by delivery.

The helper is a plain process, which does not use Ray; it ends with the thread that started it, so also with the replica.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.process.ending import end_at_once
from rayad.dataflow.operators.bad_records import Outcome, SetAside, Tried, good_of, joined, ones
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, InternalError, Timestamp, say

ALONE_MAX = 2
"""A record is set aside when its call, alone, has ended so many helpers in a row: one may have been ended by something else."""
LOOK_S = 0.5
"""How often it looks whether the helper has ended; its answer is noticed at once."""
END_S = 2.0
"""How long a helper may take to end by itself."""
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from rayad.actors.host.isolated import serve; serve(int(sys.argv[1]))"
_PR_SET_PDEATHSIG = 1
_TIME = Timestamp(0)
_READY, _DONE, _RAISED, _CANNOT = b"ready", b"done", b"raised", b"cannot"

_log = logging.getLogger(__name__)


class HelperEnded(Exception):
    """The helper has ended; how, in words."""


class CannotTravel(Exception):
    """Something cannot be sent between the two processes."""


class Isolated(Element):
    """A step of a replica whose function runs in a helper.

    Args:
        tried: the step, as the program has it.
        who: the replica, for the log.
        env: more environment variables for the helper.
    """

    def __init__(self, tried: Tried, who: str = "", env: dict[str, str] | None = None) -> None:
        self._tried = tried
        self._counts = Tried(tried.element, tried.operator, tried.line)  # what is set aside while the helper runs it
        self._who = who
        self._env = env or {}
        self._helper: _ProcessBeside | None = None
        self._at_home: Tried | None = None  # once it runs in the replica's own process
        self.ended = 0
        """How many helpers have ended while they had work."""

    @property
    def set_aside(self) -> SetAside | None:
        """See :class:`Tried`."""
        return (self._at_home or self._counts).set_aside

    @property
    def is_isolated(self) -> bool:
        """Whether the function still runs in a helper."""
        return self._at_home is None

    def apply(self, batch: Any) -> Any:
        if self._at_home is None:
            try:
                good, bad = self._of(batch)
            except CannotTravel as why:
                _log.warning("%s: %r runs in the replica's own process again: %s", self._who, self._tried.operator, why)
                self._go_home()
            else:
                self._counts.count(bad)
                return Outcome(good, bad) if bad else good
        assert self._at_home is not None
        return self._at_home.apply(batch)

    def acquit(self) -> None:
        """What was worked on when processes ended lies behind. If no helper has ended, the function is not to blame, and returns."""
        if self._at_home is None and not self.ended:
            self._go_home()

    def close(self) -> None:
        self._end_helper()
        if self._at_home is not None:
            self._at_home.close()

    def culprit(self, batch: Any) -> Any:
        return None  # it is not called once more in this process

    def _go_home(self) -> None:
        self._end_helper()
        home = self._tried.for_replica()
        home.set_aside = self._counts.set_aside
        self._at_home = home

    def _of(self, batch: Any) -> tuple[Any, list[Any]]:
        """What comes out of a batch, and the bad records."""
        try:
            return self._ask(batch)
        except HelperEnded as how:
            _log.warning("%s: %r ended its helper process (%s) in a batch of %d", self._who, self._tried.operator, how, len(batch))
            if len(batch) == 1:
                return self._alone(batch, str(how), 1)
        pieces: list[Any] = []
        bad: list[Any] = []
        for one in ones(batch):
            good, more = self._alone(one, "", 0)
            pieces.append(good)
            bad += more
        return joined(pieces), bad

    def _alone(self, one: Any, how: str, times: int) -> tuple[Any, list[Any]]:
        """Call the helper for one record that has already ended ``times`` helpers."""
        while times < ALONE_MAX:
            try:
                return self._ask(one)
            except HelperEnded as again:
                how, times = str(again), times + 1
        bad = self._tried.bad(to_rows(one)[0], f"ended its process: {how}")
        _log.warning("%s: %r sets a record aside that ended its process %d times: %s", self._who, self._tried.operator, times, how)
        return [], [bad]

    def _ask(self, batch: Any) -> tuple[Any, list[Any]]:
        if self._helper is None:
            self._helper = _ProcessBeside(self._tried, self._env)
        try:
            return self._helper.ask(batch)
        except HelperEnded:
            self.ended += 1
            self._end_helper()
            raise

    def _end_helper(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()


def isolated(who: str, ended: int, env: dict[str, str], element: Element) -> Element | None:
    """A step as it runs in a replica of a vertex whose processes have ended so often in a row; None: as always."""
    return Isolated(element, who, env) if isinstance(element, Tried) and element.isolated_after(ended) else None


class _ProcessBeside:
    """One helper process, seen from the replica. Raises DataflowError when the step cannot be made there."""

    def __init__(self, tried: Tried, env: dict[str, str]) -> None:
        self._connection, theirs = Pipe()
        number = theirs.fileno()
        command = [sys.executable, "-c", _BOOT, str(number), json.dumps(sys.path)]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=null, pass_fds=(number,), env={**os.environ, **env})
        theirs.close()
        try:
            self._send(cloudpickle.dumps((os.getpid(), tried)))
            self._told()
        except HelperEnded as how:
            self.end()
            raise DataflowError(
                f"{tried.operator!r} ({tried.line}) ended its helper process ({how}) while it was made, before it had a record"
            ) from None
        except BaseException:
            self.end()
            raise

    def ask(self, batch: Any) -> tuple[Any, list[Any]]:
        """What comes out of a batch, and the bad records. Raises HelperEnded, CannotTravel, and what ends the job."""
        try:
            data = b"".join(encode_batch(_TIME, batch))
        except DataflowError as error:
            raise CannotTravel(f"what it is given cannot be sent to another process: {say(error)}") from error
        self._send(data)
        self._told()
        good, bad = self._receive(), self._receive()
        return _decoded(good), _decoded(bad)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._connection.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()  # ends with the process, which cannot refuse

    def _told(self) -> None:
        """Wait until the helper has done what it was asked for; raises what it says otherwise."""
        kind = self._receive()
        if kind == _CANNOT:
            raise CannotTravel(self._receive().decode())
        if kind == _RAISED:
            error, where = pickle.loads(self._receive())
            error.add_note(f"In the helper process:\n{where}")
            raise error

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send_bytes(data)
        except OSError:
            raise HelperEnded(self._how()) from None

    def _receive(self) -> bytes:
        try:
            while not self._connection.poll(LOOK_S):  # ends with the helper, or with the replica that is stuck in its user's function
                is_over = self._process.poll() is not None  # ends with this line: it only looks
                if is_over and not self._connection.poll(0):
                    raise HelperEnded(self._how())  # what it has left behind holds the connection open
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise HelperEnded(self._how()) from None

    def _how(self) -> str:
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return _named(-code) if code < 0 else f"exit status {code}"


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _encoded(value: Any) -> bytes:
    """A batch, or a table, as bytes. Raises DataflowError or an error of pickle where it cannot travel."""
    if isinstance(value, list) or hasattr(value, "num_columns"):
        with suppress(DataflowError):  # a table is none of its batches; a record that cannot be pickled fails below as well
            return b"b" + b"".join(encode_batch(_TIME, value))
    pickled: bytes = cloudpickle.dumps(value, 5)
    return b"p" + pickled


def _decoded(data: bytes) -> Any:
    body = memoryview(data)[1:]
    return decode_batch(body)[1] if data[:1] == b"b" else pickle.loads(body)


# -- in the helper ----------------------------------------------------------------------------------
def serve(number: int) -> None:
    """The life of a helper: make the step, then answer for each batch, until the replica closes the connection (a file descriptor)."""
    os.set_inheritable(number, False)
    connection = Connection(number)
    replica, tried = pickle.loads(connection.recv_bytes())
    _end_with(replica)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    try:
        step = tried.for_replica()
        step.warm_up()
    except Exception as error:
        _say_raised(connection, error)
        return
    connection.send_bytes(_READY)
    while True:
        try:
            data = connection.recv_bytes()  # ends with the connection
        except (EOFError, OSError):
            break
        _answer(connection, step, data)
    step.close()


def _answer(connection: Connection, step: Tried, data: bytes) -> None:
    try:
        out = step.apply(decode_batch(data)[1])
    except Exception as error:
        _say_raised(connection, error)
        return
    try:
        parts = [_encoded(good_of(out)), _encoded(list(out) if type(out) is Outcome else [])]
    except Exception as error:
        told = f"what it gives cannot be sent to another process: {type(error).__name__}: {say(error)}"
        connection.send_bytes(_CANNOT)
        connection.send_bytes(told.encode())
        return
    connection.send_bytes(_DONE)
    for part in parts:
        connection.send_bytes(part)


def _say_raised(connection: Connection, error: Exception) -> None:
    """An error that ends the job: of Rayad's, of memory, or of making the step."""
    where = "".join(traceback.format_exception(error))
    try:
        said = pickle.dumps((error, where))
        pickle.loads(said)
    except Exception:
        said = pickle.dumps((InternalError(f"{type(error).__name__}: {say(error)}"), where))
    connection.send_bytes(_RAISED)
    connection.send_bytes(said)


def _end_with(replica: int) -> None:
    """This process ends when the thread of the replica that started it does, whatever it is busy with."""
    with suppress(OSError, AttributeError):  # not Linux: then it ends when its connection does
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != replica:
        end_at_once(1)


__all__ = ["ALONE_MAX", "Isolated", "isolated", "serve"]
