"""``python -m tests.chaos --machines 3 --faults 40 --seed 1``: machines are cut off, slowed, switched off; connections and processes end.

The job of :mod:`tests.chaos.machine_job` runs on machines made of network namespaces. The seed draws the faults. A fault counts if it was
seen to happen; otherwise another one is drawn. After each fault all epochs sent by then must be complete within a bound, and committed
rows must be part of the model's; at the end they must be all of them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos import machine_job
from tests.chaos.victims import KINDS, Violation
from tests.cluster.recovering import is_dead, of_kind
from tests.machines import links
from tests.machines.machines import Machines

BOUND_S = 180.0
"""The bound from the end of a fault until everything that was sent before is complete. A machine that is switched off takes longest:
Ray notices it after some 12 s here, our heartbeat after 15 s, and new processes on a busy machine take as long again."""
HEARTBEAT_S = 15.0
CUT_S = (2.0, 9.0)
SLOW_S = 3.0
SLOW_RATE = "200kbit"
STOP_S = 5.0
WEIGHTS = {"cut": 9, "close": 12, "kill process": 8, "stop process": 5, "slow": 4, "switch off": 3}


class Disturbance:
    """One job on machines, and the faults of the machines."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self.machines, self.seed = machines, seed
        self.network = machines.network
        self.rng = random.Random(f"machines/{seed}")
        self.folder = machines.folder / "chaos"
        self.folder.mkdir()
        self.seen: collections.Counter[str] = collections.Counter()
        self.waits: list[tuple[float, str]] = []

    def go(self, faults: int, tell: Callable[[str], None]) -> None:
        """All faults, then the end."""
        self.machines.call(machine_job.start, self.seed, str(self.folder), HEARTBEAT_S)
        self.come_through("start")
        while sum(self.seen.values()) < faults:
            fault = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            time.sleep(self.rng.uniform(0.1, 1.5))
            seen = self.strike(fault)
            if not seen:
                continue
            self.seen[seen] += 1
            took_s = self.come_through(seen)
            self.look_at_files()
            tell(f"{sum(self.seen.values())}: {seen}; all that was sent has come through {took_s:.1f} s later")
        self.finish()

    # -- faults: each gives a text of what was seen to happen, or "" -----------------------------------------------------------------
    def strike(self, fault: str) -> str:
        """One fault."""
        machine = self.rng.choice(self.machines.machines[1:])
        match fault:
            case "cut":
                return self.cut(machine)
            case "slow":
                return self.slow(machine)
            case "switch off":
                return self.switch_off(machine)
            case "close":
                return self.close()
            case "kill process":
                return self.kill(self.rng.choice(["replica", "replica", "replica", "progress", "coordinator"]))
            case _:
                return self.stop(self.rng.choice(["replica", "replica", "progress", "coordinator"]))

    def cut(self, machine: int) -> str:
        self.network.cut(machine)
        until_s = time.monotonic() + self.rng.uniform(*CUT_S)
        was_gone = not self.answers(machine)
        time.sleep(max(0.0, until_s - time.monotonic()))
        self.network.mend(machine)
        return "machine cut off and mended" if was_gone and self.answers(machine) else ""

    def answers(self, machine: int) -> bool:
        """Whether the machine's kernel answers: it refuses a connection to a port on which nothing listens."""
        deadline_s = time.monotonic() + 2.0
        while time.monotonic() < deadline_s:
            try:
                socket.create_connection((self.network.address(machine), 9), timeout=0.5).close()
            except ConnectionRefusedError:
                return True
            except OSError:
                continue
        return False

    def slow(self, machine: int) -> str:
        self.network.slow(machine, SLOW_RATE)
        time.sleep(SLOW_S)
        told = links.call("tc", "-s", "qdisc", "show", "dev", self.network.link(machine))
        self.network.slow(machine, "")
        words = told.replace(",", " ").replace(")", " ").split()
        return "machine slowed" if "overlimits" in words and int(words[words.index("overlimits") + 1]) > 0 else ""

    def switch_off(self, machine: int) -> str:
        self.network.kill(machine)
        if links.processes(self.network.name(machine)):
            return ""
        time.sleep(self.rng.uniform(0.0, 3.0))
        self.machines.start(machine)
        return "machine switched off, another one in its place"

    def close(self) -> str:
        here, there = self.rng.sample(self.machines.machines, 2)
        ports = set(self.machines.call(machine_job.ports))
        pairs = [pair for pair in self.network.connections(here, there) if set(pair) & ports]
        return "single connection closed" if pairs and self.network.close(here, there, *self.rng.choice(pairs)) else ""

    def victim(self, kind: str) -> psutil.Process | None:
        """One process of a kind of actor, on any machine; None when there is none."""
        found = []
        for machine in self.machines.machines:
            for pid in links.processes(self.network.name(machine)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(pid))
        there = of_kind(KINDS[kind], found)
        return self.rng.choice(there) if there else None

    def kill(self, kind: str) -> str:
        victim = self.victim(kind)
        if victim is None:
            return ""
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
            deadline_s = time.monotonic() + 10
            while not is_dead(victim.pid):
                if time.monotonic() > deadline_s:
                    return ""
                time.sleep(0.01)
        return f"process killed: {kind}"

    def stop(self, kind: str) -> str:
        victim = self.victim(kind)
        if victim is None:
            return ""
        try:
            victim.suspend()
            time.sleep(0.05)
            was_stopped = victim.status() == psutil.STATUS_STOPPED
            time.sleep(STOP_S)
            victim.resume()
        except psutil.NoSuchProcess:
            return ""
        return f"process stopped for {STOP_S:g} s: {kind}" if was_stopped else ""

    # -- what must hold --------------------------------------------------------------------------------------------------------------
    def come_through(self, what: str) -> float:
        """Wait until all epochs sent so far, and one that is sent later, are complete; gives how long that took."""
        began_s = time.monotonic()
        wanted = self.machines.call(machine_job.status)[0] + 1
        while True:
            _, done, error, _ = self.machines.call(machine_job.status)
            if error:
                raise Violation(f"after {what}: the job has ended: {error}\n{self.machines.driver_log()}")
            took_s = time.monotonic() - began_s
            if done >= wanted:
                self.waits.append((took_s, what))
                return took_s
            if took_s > BOUND_S:
                told = self.machines.call(machine_job.explain)
                raise Violation(f"after {what}: epoch {wanted} is not complete within {BOUND_S:g} s, {done} is:\n{told}")
            time.sleep(0.05)

    def look_at_files(self, epochs: int | None = None) -> None:
        """Check the committed rows: each is a row of the model, none comes twice; with ``epochs`` they are all of the model's."""
        committed = {name: collections.Counter(machine_job.read(str(self.folder / name))) for name in ("counts", "steps")}
        sent = self.machines.call(machine_job.status)[0] + 2 if epochs is None else epochs  # asked after reading: more is sent meanwhile
        for (name, there), wanted in zip(committed.items(), machine_job.expected(self.seed, sent), strict=True):
            extra = there - wanted
            missing = wanted - there if epochs is not None else None
            if extra or missing:
                raise Violation(f"{name}: too many {list(extra.items())[:8]}, missing {list((missing or {}).items())[:8]}")

    def finish(self) -> None:
        """End the input, and compare the final results with the model."""
        self.machines.call(machine_job.stop)
        deadline_s = time.monotonic() + BOUND_S
        while True:
            sent, _, error, is_over = self.machines.call(machine_job.status)
            if error or (not is_over and time.monotonic() > deadline_s):
                raise Violation(f"the end: {error or 'not complete'}\n{self.machines.driver_log()}")
            if is_over:
                return self.look_at_files(sent + 1)
            time.sleep(0.05)


