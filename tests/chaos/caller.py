"""A driver that does what it is told, and may be killed: ``python -m tests.chaos.caller <address of Ray> <file descriptor>``.

It takes ``(method, arguments)`` from a pipe, calls that method of `Caller`, and sends back its result or its error.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import ray

import rayad as rd

VERTEX, INPUT, SINK = "counts", "numbers", "seen"
KEYS = 8


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that a call raised."""

    classes: tuple[str, ...]
    """Names of its class and of those above it."""
    told: str
    where: str

    def is_a(self, *names: str) -> bool:
        """Whether it is of one of these classes."""
        return bool({*names} & {*self.classes})

    def __str__(self) -> str:
        return f"{self.classes[0]}: {self.told}"


def program(name: str) -> rd.Dataflow:
    """Numbers of a live input: each is collected, and counted by its key."""
    flow = rd.Dataflow(name)
    numbers = flow.input(INPUT)
    numbers.key_by(lambda number: number % KEYS).count(name=VERTEX).probe("counted").collect(VERTEX)
    numbers.collect(SINK)
    return flow


def configuration(folder: str) -> rd.RunConfig:
    """The configuration of a job that survives all faults and begins afresh."""
    return rd.RunConfig(
        storage_path=folder,
        resume="never",
        snapshots=rd.SnapshotConfig(interval_s=0.3),
        failures=rd.FailureConfig(max_failures=100, delay_s=0.05, delay_max_s=0.2, heartbeat_timeout_s=15.0),
    )


class Caller:
    """The calls, in the driver. Values that it gives are plain."""

    def __init__(self) -> None:
        self._jobs: dict[str, Any] = {}

    def submit(self, name: str, detached: bool, folder: str) -> None:
        options = {"detached": True} if detached else {}
        self._jobs[name] = program(name).submit(configuration(folder), rd.ScalingConfig(parallelism=2, placement="vertices"), **options)

    def attach(self, name: str) -> str:
        self._jobs[name] = rd.attach(name)
        return str(self._jobs[name].state.value)

    def jobs(self) -> list[str]:
        return list(rd.jobs())

    def state(self, name: str) -> str:
        return str(self._jobs[name].state.value)

    def progress(self, name: str) -> str:
        return str(self._jobs[name].progress().state.value)

    def explain(self, name: str) -> str:
        return str(self._jobs[name].explain_stuck())

    def savepoint(self, name: str) -> str:
        return str(self._jobs[name].savepoint())

    def rescale(self, name: str, replicas: int) -> int:
        self._jobs[name].rescale(VERTEX, replicas)
        return len(self._jobs[name].pids()[VERTEX])

    def configure(self, name: str, rows: int) -> None:
        self._jobs[name].configure(batch_rows=rows)

    def send(self, name: str, numbers: Sequence[int]) -> None:
        self._jobs[name].input(INPUT).send(list(numbers))

    def advance(self, name: str, epoch: int) -> None:
        self._jobs[name].input(INPUT).advance_to(epoch)

    def close(self, name: str) -> None:
        self._jobs[name].input(INPUT).close()

    def give_input(self, name: str) -> bytes:
        return pickle.dumps(self._jobs[name].input(INPUT))

    def send_by(self, given: bytes, numbers: Sequence[int]) -> None:
        pickle.loads(given).send(list(numbers))

    def is_complete(self, name: str, epoch: int, timeout_s: float) -> bool:
        return bool(self._jobs[name].probe("counted").wait(epoch, timeout_s=timeout_s))

    def stop(self, name: str, timeout_s: float) -> dict[str, Any]:
        return dict(self._jobs[name].stop(timeout_s=timeout_s))

    def cancel(self, name: str) -> None:
        self._jobs[name].cancel()

    def wait(self, name: str, timeout_s: float) -> dict[str, Any]:
        return dict(self._jobs[name].wait(timeout_s=timeout_s))


class Driver:
    """A driver's process, from outside."""

    def __init__(self, address: str, log: Any) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "tests.chaos.caller", address, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "RAY_ADDRESS": address},
        )
        theirs.close()

    def begin(self, method: str, *args: Any) -> None:
        """Begin a call; :meth:`answer` gives its outcome."""
        self._pipe.send((method, args))

    def answer(self, timeout_s: float) -> Any:
        """The result of the call, or `Raised`. Raises TimeoutError."""
        if not self._pipe.poll(timeout_s):
            raise TimeoutError
        return self._pipe.recv()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def main(address: str, descriptor: str) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    caller, pipe = Caller(), Connection(int(descriptor))
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        given: Any
        try:
            given = getattr(caller, method)(*args)
        except Exception as error:
            given = Raised(tuple(one.__name__ for one in type(error).__mro__), str(error), traceback.format_exc())
        pipe.send(given)


if __name__ == "__main__":
    from tests.chaos import caller  # not as __main__: what it gives is unpickled elsewhere

    caller.main(*sys.argv[1:])
