"""The autoscaler's loop that ships, over a job under the coordinator that ships: its policy wants what the seed draws.

It asks as its actor does: the coordinator's control for the layout and the processes, these for their readings, the rescaler for changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import rayad as rd
from rayad.actors.coordinator.control import Control
from rayad.actors.coordinator.rescaling import Wish
from rayad.actors.scaling.loop import ScalingLoop, scaling_graph
from rayad.autoscale import DecisionOutcome, FunctionPolicy, Record, ReplicaReading

if TYPE_CHECKING:
    from tests.simulation.coordinator.run import Run

ROUND_S = 0.05
MOST = 4
CHANGES_MOST = 4


class Scaled:
    """One job, and its loop."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.chance = random.Random(run.seed)
        self.control = Control(run.job, run.rescaler)
        self.asked: list[tuple[Wish, Future[Any]]] = []
        self.records: list[Record] = []
        config = rd.ScalingConfig(policy=FunctionPolicy(self._wants), window_s=0.0, warm_up_s=0.0, timeout_s=60.0)
        graph = scaling_graph(run.plan, config, MOST, run.job.places)
        self._movable = sorted(vertex.name for vertex in graph.by_name.values() if vertex.fixed is None)
        options: dict[str, Any] = {"execute": lambda call: call(), "listeners": [self]}
        self.loop = ScalingLoop(self, graph, config.policy, config, run.world.clock.time, **options)  # type: ignore[arg-type]
        self._due_s = 0.0
        run.world.before_step.append(self._on_step)

    def _wants(self, samples: Any, state: Any, now_s: float) -> dict[str, int] | None:
        if not self._movable or len(self.asked) >= CHANGES_MOST or self.chance.random() < 0.5:
            return None
        return {
            name: self.chance.randint(1, MOST) for name in self.chance.sample(self._movable, self.chance.randint(1, len(self._movable)))
        }

    def _answer(self) -> None:
        for wish, future in self.asked:
            if wish.is_over and not future.done():
                if wish.error is not None:
                    future.set_exception(wish.error)
                else:
                    future.set_result(wish.report)

    def _on_step(self) -> None:
        self._answer()
        if self.run.world.clock.now_s >= self._due_s:
            self._due_s = self.run.world.clock.now_s + ROUND_S
            self.loop.round()
            self.run.figures["rounds"] += 1

    # -- as the loop sees the job ----------------------------------------------------------------------
    def layout(self) -> Mapping[str, int] | None:
        found = self.control.replicas()
        return dict(found[0]) if found is not None else None

    def readings(self) -> Sequence[ReplicaReading]:
        found = self.control.replicas()
        processes = found[1].values() if found is not None else ()
        workers = [process.host.worker for process in processes if not process.is_dead and process.host is not None]
        hosts = [host for worker in workers for host in worker.hosts.values()]
        return [host.statistics.reading(None) for host in hosts]

    def rescale(self, changes: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int]) -> Any:
        wish, future = self.run.rescaler.wish(changes, timeout_s, decided_for), Future[Any]()
        self.run.world.wishes.append(wish)
        self.asked.append((wish, future))
        return future

    # -- as a listener ---------------------------------------------------------------------------------
    def on_sample(self, sample: Any, layout: Mapping[str, int]) -> None:
        """Samples are not looked at."""

    def on_record(self, record: Record) -> None:
        if not record.got:
            self.records.append(record)

    def look_at_end(self) -> None:
        """Every change that it asked for was answered, once, with what became of it."""
        if self.chance.random() < 0.5:  # else the last answers come after it
            self._answer()
        self.loop.round()
        told = self.loop.finish()
        numbers = told_of(self.records)
        assert all(count == 2 for count in numbers.values()), f"decisions, and how often they were told: {numbers}"
        applied = sum(wish.report is not None for wish, _ in self.asked)
        assert told.changes <= applied <= told.changes + 1, f"{applied} changes carried out, {told.changes} of them known"
        assert told.changes + told.refused == len(self.asked), f"{told.changes} done, {told.refused} refused, of {len(self.asked)}"
        self.run.figures["decisions"] += len(self.asked)


def told_of(records: Sequence[Record]) -> dict[int, int]:
    """How often each decision that asks for something was told."""
    found: dict[int, int] = {}
    for record in records:
        if record.outcome is not DecisionOutcome.HELD:
            found[record.number] = found.get(record.number, 0) + 1
    return found


__all__ = ["Scaled"]