def keep(folder: Path, seed: int) -> Path:
    """Copy logs and output before the guard removes them."""
    kept = Path(tempfile.gettempdir(), f"rayad-chaos-machines-{seed}")
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    return kept


def main(options: argparse.Namespace) -> int:
    """Run one disturbed job; print the faults and times."""
    reason = links.why_not()
    if reason:
        print(f"no machines can be made here: {reason}")
        return 2
    began_s = time.monotonic()
    machines = Machines(options.machines)
    disturbance = Disturbance(machines, options.seed)
    violation = ""
    try:
        disturbance.go(options.faults, lambda line: print(f"{time.monotonic() - began_s:6.0f} s  {line}", flush=True))
    except Violation as found:
        violation = str(found)
        print(f"VIOLATION: {violation}\nkept: {keep(machines.folder, options.seed)}")
    finally:
        machines.close()
    for what, count in sorted(disturbance.seen.items()):
        print(f"{what:<48}{count:>5}")
    waits = sorted(disturbance.waits)
    if waits:
        middle, (most_s, worst) = waits[len(waits) // 2][0], waits[-1]
        print(f"until all had come through: median {middle:.1f} s, most {most_s:.1f} s ({worst}); bound {BOUND_S:g} s")
    count, took_s = sum(disturbance.seen.values()), time.monotonic() - began_s
    print(f"{count} faults on {options.machines} machines in {took_s:.0f} s, {int(bool(violation))} violations")
    return 1 if violation else 0
