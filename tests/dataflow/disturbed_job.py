"""A job in the local runtime whose epochs come one by one, and which is disturbed in between; with a bound of its state or without."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import rayad as rd


class DisturbedJob(ABC):
    """Its input is named ``rows``, its vertex with state ``kept``, a probe behind that ``seen``, and what it collects ``out``.

    Args:
        folder: where its snapshots are.
        bound: bytes of state a replica keeps in memory; None: all.
    """

    epochs = 8

    def __init__(self, folder: Path, bound: int | None) -> None:
        self._config = rd.RunConfig(storage_path=str(folder), state_memory_bytes=bound)
        self.most = 0
        """How many rows a replica has had at most in memory and files, while some were in files."""
        self.begin()

    @abstractmethod
    def program(self, rows: Any) -> Any:
        """What becomes of the input."""

    @abstractmethod
    def rows_of(self, chance: random.Random, epoch: int) -> list[Any]:
        """What comes in one epoch."""

    @abstractmethod
    def states_of(self, vertex: Any) -> list[Any]:
        """The state of a vertex; none of one that keeps nothing."""

    def size_of(self, state: Any) -> int:
        """How many rows a state has, wherever they are."""
        return len(state.kept)

    def begin(self, **options: Any) -> None:
        """Submit it."""
        flow = rd.Dataflow("disturbed")
        self.program(flow.input("rows")).probe("seen").collect("out")
        self.job: Any = flow.submit(self._config, runtime="local", **{"parallelism": 2, **options})

    def send(self, epoch: int, some: list[Any]) -> None:
        """These come in an epoch, which is awaited."""
        rows = self.job.input("rows")
        rows.send(some)
        rows.advance_to(epoch + 1)
        self.job.probe("seen").wait(epoch)

    def run(self, *, disturbed: bool) -> list[Any]:
        """What comes out, with its epochs."""
        chance = random.Random(5)
        for epoch in range(self.epochs):
            self.send(epoch, self.rows_of(chance, epoch))
            kept = [state for core in self.job.cores.values() for state in self.states_of(core.vertex)]
            self.most = max([self.most, *(self.size_of(state) for state in kept if state.is_beyond_memory)])
            if disturbed:
                self._disturb(epoch)
        self.job.input("rows").close()
        return sorted(((time.epoch, row) for time, row in self.job.wait()["out"]), key=repr)

    def _disturb(self, epoch: int) -> None:
        match epoch % 4:
            case 0:
                self.job.rescale("kept", 1 + epoch // 4 % 3)
            case 1:
                self.job.savepoint()
            case 2:
                self.job.crash()
            case 3:
                self.job.savepoint()
                self.job.cancel()
                self.begin(resume="latest")
