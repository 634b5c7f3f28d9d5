"""Live inputs of a job on Ray: the driver's end of the data plane, and what it has to send again after a failure."""

from __future__ import annotations

import math
import threading
import time as clock
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rayad.actors.driver.coordinator_line import ANSWER_S, NoAnswer
from rayad.actors.inputs.job_input import no_snapshots, not_saved, took_nothing
from rayad.actors.job import SavedEpochs
from rayad.actors.lead.taking_over import taking_over_s
from rayad.actors.plane.batch_codec import payload_bytes
from rayad.actors.plane.credits import SendWindow
from rayad.actors.plane.plane import Address, ConnectFailed, Plane
from rayad.actors.plane.protocol import Kind, driver_name, pack_number, stage_of, unpack_credit
from rayad.actors.process.threads import OwnedThread, Threads
from rayad.actors.store.input_log import InputLog
from rayad.actors.store.keeper_files import Frame, KeeperFiles
from rayad.dataflow.config import RunConfig
from rayad.progress import DataflowError, RayadError

TRIM_EVERY_S = 1.0
"""Seconds between two questions to the coordinator which frames need not be kept any more."""
CONNECT_S = 5.0
"""How long one attempt to connect may take before the replica's address is asked for again: its machine may be gone."""
HOLD_S = 2.0
"""How long the coordinator keeps a question that waits for a snapshot, before it is asked again."""
LAST_ANSWER_S = 1.0
"""How long after its timeout a call waits for an answer that is under way."""
WATCH_EVERY_S = 0.2
"""How often the connections are looked at while nobody sends."""


@dataclass(frozen=True, slots=True)
class FedJob:
    """What live inputs need of the job that they feed."""

    name: str
    config: RunConfig
    survives: bool
    """Whether the job survives failures, so that what was sent may have to be sent again."""
    identity: Callable[[], tuple[str, bytes]]
    """The job's id on the data plane, and its secret: those of the current coordinator."""
    ask: Callable[..., Any]
    """A control call; raises NoAnswer."""
    ask_again: Callable[..., Any]
    """A control call that is repeated at the next coordinator when one dies."""
    has_outcome: Callable[[], bool]
    is_over: Callable[[], bool]
    raise_outcome: Callable[[], Any]
    """Wait for the end; raises what ended the job."""
    files: KeeperFiles | None = None
    """Where what was sent is kept, too, so that it outlives this process; None: nowhere."""


