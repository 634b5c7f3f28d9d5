"""Where faults strike: the machines, the processes of the job on them, and the folders that they share."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos import machine_job
from tests.cluster.recovering import is_dead, of_kind
from tests.machines import jobs, links
from tests.machines.links import Network
from tests.machines.machines import Machines

KINDS = {"replica": "VertexActor", "progress": "ProgressActor", "coordinator": "Coordinator", "keeper": "Keeper"}
"""By what they are to the job: what Ray calls their processes."""
ENDED_S = 10.0


@dataclass
class Site:
    """What a fault is given.

    Args:
        machines: with Ray; the driver is on the first one.
        rng: draws.
        folder: of the job that runs now.
        heartbeat_s: after so long without an answer an actor of it counts as dead.
        is_detached: whether a keeper owns the job.
    """

    machines: Machines
    rng: random.Random
    folder: Path
    heartbeat_s: float
    is_detached: bool = False
    outputs: tuple[str, ...] = field(default=machine_job.OUTPUTS)

    @property
    def network(self) -> Network:
        """Their links."""
        return self.machines.network

    @property
    def others(self) -> list[int]:
        """All machines but the first: without that one there is no Ray, and no driver."""
        return self.machines.machines[1:]

    # -- processes -------------------------------------------------------------------------------------------------------------------
    def on(self, machine: int) -> list[psutil.Process]:
        """All processes of a machine."""
        found = []
        for pid in links.processes(self.network.name(machine)):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def processes(self, kind: str) -> list[tuple[int, psutil.Process]]:
        """The processes of a kind of actor, with their machines; also "driver"."""
        if kind == "driver":
            return [(1, psutil.Process(self.machines.driver_pid))]
        return [(machine, process) for machine in self.machines.machines for process in of_kind(KINDS[kind], self.on(machine))]

    def one(self, kind: str) -> tuple[int, psutil.Process] | None:
        """One of them; None when there is none."""
        found = self.processes(kind)
        return self.rng.choice(found) if found else None

    def kill(self, kind: str) -> bool:
        """SIGKILL of one process of a kind; whether it was there and is dead."""
        found = self.one(kind)
        if found is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            found[1].send_signal(signal.SIGKILL)
        return self.has_ended(found[1].pid)

    def has_ended(self, pid: int) -> bool:
        """Wait until a process is dead."""
        deadline_s = time.monotonic() + ENDED_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(psutil.NoSuchProcess):
                if not is_dead(pid):
                    time.sleep(0.01)
                    continue
            return True
        return False

    def end_job(self) -> None:
        """Kill whatever is left of jobs on all machines that are on."""
        for kind in KINDS:
            for _, process in self.processes(kind):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    # -- machines --------------------------------------------------------------------------------------------------------------------
    def switch_on(self) -> list[int]:
        """Switch machines on again, as new ones, that Ray has given up, or that are off; gives them."""
        alive = self.machines.call(jobs.alive)
        gone = [machine for machine in self.others if self.network.address(machine) not in alive]
        for machine in gone:
            self.network.kill(machine)
        for wait in [self.machines.begin(machine) for machine in gone]:
            wait()
        return gone

    def inside(self, machine: int, *words: str) -> str:
        """Run a command on a machine, with what is mounted there; gives its output."""
        return links.call(*self.network.inside(machine, *words))


def is_stopped(processes: Iterable[psutil.Process]) -> bool:
    """Whether all of these are in the state of SIGSTOP, but those that have ended."""
    states = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            states.add(process.status())
    return states <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
