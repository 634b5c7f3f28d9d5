"""One disturbed job from outside: its driver, its actors' processes, the phase that it is in, and how it ended."""

from __future__ import annotations

import collections
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

import rayad as rd
from rayad.snapshots.store import SnapshotStore
from tests.chaos.disturbed import Mark, disturbed_model, read_marks
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import actors, address, is_dead

KINDS = {"replica": "VertexActor", "progress": "ProgressActor", "coordinator": "Coordinator"}
PHASES = ("steady", "aligning", "writing", "committing", "changing", "recovering")


class Violation(AssertionError):
    """The job broke a guarantee."""


class Victim:
    """A running job.

    Args:
        topology, seed, epochs: of its dataflow.
        folder: of this run alone.
        rescales: whether replicas are added and removed meanwhile.
    """

    def __init__(
        self,
        topology: str,
        seed: int,
        epochs: int,
        folder: Path,
        heartbeat_timeout_s: float = 60.0,
        cpus_per_replica: float = 0.01,
        *,
        rescales: bool = False,
    ) -> None:
        self.topology, self.seed, self.epochs, self.folder = topology, seed, epochs, folder
        self.options = (heartbeat_timeout_s, cpus_per_replica, int(rescales))
        self.doomed: set[int] = set()
        self.recoveries: list[tuple[str, float]] = []
        self._marks: list[Mark] = []
        self._read = 0
        self._struck_s = 0.0
        self._struck = ""
        self._is_back = False
        self.log = (folder / "log").open("ab")
        self.start()
        self.expected = disturbed_model(topology, seed, epochs)  # computed while the job starts
        self.rows = collections.Counter((time.epoch, repr(record)) for time, record in self.expected)

    # -- the driver ----------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start a driver."""
        words = [address(), self.topology, self.seed, self.epochs, self.folder, *self.options]
        command = [sys.executable, "-m", "tests.chaos.driver", *map(str, words)]
        self.struck("start")
        self.driver = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, "RAY_ADDRESS": ""})

    def changes(self) -> int:
        """How many changes of layout there have been."""
        path = self.folder / "changes"
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def is_over(self) -> bool:
        """Whether the driver has ended; the job has then ended as well."""
        return self.driver.poll() is not None

    # -- phases --------------------------------------------------------------------------------------------------------------------
    def struck(self, what: str) -> None:
        """From now on the job counts as recovering, until records reach the sink again."""
        self._struck_s, self._struck, self._is_back = time.time(), what, False

    def marks(self) -> list[Mark]:
        """All marks of the job so far."""
        fresh, self._read = read_marks(self.folder, self._read)
        self._marks += fresh
        return self._marks

    def is_back(self) -> bool:
        """Whether, since the last fault, sources have read and records have reached the sink."""
        if not self._is_back:
            marks = self.marks()
            begun = [one.when_s for one in marks if one.what == "source" and one.when_s > self._struck_s]
            back = [one for one in marks if one.what == "recv" and begun and one.when_s >= begun[0]]
            if back:
                self._is_back = True
                self.recoveries.append((self._struck, back[0].when_s - self._struck_s))
        return self._is_back

    def phase(self) -> str:
        """The current phase, by the job's marks and its store."""
        if not self.is_back():
            return "recovering"
        changes = [one for one in self.marks() if one.what.startswith("change-") and one.when_s > self._struck_s]
        if changes and changes[-1].what == "change-begins":
            return "changing"
        commits = [one for one in self.marks() if one.what.startswith("commit-") and one.when_s > self._struck_s]
        if commits and commits[-1].what == "commit-begins":
            return "committing"
        store = self.folder / "chaos" / "snapshots"
        try:
            pending = [path for path in store.iterdir() if path.is_dir() and not (path / "manifest.json").exists()]
            newest = max(pending, key=lambda path: path.name, default=None)
            names = [path.name for path in newest.iterdir()] if newest is not None else []
        except OSError:
            return "steady"
        if not names:
            return "steady"
        return "writing" if any(name.startswith("watch-0-") for name in names) else "aligning"

    def wait_for(self, phase: str, timeout_s: float) -> bool:
        """Wait until the job is in a phase; False when it has ended, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and not self.is_over():
            if self.phase() == phase:
                return True
            time.sleep(0.004)
        return False

    def processes(self, kind: str) -> list[psutil.Process]:
        """Living processes of a kind of actor of the job."""
        if kind == "driver":
            return [] if self.is_over() else [psutil.Process(self.driver.pid)]
        return [process for process in actors(KINDS[kind]) if process.pid not in self.doomed]

    # -- faults --------------------------------------------------------------------------------------------------------------------
    def kill(self, process: psutil.Process, kind: str) -> None:
        """SIGKILL, and wait until the process is dead. Processes that die with it are not killed again."""
        phase = self.phase()
        if kind in ("coordinator", "driver"):
            doomed = {one.pid for each in KINDS if each != "coordinator" or kind == "driver" for one in self.processes(each)}
        else:
            doomed = {process.pid}
        process.send_signal(signal.SIGKILL)
        deadline_s = time.monotonic() + 10
        while not is_dead(process.pid):
            if time.monotonic() > deadline_s:
                raise Violation(f"process {process.pid} survived SIGKILL")
            if kind == "driver":
                self.driver.poll()
            time.sleep(0.002)
        self.doomed |= doomed | {process.pid}
        self.struck(f"{kind}/{phase}")
        if kind == "driver":
            self.driver.wait(10)
            self.start()
            self._struck = f"{kind}/{phase}"

    def store(self) -> SnapshotStore:
        """The store of its snapshots."""
        return SnapshotStore(str(self.folder / "chaos" / "snapshots"))

    def given_up(self) -> int:
        """How many attempts at a snapshot were given up, by the log."""
        return (self.folder / "log").read_text(errors="replace").count("was given up")

    def explain(self) -> str:
        """Ask the driver why nothing moves; gives the end of its log."""
        if not self.is_over():
            self.driver.send_signal(signal.SIGUSR1)
            self.driver.send_signal(signal.SIGUSR2)
            time.sleep(8)
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    # -- the end -------------------------------------------------------------------------------------------------------------------
    def finish(self, timeout_s: float) -> None:
        """Wait for the end, and verify."""
        try:
            self.driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Violation(f"not complete {timeout_s} s after the last fault:\n{self.explain()}") from None
        self.verify()

    def look_at_files(self) -> None:
        """Check the committed rows: each is a row of the model, and none comes twice."""
        try:
            table = rd.read_committed(self.folder / "out").to_table().to_pylist()
        except (rd.ConfigError, FileNotFoundError):
            return  # nothing is committed yet, or files are being rolled back
        extra = collections.Counter((row["epoch"], row["record"]) for row in table) - self.rows
        if extra:
            raise Violation(f"committed and wrong: {list(extra.items())[:10]}")

    def verify(self) -> None:
        """Compare everything with the model."""
        if self.driver.returncode:
            raise Violation(f"the driver ended with {self.driver.returncode}:\n{self.explain()}")
        collected, _ = pickle.loads((self.folder / "result").read_bytes())
        mine, theirs = collections.Counter(collected), collections.Counter((str(time), repr(record)) for time, record in self.expected)
        if mine != theirs:
            raise Violation(f"collected: missing {list((theirs - mine).items())[:8]}, too many {list((mine - theirs).items())[:8]}")
        table = rd.read_committed(self.folder / "out").to_table().to_pylist()
        rows = collections.Counter((row["epoch"], row["record"]) for row in table)
        if rows != self.rows:
            raise Violation(f"files: missing {list((self.rows - rows).items())[:8]}, too many {list((rows - self.rows).items())[:8]}")

    def end(self) -> None:
        """Leave nothing behind."""
        self.driver.kill()
        self.driver.wait(10)
        self.log.close()
        deadline_s = time.monotonic() + 30
        while job_processes():
            if time.monotonic() > deadline_s:
                left = job_processes()
                for process in left:
                    process.kill()
                raise Violation(f"left behind: {left}")
            time.sleep(0.05)