class InputPlane:
    """The driver's planes, one for each live input of a job; guarded by a lock, since a plane is for one thread at a time.

    In a job that survives failures, what was sent since the last snapshot is kept, up to a bound, and sent again when the job resumes from
    that snapshot. In other jobs nothing is kept. In a keeper it is kept in files, too: the process after it sends it again.

    Args:
        job: whose inputs these are.
        threads: of the job, which end with it.
    """

    def __init__(self, job: FedJob, threads: Threads) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._planes: dict[str, Plane] = {}
        self._processes: dict[str, str] = {}
        self._windows: dict[str, SendWindow] = {}
        self._closed_inputs: set[str] = set()
        self._logs: dict[str, InputLog] = {}
        self._sent: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._closed = False
        self._deadline_s = math.inf
        """Of the call that has the lock."""
        self._resumes = job.config.keeps_snapshots
        self._keeps = job.survives
        self._hastened_s = 0.0
        self._trimmed_s = 0.0
        self._looked_s = 0.0
        self._watcher: OwnedThread | None = None
        self._threads = threads
        self._over = threading.Event()

    @property
    def job(self) -> str:
        """The name of the job that it feeds."""
        return self._job.name

    @property
    def is_over(self) -> bool:
        """Whether the job's outcome is known."""
        return self._job.has_outcome()

    def open(self, peer: str, name: str) -> _State:
        """Before an input is used: how many batches have been sent to it, its epoch, and its note, when the job resumes from a snapshot."""
        with self._lock:
            self._names[peer] = name
            if not self._resumes:
                return 0, 0, None
            notes = self._where(peer)[2]
            sent, epoch, *more = notes.get("input_states", {}).get(name, (0, 0))  # a snapshot from before there were notes has none
            state = (sent, epoch, more[0] if more else None)
            if self._keeps and peer not in self._logs:
                self._logs[peer] = InputLog(_frames(notes, name))
                state = self._load(peer, name, state)
            self._sent.setdefault(peer, _frames(notes, name))
            return state

    def _load(self, peer: str, name: str, state: _State) -> _State:
        """What the process before this one was sent behind the snapshot: it is sent again. Gives the input's state after that."""
        log = self._logs[peer]
        for frame in self._job.files.load(name) if self._job.files is not None else ():
            if frame.number != log.first + len(log):
                continue  # the snapshot holds it
            log.append((Kind(frame.kind), frame.payload, frame.credit), sum(map(len, frame.payload)))
            state = _after(state, frame)
        if len(log):
            self._begin_to_watch()
        return state

    def send(self, peer: str, kind: Kind, payload: list[Any], *, credit: bool, timeout_s: float | None = None, mark: str = "") -> None:
        """Send one frame to an input's replica; with ``credit`` wait until there is room for it. Raises TimeoutError: it was not sent.

        ``mark``: says whose it is, to the process after this one.
        """
        deadline_s = clock.monotonic() + timeout_s if timeout_s is not None and credit else math.inf
        if not self._acquire(deadline_s):
            raise took_nothing(self._names[peer], self._job.name, timeout_s or 0.0)
        before_s, self._deadline_s = self._deadline_s, min(self._deadline_s, deadline_s)
        try:
            self._send(peer, kind, payload, credit=credit, mark=mark)
        except (_Late, NoAnswer):
            if clock.monotonic() < deadline_s:
                raise
            raise took_nothing(self._names[peer], self._job.name, timeout_s or 0.0) from None
        finally:
            self._deadline_s = before_s
            self._lock.release()

    def _send(self, peer: str, kind: Kind, payload: list[Any], *, credit: bool, mark: str) -> None:
        """Send, or keep for sending; raises _Late or NoAnswer only before that."""
        self._check_open()
        is_timed = self._deadline_s < math.inf
        if is_timed:
            self._await_room(peer)
        if not self._keeps:
            plane = self._connect(peer)
            self._transmit(plane, peer, kind, payload, credit, self._sent.get(peer, 0))
            self._sent[peer] = self._sent.get(peer, 0) + 1
            if is_timed:
                self._begin_to_watch()  # the connection may still hold it
            return
        frame = [bytes(part) for part in payload]
        self._make_room(peer, sum(map(len, frame)))
        self._keep(peer, kind, frame, credit=credit, mark=mark)
        self._pump_now(peer) if is_timed else self._pump()
        self._begin_to_watch()

    def _acquire(self, deadline_s: float) -> bool:
        """Take the lock, for this thread; false when another call has the planes for too long."""
        return self._lock.acquire(timeout=min(max(0.0, deadline_s - clock.monotonic()), threading.TIMEOUT_MAX))

    def _ask_again(self, method: str, *args: Any, timeout_s: float) -> Any:
        """Ask the coordinator, or the next one, for as long as the call may take that has the planes. Raises NoAnswer."""
        left_s = max(0.0, self._deadline_s - clock.monotonic())
        return self._job.ask_again(method, *args, timeout_s=min(timeout_s, left_s + LAST_ANSWER_S), successor_s=left_s)

    def _check_time(self) -> None:
        """Raise _Late when the call that has the planes may take no longer."""
        if clock.monotonic() >= self._deadline_s:
            raise _Late

    def _begin_to_watch(self) -> None:
        if self._watcher is None:
            self._watcher = self._threads.start("inputs", self._watch, stop=self._over.set)

    def saved(self, name: str) -> SavedEpochs:
        """Which epochs of an input are in snapshots; an epoch of which that is not known counts as not saved."""
        if not self._resumes:
            raise no_snapshots(name, self._job.name)
        found: SavedEpochs = (self._job.ask_again("saved_epochs", timeout_s=ANSWER_S) or {}).get(name, SavedEpochs())
        return found

    def wait_saved(self, peer: str, name: str, epoch: int, timeout_s: float | None) -> None:
        """Ask for a snapshot behind all that was sent to an input, and wait until one holds an epoch of it."""
        if not self._resumes:
            raise no_snapshots(name, self._job.name)
        deadline_s = math.inf if timeout_s is None else clock.monotonic() + timeout_s
        if peer not in self._closed_inputs and not self._ask_to_save(peer, epoch, deadline_s):
            assert timeout_s is not None
            raise not_saved(name, self._job.name, epoch, timeout_s)
        while True:
            left_s = deadline_s - clock.monotonic()
            hold_s = max(0.0, min(HOLD_S, left_s))
            waits = {"timeout_s": min(hold_s + ANSWER_S, max(0.0, left_s) + LAST_ANSWER_S), "successor_s": left_s}
            with suppress(NoAnswer):
                if self._job.ask_again("wait_saved", name, epoch, hold_s, **waits):
                    return
            if self._ended():
                self._job.raise_outcome()
                if peer in self._closed_inputs:
                    return  # it is complete, and so is its last snapshot
                raise DataflowError(f"job {self._job.name!r} was stopped before a snapshot held epoch {epoch} of its input {name!r}")
            if clock.monotonic() > deadline_s:
                assert timeout_s is not None
                raise not_saved(name, self._job.name, epoch, timeout_s)

    def _ask_to_save(self, peer: str, epoch: int, deadline_s: float) -> bool:
        """Ask for a snapshot behind all that was sent; false when it could not be asked in time, since another call has the planes. What is
        kept may be sent later: a connection that is gone, or a job that recovers, is not waited for."""
        if not self._acquire(deadline_s):
            return False
        try:
            payload = [epoch.to_bytes(8, "little")]
            if not self._keeps:
                self.send(peer, Kind.INPUT_SAVE, payload, credit=False)
                return True
            self._check_open()
            self._keep(peer, Kind.INPUT_SAVE, payload, credit=False, mark="")
            self._pump_now(peer)
            self._begin_to_watch()
            return True
        finally:
            self._lock.release()

    def _keep(self, peer: str, kind: Kind, frame: list[bytes], *, credit: bool, mark: str) -> None:
        """Keep a frame until a snapshot holds it."""
        log = self._logs[peer]
        if self._job.files is not None:
            self._job.files.append(self._names[peer], Frame(log.first + len(log), kind, frame, credit, mark))
        log.append((kind, frame, credit), sum(map(len, frame)))

    def _await_room(self, peer: str) -> None:
        """Wait until a batch could be sent at once."""
        while True:
            try:
                plane = self._connect(peer)
                if self._keeps and self._windows[peer].may_send():
                    self._pump_some(peer)
                has_sent = not plane.queued_bytes(self._processes[peer]) and not (self._keeps and self._logs[peer].waits)
                if has_sent and self._windows[peer].may_send():
                    return
                self._take_credits(plane, peer, min(0.1, max(0.001, self._deadline_s - clock.monotonic())))
            except (_Lost, ConnectFailed):
                self._reset(peer)
            self._check_time()

    def _pump_now(self, peer: str) -> None:
        """Send what can be sent at once; the rest is sent later, by the thread that watches."""
        if peer in self._planes:
            try:
                self._pump_some(peer)
            except (_Lost, ConnectFailed):
                self._reset(peer)

    def _pump_some(self, peer: str) -> None:
        """Send again what can be sent again at once."""
        log, plane = self._logs[peer], self._connect(peer)
        while log.waits and self._windows[peer].may_send():
            kind, payload, credit = log.peek()
            self._transmit(plane, peer, kind, payload, credit, log.taken)
            log.next()

    def _make_room(self, peer: str, size: int) -> None:
        """Ask for snapshots, and wait until they have let so much be dropped that a frame has room."""
        log, config = self._logs[peer], self._job.config
        while log.bytes and log.bytes + size > config.input_log_bytes:
            if config.snapshots.interval_s is None:
                raise DataflowError(
                    f"input {self._names[peer]!r} of job {self._job.name!r} was sent {log.bytes} bytes since the last snapshot, which must "
                    f"be kept for a failure: RunConfig.input_log_bytes is {config.input_log_bytes}, and no snapshot is taken by itself; "
                    "give SnapshotConfig(interval_s=...), or call job.savepoint() from time to time"
                )
            self._check_time()
            self._pump()
            if clock.monotonic() - self._hastened_s > TRIM_EVERY_S:
                self._hastened_s = clock.monotonic()
                with suppress(NoAnswer):
                    self._job.ask(
                        "hasten_snapshot", timeout_s=min(ANSWER_S, max(0.0, self._deadline_s - clock.monotonic()) + LAST_ANSWER_S)
                    )
            try:
                self._take_credits(self._connect(peer), peer, 0.05)
            except (_Lost, ConnectFailed):
                self._reset(peer)

    def _pump(self) -> None:
        """Send all that has not been sent in this incarnation; after a loss, begin again with the next one."""
        while True:
            try:
                for peer, log in self._logs.items():
                    plane = self._connect(peer)
                    while log.waits:
                        kind, payload, credit = log.peek()
                        self._transmit(plane, peer, kind, payload, credit, log.taken)
                        log.next()
                    self._take_credits(plane, peer, 0.0)
                    self._look_where(plane, peer)
                self._trim()
                return
            except (_Lost, ConnectFailed):
                self._reset(peer)
            self._check_time()

    def _reset(self, peer: str) -> None:
        """The replica is gone: forget the connection; the next one begins where its incarnation resumed."""
        plane = self._planes.pop(peer, None)
        if plane is not None:
            plane.close(linger_s=0.0)
        clock.sleep(0.05)
        if self._ended():
            self._end()

    def _trim(self) -> None:
        if clock.monotonic() - self._trimmed_s > TRIM_EVERY_S and not self._ended():
            self._trimmed_s = clock.monotonic()
            try:
                saved = self._ask_again("saved_inputs", timeout_s=ANSWER_S) or {}
            except NoAnswer:
                return  # later
            for peer, name in self._names.items():
                self._logs[peer].trim(saved.get(name, 0))
                if self._job.files is not None:
                    self._job.files.trim(name, saved.get(name, 0))

    def _watch(self) -> None:
        while not self._over.wait(WATCH_EVERY_S):
            if not self._lock.acquire(timeout=WATCH_EVERY_S):
                continue  # the call that has the planes looks after them, and may last
            try:
                if self._closed or self._ended():
                    return
                if self._keeps:
                    self._pump()
                else:
                    for peer, plane in self._planes.items():
                        self._take_credits(plane, peer, 0.0)
            except Exception:
                return  # the job has ended: the next call that sends or waits reports how
            finally:
                self._lock.release()

    def _transmit(self, plane: Plane, peer: str, kind: Kind, payload: list[Any], credit: bool, number: int) -> None:
        payload = [pack_number(number), *payload]
        window = self._windows[peer]
        while credit and not window.may_send():
            self._check_time()
            self._take_credits(plane, peer, 0.1)
        if credit:
            window.on_send(payload_bytes(payload))
        plane.send(self._processes[peer], kind, stage_of(peer), payload)
        if kind == Kind.INPUT_CLOSE:
            self._closed_inputs.add(peer)
        self._take_credits(plane, peer, 0.0)
        process = self._processes[peer]
        while plane.connected(process) and plane.queued_bytes(process) and clock.monotonic() < self._deadline_s:
            self._take_credits(plane, peer, 0.05)

    def _take_credits(self, plane: Plane, peer: str, timeout_s: float) -> None:
        for frame in plane.poll(timeout_s):
            if frame.kind == Kind.CREDIT:
                self._windows[peer].on_credit(*unpack_credit(frame.payload)[:2])
        if timeout_s:
            self._look_where(plane, peer)
        if plane.take_lost() or (timeout_s and self._ended()):
            if self._keeps and not self._ended():
                raise _Lost
            if peer in self._closed_inputs:  # all input was sent: the job may be complete
                self._job.raise_outcome()
                return
            self._end()

    def _look_where(self, plane: Plane, peer: str) -> None:
        """Raise _Lost when the replica runs in a later incarnation, or under another coordinator, whose incarnations begin anew, perhaps
        elsewhere: a machine that is gone, or that stands still, closes no connection."""
        if self._keeps and clock.monotonic() - self._looked_s > TRIM_EVERY_S:
            self._looked_s = clock.monotonic()
            try:
                found = self._ask_again("where", peer, 0.0, timeout_s=ANSWER_S)
            except NoAnswer:
                return  # later
            if found is not None and (found[1] > plane.incarnation or plane.job != self._job.identity()[0]):
                raise _Lost

    def _ended(self) -> bool:
        return self._job.has_outcome() or self._job.is_over()

    def _end(self) -> None:
        self._job.raise_outcome()  # raises what ended the job
        raise DataflowError(f"job {self._job.name!r} has ended: its inputs take nothing any more")

    def _check_open(self) -> None:
        if self._closed or self._job.has_outcome():
            self._job.raise_outcome()
            raise DataflowError(f"job {self._job.name!r} has ended: its inputs take nothing any more")

    def _connect(self, peer: str) -> Plane:
        self._check_open()
        plane = self._planes.get(peer)
        if plane is not None:
            return plane
        config = self._job.config
        address, incarnation, notes, process = self._where(peer)
        job, secret = self._job.identity()
        plane = Plane(name=driver_name(stage_of(peer)), job=job, incarnation=incarnation, secret=secret, seals=bool(config.encrypt))
        most_s = min(CONNECT_S, config.start_timeout_s) if self._keeps else config.start_timeout_s
        try:
            plane.connect(process, address, timeout_s=min(most_s, max(0.01, self._deadline_s - clock.monotonic())))
        except BaseException:
            plane.close(linger_s=0.0)
            raise
        self._planes[peer], self._processes[peer] = plane, process
        self._windows[peer] = SendWindow(config.window_batches, int(config.window_bytes))
        if self._keeps:
            self._logs[peer].rewind(_frames(notes, self._names[peer]))
        return plane

    def _where(self, peer: str) -> tuple[Address, int, dict[str, Any], str]:
        """Where an input's replica is, its incarnation, the notes of the snapshot from which it resumed, and its process, once the job
        runs."""
        timeout_s = self._job.config.start_timeout_s
        most_s = timeout_s + ANSWER_S + taking_over_s(self._job.config)
        found: tuple[Address, int, dict[str, Any], str] | None
        found = self._ask_again("where", peer, min(timeout_s, max(0.0, self._deadline_s - clock.monotonic())), timeout_s=most_s)
        if found is None:
            if not self._ended():
                self._check_time()
            self._job.raise_outcome()
            raise RayadError(f"job {self._job.name!r} did not start its inputs within {timeout_s} s")
        return found

    def close(self) -> None:
        """Close the planes: the job is over."""
        with self._lock:
            self._closed = True
            self._over.set()
            for plane in self._planes.values():
                plane.close(linger_s=0.0)
            self._planes.clear()


_State = tuple[int, int | None, str | None]
"""Of an input: how many batches have been sent to it, its epoch (None: it is closed), its note."""


def _after(state: _State, frame: Frame) -> _State:
    """An input's state after one more frame."""
    sent, epoch, note = state
    match Kind(frame.kind):
        case Kind.INPUT_BATCH:
            return sent + 1, epoch, note
        case Kind.INPUT_ADVANCE:
            return sent, int.from_bytes(frame.payload[0], "little"), note
        case Kind.INPUT_CLOSE:
            return sent, None, note
        case Kind.INPUT_NOTE:
            return sent, epoch, frame.payload[0].decode()
        case _:
            return state


def _frames(notes: dict[str, Any], name: str) -> int:
    """How many frames of an input a snapshot holds."""
    return int(notes.get("inputs", {}).get(name, 0))


class _Late(Exception):
    """The call that has the planes may take no longer."""


class _Lost(Exception):
    """The connection to an input's replica has ended, but the job has not."""
