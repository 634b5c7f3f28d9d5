"""A Ray cluster of machines (see :mod:`tests.machines.links`), and a driver on the first of them."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.machines import driver, guard, links

RAY = Path(sys.executable).with_name("ray")
PORT = 6399
START_S = 300.0
ROOT = Path(__file__).resolve().parents[2]
HEALTH = {"period": 1000, "timeout": 1000, "initial_delay": 1000}
"""In ms. By default Ray takes a minute to notice a lost node; with this about 12 s, longer than the cuts that a job must survive."""
HEALTH_FAILURES = 12


class CallFailed(AssertionError):
    """A call in the driver raised."""


class Machines:
    """Machines with Ray; the first is the head. Call :meth:`close` at the end; the guard removes those of a killed process.

    Args:
        count: how many.
        cpus: of each machine, for Ray.
    """

    def __init__(self, count: int, cpus: int = 2) -> None:
        links.remove_stale()
        prefix = f"ry{os.getpid():x}"
        self.folder = Path(tempfile.mkdtemp(prefix="rayad-machines-"))
        """A folder that all machines see; it is removed at the end."""
        self._guard = guard.start(prefix, str(self.folder))
        self._cpus = cpus
        self._driver: subprocess.Popen[bytes] | None = None
        token = secrets.token_hex(16)
        health = {f"RAY_health_check_{name}_ms": str(value) for name, value in HEALTH.items()}
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            **health,
            "RAY_health_check_failure_threshold": str(HEALTH_FAILURES),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        }
        self.network = links.Network(prefix)
        self.machines: list[int] = []
        try:
            self.start(1)
            others = [self.begin(machine) for machine in range(2, count + 1)]
            for wait in others:
                wait()
        except BaseException:
            self.close()
            raise

    def start(self, machine: int, **resources: float) -> None:
        """Make a machine, or switch one on again, and join it to Ray."""
        self.begin(machine, **resources)()

    def begin(self, machine: int, **resources: float) -> Callable[[], None]:
        """As :meth:`start`, but without waiting; gives a function that waits until Ray runs."""
        if links.processes(self.network.name(machine)):
            raise OSError(f"machine {machine} is on")
        if machine in self.machines:
            self.network.mend(machine)
        else:
            self.network.add(machine)
            self.machines.append(machine)
        address = self.network.address(machine)
        how = f"--head --port={PORT} --include-dashboard=false" if machine == 1 else f"--address={self.network.address(1)}:{PORT}"
        custom = "".join(f'"{name}":{value},' for name, value in resources.items()).rstrip(",")
        script = (
            "mkdir -p /tmp/ray; mount -t tmpfs tmpfs /tmp/ray; mount -t tmpfs tmpfs /dev/shm; "
            f"exec {RAY} start --block {how} --node-ip-address={address} --num-cpus={self._cpus} --object-store-memory=100000000 "
            f"--resources='{{{custom}}}' --disable-usage-stats"
        )
        command = ["ip", "netns", "exec", self.network.name(machine), "unshare", "-m", "bash", "-c", script]
        deadline_s = time.monotonic() + START_S

        def launch() -> tuple[subprocess.Popen[bytes], Path]:
            log = self.folder / f"ray-{machine}-{secrets.token_hex(2)}.log"
            with log.open("wb") as out:
                where = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "env": self.environment}
                return subprocess.Popen(command, start_new_session=True, **where), log  # type: ignore[call-overload, no-any-return]

        first = launch()

        def wait() -> None:
            process, log = first
            while "Ray runtime started" not in (told := log.read_text(errors="replace")):
                if time.monotonic() > deadline_s:
                    raise OSError(f"Ray did not start on machine {machine}:\n{told[-3000:]}")
                if process.poll() is not None:  # on a busy machine Ray may miss its own deadline of 30 s
                    links.end_processes(self.network.name(machine))
                    process, log = launch()
                time.sleep(0.1)

        return wait

    # -- the driver ----------------------------------------------------------------------------------------------------------------
    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a module in the driver, which is on machine 1. Raises CallFailed with what it raised."""
        if self._driver is None:
            words = self.network.inside(1, sys.executable, "-m", "tests.machines.driver", f"{self.network.address(1)}:{PORT}")
            log = (self.folder / "driver.log").open("ab")
            self._driver = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.environment, start_new_session=True
            )
            log.close()
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        try:
            driver.write(self._driver.stdin, (function, arguments))
            is_good, answer = driver.read(self._driver.stdout)
        except (EOFError, BrokenPipeError):
            raise CallFailed(f"the driver has ended:\n{self.driver_log()}") from None
        if not is_good:
            raise CallFailed(f"{answer}\n{self.driver_log()}")
        return answer

    @property
    def driver_pid(self) -> int:
        """The process of the driver, once something has been called in it."""
        assert self._driver is not None
        return self._driver.pid

    def end_driver(self) -> None:
        """Kill the driver, and with it what it owns; the next call starts another one."""
        if self._driver is not None:
            with self._driver:  # closes its pipes
                self._driver.kill()
                self._driver.wait(10)
            self._driver = None

    def driver_log(self) -> str:
        """The end of the driver's output."""
        return (self.folder / "driver.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End and remove everything."""
        self.end_driver()
        guard.let_go(self._guard)
