"""All that happens around the coordinator's thread: whenever that waits, one drawn event after the other, until what it waits for is so.

The clock passes a little with each event, and when nothing can happen it goes on to the next moment at which something can.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Kind
from rayad.actors.coordinator.surroundings import Answer, CoordinatorSurroundings, Ended, NotFetched
from rayad.actors.lead.nodes.node import Node, Site
from rayad.actors.local.actors import Ref
from rayad.actors.local.bus import VirtualClock
from rayad.actors.local.coordinator import LocalEvent, NoLines
from rayad.dataflow.resources import Need
from tests.simulation.coordinator.lines import Lines
from tests.simulation.coordinator.nodes import OWN, Nodes
from tests.simulation.coordinator.processes import NEVER_S, Process, ProgressProcess
from tests.simulation.coordinator.vertex_process import VertexProcess

if TYPE_CHECKING:
    from rayad.actors.coordinator.rescaling import Wish
    from rayad.actors.coordinator.running_job import RunningJob

STEPS_MAX = 40_000
SPINS_MAX = 2_000
WISH_S = 0.2
IDLE_MAX_S = 3600.0
"""Nothing that a job waits for takes longer."""


class Clock(VirtualClock):
    """Each look takes one of a few times."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._chance = chance

    def perf_counter(self) -> float:
        self.now_s += self._chance.choice((0.0, 1e-5, 1e-5, 0.003))
        return self.now_s


class Stuck(BaseException):
    """The job does not end."""


class Beside:
    """Steps beside the coordinator's thread, as events; the thread of the store."""

    def __init__(self, world: World, step: Callable[[], bool], stop: Callable[[], object]) -> None:
        self.world, self.step, self._stop = world, step, stop
        self.is_closed = False

    def close(self, timeout_s: float) -> bool:
        self._stop()
        has_time = self.world.store_away_until_s <= self.world.clock.now_s + timeout_s
        self.is_closed = True
        return has_time


class World:
    """Processes, lines, and the store's thread."""

    def __init__(self, chance: random.Random, steps_max: int = STEPS_MAX) -> None:
        self.chance = chance
        self.steps_max = steps_max
        self.clock = Clock(chance)
        self.lines = Lines(chance)
        self.nodes = Nodes(self, chance)
        self.processes: list[Process] = []
        self.job: RunningJob | None = None
        self.wishes: list[Wish] = []
        """Changes of layout; the first one is being carried out."""
        self.over: list[Wish] = []
        """Those that have been carried out or refused."""
        self.store_away_until_s = 0.0
        self.figures: Counter[str] = Counter()
        self.errors: list[str] = []
        """What has failed in processes, in order."""
        self.steps = self.spins = 0
        self.before_step: list[Callable[[], None]] = []
        """Faults, inputs and what users ask for."""
        self.on_call: list[Callable[[Ref], None]] = []
        """Told of each call of an actor."""
        self.more_events: Callable[[], list[tuple[str, Any]]] = list
        self.perform_more: Callable[[str, Any], None] = lambda kind, what: None
        self._beside: Beside | None = None
        self._wish_s = 0.0
        self._is_inside = False

    def surroundings(self) -> CoordinatorSurroundings:
        """What the coordinator is given."""

        def plane(**options: Any) -> Any:
            return self.lines.link(options["name"], options["incarnation"], self.wait)

        def beside(name: str, step: Callable[[], bool], stop: Callable[[], object]) -> Beside:
            self._beside = Beside(self, step, stop)
            return self._beside

        def meanwhile(is_so: Callable[[], bool], timeout_s: float | None) -> None:
            self.wait(is_so, IDLE_MAX_S if timeout_s is None else timeout_s)

        waiting: dict[str, Any] = {"event": lambda: LocalEvent(meanwhile), "beside": beside, "lines": NoLines}
        return CoordinatorSurroundings(actors=BusActors(self), clock=self.clock, plane=plane, **waiting)

    def note_error(self, name: str, error: Exception) -> None:
        """A process fails."""
        self.errors.append(f"{name}: {type(error).__name__}: {error}"[:300])

    def alive(self) -> list[Process]:
        """Those that have not been killed."""
        return [process for process in self.processes if not process.is_dead]

    # -- time ----------------------------------------------------------------------------------------------
    def wait(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """The coordinator's thread waits; gives whether it is so."""
        if timeout_s <= 0.0:
            self.spins += 1
            self.clock.now_s += 1e-6
            if self.spins > SPINS_MAX:
                raise Stuck("the coordinator looks again and again, and never waits")
            return is_so()
        self.spins = 0
        if self._is_inside and is_so():
            return True
        assert not self._is_inside, "an event waits"
        until_s = self.clock.now_s + timeout_s
        for _ in range(self.chance.choice((0, 0, 1, 4))):
            self._step(self.clock.now_s)
        while not is_so():
            if self.clock.now_s >= until_s:
                return False
            self._step(until_s)
        return True

    def _step(self, until_s: float) -> None:
        self.steps += 1
        if self.steps > self.steps_max:
            raise Stuck(f"it does not end; {self.errors[-5:]}")
        self._is_inside = True
        try:
            for happens in self.before_step:
                happens()
            self.nodes.look_at_time()
            for process in self.processes:
                process.look_at_time()
            ready = self._events()
            if ready:
                self.clock.now_s += self.chance.choice((0.0, 1e-4, 1e-3))
                self._perform(*self.chance.choice(ready))
            else:
                self.clock.now_s = max(self.clock.now_s + 1e-6, min(until_s, self._next_s()))
        finally:
            self._is_inside = False

    def _next_s(self) -> float:
        times = [self.nodes.wakes_s, *(process.wakes_s for process in self.processes)]
        times += [at_s for at_s in (self.store_away_until_s, self._wish_s if self.wishes else 0.0) if at_s > self.clock.now_s]
        return min(times, default=NEVER_S)

    def _events(self) -> list[tuple[str, Any]]:
        ready = self.lines.events() + self.nodes.events()
        for process in list(self.processes):
            if process.is_dead and not process.doomed:
                self.processes.remove(process)
                continue
            ready += process.events()
            if isinstance(process, VertexProcess) and process.running is not None and process.stands_still_until_s <= self.clock.now_s:
                ready += [("write", (process, writer)) for writer in process.writers if writer.waiting]
        if self._has_work_for_the_store and self.store_away_until_s <= self.clock.now_s:
            ready.append(("store", self._beside))
        if self.wishes and self._wish_s <= self.clock.now_s:
            ready.append(("wish", self.wishes[0]))
        return ready + self.more_events()

    @property
    def _has_work_for_the_store(self) -> bool:
        job, beside = self.job, self._beside
        return job is not None and beside is not None and not beside.is_closed and job.store_thread.has_work

    def _perform(self, kind: str, what: Any) -> None:
        self.figures[f"events: {kind}"] += 1
        match kind:
            case "deliver":
                self.lines.deliver(*what)
            case "notice":
                self.lines.notice(*what)
            case "dial":
                self.lines.dial(what)
            case "tell":
                what[0].tell(what[1])
            case "write":
                process, writer = what
                writer.write()
                process.link.wakeup()
            case "place":
                self.nodes.place(what)
            case "store":
                what.step()
            case "wish":
                self._wish_s = self.clock.now_s + self.chance.choice((0.001, WISH_S))
                what.look(0.0)
                if what.is_over:
                    self.wishes.remove(what)
                    self.over.append(what)
            case "main" | "control" | "pulse" | "turn":
                what.perform(kind)
            case _:
                self.perform_more(kind, what)


class BusActors:
    """The coordinator's port to its processes; see :class:`rayad.actors.coordinator.surroundings.Actors`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def parcel(self, value: Any) -> Any:
        return [value]

    def start(self, kind: Kind, title: tuple[str, ...], site: Site) -> Any:
        process = ProgressProcess(self._world) if kind == PROGRESS_KIND else VertexProcess(self._world)
        self._world.processes.append(process)
        self._world.nodes.start(process, site, float(kind.asks["num_cpus"]))
        self._world.figures["processes"] += 1
        return process

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        ref = Ref(actor, method, arguments)
        actor.call(ref)
        for told in self._world.on_call:
            told(ref)
        return ref

    def run(self, actor: Any, *arguments: Any) -> tuple[Any, Any]:
        ref = Ref(actor, "run", arguments, staged=Ref(actor, "staged"))
        actor.call(ref)
        return ref, ref.staged

    def wait(self, refs: Sequence[Any], timeout_s: float, count: int = 1) -> list[Any]:
        def ready() -> list[Any]:
            return [ref for ref in refs if ref.answer is not None]

        self._world.wait(lambda: len(ready()) >= min(count, len(refs)), timeout_s)
        return ready()[:count]

    def take(self, ref: Any, timeout_s: float) -> Answer:
        self._world.wait(lambda: ref.answer is not None, timeout_s)
        return ref.answer if ref.answer is not None else NotFetched()

    def kill(self, actor: Any) -> None:
        actor.kill(by_coordinator=True)

    def last_words(self, ended: Ended) -> str:
        return ""

    def nodes(self) -> list[Node]:
        return self._world.nodes.table()

    def own_node(self) -> str:
        return OWN

    def drains(self) -> dict[str, float]:
        return self._world.nodes.drains()

    def check_placeable(self, needs: Sequence[Need], what: str, autoscaling: bool | None) -> None:
        pass

    def free(self) -> str:
        return "all"

    def own_address(self, host: str | None = None) -> str:
        return host or "127.0.0.1"


__all__ = ["BusActors", "Stuck", "World"]
