"""Who leads the start of a job and its recoveries: what is restarted after a failure, when, and when the job gives up. Pure.

Both runtimes drive it, through :class:`rayad.actors.lead.job_leader.JobLeader`. Processes have the names of the data plane
(``plane/protocol.py``); each attempt has an *incarnation*, and an answer of another one is void. Sources: Carbone et al.,
2015, 5 (recovery of the whole graph or of a part of it); docs/design/snapshots.md.

    Begin ──> ReadStore ──> StoreRead ──> Start, Listen ──> Listens ... ──> Run, Running
    Failed ──> others may report for GRACE_S ──> StopChange, Survived, and
        the whole graph: Release, Start ──> the delay ──> ReadStore ──> StoreRead ──> Listen ──> Listens ... ──> Run, Running
        what is upstream of it: the delay ──> ReadStore ──> StoreRead ──> Release, Start, Switch, Listen ──> Listens ...
            ──> RollBack ──> RolledBack ... ──> Run, Running; a second failure meanwhile restarts the whole graph
    Failed too often ──> GaveUp
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rayad.actors.lead.crashes import Crashes
from rayad.actors.lead.failure import Failure
from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.replica.places import Places, is_worker
from rayad.actors.replica.upstream import Region, region_of
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError
from rayad.snapshots.restarts import End as TooMany
from rayad.snapshots.restarts import Restarts

GRACE_S = 0.5
"""How long others may report after the first failure: the first that is noticed is seldom the cause."""
STORE_AWAY_S = 0.5
"""Between two questions to a store that does not answer, when the job has to resume from it."""
ROLL_BACK_S = 30.0
"""Added to the time to start: replicas that live on roll back when the function that they are in returns."""


class Phase(enum.Enum):
    """Where a start or a recovery is; RUNNING: there is none."""

    IDLE = "idle"
    DELAYED = "waiting before a restart"
    READING = "reading the store"
    LISTENING = "waiting for replicas to listen"
    ROLLING_BACK = "waiting for replicas to roll back"
    RUNNING = "running"
    OVER = "over"


# -- what has happened -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Begin:
    """Start the job. ``succeeds``: in the place of a coordinator that died; then it waits for a store that is away. ``failures``: so many
    were survived before, outside of it."""

    succeeds: bool = False
    failures: int = 0


@dataclass(frozen=True, slots=True)
class StoreRead:
    """It is known what to resume from, and the layout is that of it (:meth:`RecoveryLeader.lay_out`).

    ``void``: the attempt at a snapshot that was under way. ``all_because``: why nobody can live on, though somebody was to.
    """

    incarnation: int
    void: int = 0
    all_because: str = ""


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The store does not answer."""

    incarnation: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Listens:
    """An actor has been built, and others can connect to it at ``address``, which is only passed on."""

    name: str
    incarnation: int
    address: object = None


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A replica that lives on has rolled back, and knows the new replicas."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Something has failed. ``name``: who, None: the coordinator itself or a change of layout; ``incarnation``: of whoever it is.

    ``is_stuck``: it will not leave what it does when it is asked to. ``is_final``: to try again does not help.
    """

    name: str | None
    incarnation: int
    failure: Failure
    is_stuck: bool = False
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """For tests and simulations: these are lost (None: all), which is no failure that counts."""

    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """These processes are to leave their nodes, which is no failure: others take their places, and resume from the last snapshot. Void
    while something is started or has failed."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    """A snapshot is in the store; ``is_last``: of a job that is complete."""

    is_last: bool = False


@dataclass(frozen=True, slots=True)
class AllReported:
    """No actor is left that could still report a failure."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. What is known by then has been told."""


Event: TypeAlias = Begin | StoreRead | StoreAway | Listens | RolledBack | Failed | Lost | Move | SnapshotPublished | AllReported | Tick


# -- what is to be done ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class StopChange:
    """A change of layout under way ends before anything else is done."""


@dataclass(frozen=True, slots=True)
class Survived:
    """Tell that the job resumes from its last snapshot, after so many seconds; ``number``: failures that count."""

    failure: Failure
    number: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class WholeGraph:
    """Say why the whole graph is restarted instead of a part."""

    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """These (None: all that are there) leave what they do in this incarnation and those before; end who is stuck or does not answer."""

    names: tuple[str, ...] | None
    incarnation: int
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Start the actors that are missing, for this incarnation; do not wait for them."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ReadStore:
    """Find out what to resume from; answer :class:`StoreRead` or :class:`StoreAway`. ``region``: all else lives on; None: nothing does.
    ``suspected``: files of snapshots that replicas could not read, which are to be looked at."""

    incarnation: int
    region: Region | None = None
    names: tuple[str, ...] = ()
    suspected: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Switch:
    """The progress core removes what it counts for these, which restart in this incarnation."""

    names: tuple[str, ...]
    region: Region
    incarnation: int


@dataclass(frozen=True, slots=True)
class Listen:
    """Let these build their cores; each answers :class:`Listens`. ``incarnations``: of all actors of the job; ``ended``: how often
    processes of a stage have ended in a row (:class:`Crashes`)."""

    names: tuple[str, ...]
    incarnation: int
    incarnations: Mapping[str, int]
    ended: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_of_all(self) -> bool:
        """Whether nobody lives on."""
        return PROGRESS in self.names


@dataclass(frozen=True, slots=True)
class RollBack:
    """These live on, and go back to the snapshot on some edges; each answers :class:`RolledBack`."""

    names: tuple[str, ...]
    region: Region
    incarnation: int
    void: int
    addresses: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Run:
    """These run from now on."""

    names: tuple[str, ...]
    incarnation: int
    addresses: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Running:
    """The job runs. ``restart_s``: seconds since the failure, without the delay; None: it has been started. ``moved``: who has left a
    node, where that was all that happened."""

    names: tuple[str, ...]
    restart_s: float | None
    moved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acquit:
    """The work during which processes of these ended lies behind: functions that were put into processes of their own may return."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TooLate:
    """These of ``count`` did not answer in time: say so, as :class:`Failed` of nobody."""

    names: tuple[str, ...]
    count: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class LacksRoom:
    """These have not answered for ``FailureConfig.room_wait_s``: if nothing has room for them, and that is allowed, let them share
    processors with others, and listen again."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The job has failed with this failure; ``why`` says why it is not survived, where that was possible."""

    failure: Failure
    why: str = ""


Effect: TypeAlias = (
    StopChange
    | Survived
    | WholeGraph
    | Release
    | Start
    | ReadStore
    | Switch
    | Listen
    | RollBack
    | Run
    | Running
    | Acquit
    | TooLate
    | LacksRoom
    | GaveUp
)


@dataclass(slots=True)
class _Reported:
    """Failures that have been reported and not decided on."""

    failures: list[Failure] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    """Whose process has ended, and the step that ran in it, if it is known."""
    is_of_nobody: bool = False
    """Whether one is of the coordinator: then nothing can live on."""
    decide_s: float = float("inf")


class RecoveryLeader:
    """The incarnations of one job.

    Args:
        plan: the dataflow, in the layout that it is asked for; later in the one that it has (:meth:`lay_out`).
        config: what to survive, and how long to wait.
        restarts: the failures so far.
        keeps_snapshots: whether there is something to resume from.
    """

    def __init__(self, plan: Plan, config: RunConfig, restarts: Restarts, *, keeps_snapshots: bool, places: Places | None = None) -> None:
        self.plan = plan
        self._places = places or Places()
        self.config = config
        self.keeps_snapshots = keeps_snapshots
        self.phase = Phase.IDLE
        self.incarnation = 1
        self.incarnations: dict[str, int] = {}
        """Of each actor that is there."""
        self.failures = 0
        """How many have been survived."""
        self.waiting: set[str] = set()
        """Who has not answered."""
        self.asked = 0
        """How many were asked with them."""
        self._restarts = restarts
        self._crashes = Crashes()
        self._reported = _Reported()
        self._causes: deque[Failure] = deque()  # the failures decided here that count, oldest first
        self._succeeds = False
        self._region: Region | None = None  # what is restarted; None: everything
        self._lost: set[str] = set()
        self._stuck: set[str] = set()
        self._void = 0
        self._addresses: dict[str, object] = {}
        self._due_s = 0.0  # when the delay is over, or the store is asked again
        self._store_patience_s = 0.0
        self._too_late_s = self._room_s = float("inf")
        self._failed_s: float | None = None
        self._delay_s = 0.0
        self._moved: tuple[str, ...] = ()
        self._suspected: frozenset[str] = frozenset()  # files of snapshots that replicas could not read

    # -- what others look at -------------------------------------------------------------------------
    @property
    def is_running(self) -> bool:
        """Whether nothing is being started or restarted."""
        return self.phase is Phase.RUNNING

    @property
    def has_failed(self) -> bool:
        """Whether a failure has been reported that is not decided on yet."""
        return bool(self._reported.failures)

    @property
    def remembered(self) -> list[Failure]:
        """The failures that may still be told."""
        return [*self._reported.failures, *self._causes]

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until a :class:`Tick` can do something; None: never by itself."""
        due_s = min(self._reported.decide_s, self._too_late_s, self._room_s)
        if self.phase is Phase.DELAYED or (self.phase is Phase.READING and self._due_s):
            due_s = min(due_s, self._due_s)
        return max(0.0, due_s - now_s) if due_s != float("inf") else None

    def lay_out(self, plan: Plan) -> None:
        """The layout is this one."""
        self.plan = plan

    def on_changed(self, plan: Plan, incarnation: int, incarnations: Mapping[str, int]) -> None:
        """A change of layout has begun an incarnation for its newcomers, or is over."""
        self.plan = plan
        self.incarnations = dict(incarnations)
        self.incarnation = max(self.incarnation, incarnation, *self.incarnations.values())

    def end(self) -> None:
        """The job is over: whatever is answered is void."""
        self.phase = Phase.OVER
        self.waiting = set()
        self._reported = _Reported()
        self._too_late_s = self._room_s = float("inf")

    def check_invariants(self) -> None:
        """Raises InternalError when the state contradicts itself."""
        is_waiting = self.phase in (Phase.LISTENING, Phase.ROLLING_BACK)
        if is_waiting != bool(self.waiting):
            raise InternalError(f"recovery is {self.phase.value} and waits for {sorted(self.waiting)}")
        if not is_waiting and self._too_late_s != float("inf"):
            raise InternalError(f"recovery is {self.phase.value} and would wait until {self._too_late_s}")
        if any(incarnation > self.incarnation for incarnation in self.incarnations.values()):
            raise InternalError(f"incarnations {self.incarnations} while the newest is {self.incarnation}")
        if self._region is not None and not self.keeps_snapshots:
            raise InternalError("a part is restarted, but there is nothing to resume from")

    # -- events --------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        if self.phase is Phase.OVER:
            return effects
        match event:
            case Begin(succeeds, failures):
                self._succeeds = succeeds
                self._restarts.on_earlier(failures)
                self._read_store(now_s, effects)
            case StoreRead():
                self._on_store_read(event, now_s, effects)
            case StoreAway():
                self._on_store_away(event, now_s, effects)
            case Listens(name, incarnation, address):
                if self.phase is Phase.LISTENING and self._is_awaited(name, incarnation):
                    self._addresses[name] = address
                    self.waiting.discard(name)
                    if not self.waiting:
                        self._on_all_listen(now_s, effects)
            case RolledBack(name, incarnation):
                if self.phase is Phase.ROLLING_BACK and self._is_awaited(name, incarnation):
                    self.waiting.discard(name)
                    if not self.waiting:
                        self._on_all_there(now_s, effects)
            case Failed():
                self._on_failed(event, now_s, effects)
            case Lost(names):
                everybody = {PROGRESS, *self._processes()}
                self._reported = _Reported()
                effects.append(StopChange())
                self._recover(everybody if names is None else set(names), set(), 0.0, now_s, effects)
            case Move(names):
                if self.is_running and not self.has_failed and (there := names & {PROGRESS, *self._processes()}):
                    effects.append(StopChange())
                    self._recover(set(there), set(there), 0.0, now_s, effects)
                    self._moved = tuple(sorted(there))
            case SnapshotPublished():
                if stages := self._crashes.on_snapshot(now_s):
                    effects.append(Acquit(tuple(name for name in self._processes() if not is_worker(name) and stage_of(name) in stages)))
            case AllReported():
                self._reported.decide_s = min(self._reported.decide_s, now_s) if self.has_failed else self._reported.decide_s
            case Tick():
                self._on_tick(now_s, effects)
        return effects

    def _on_tick(self, now_s: float, effects: list[Effect]) -> None:
        if self.has_failed and now_s >= self._reported.decide_s:
            self._decide(now_s, effects)
        elif self.phase is Phase.DELAYED and now_s >= self._due_s:
            self._read_store(now_s, effects)
        elif self.phase is Phase.READING and self._due_s and now_s >= self._due_s:
            self._due_s = 0.0
            effects.append(self._to_read())
        elif now_s >= self._room_s and self.phase is Phase.LISTENING:
            self._room_s = now_s + self.config.failures.room_wait_s
            effects.append(LacksRoom(tuple(sorted(self.waiting))))
        elif now_s >= self._too_late_s and self.waiting:
            self._too_late_s = float("inf")
            effects.append(TooLate(tuple(sorted(self.waiting)), self.asked, self.incarnation))

    @property
    def _is_first(self) -> bool:
        """Whether the job has not been started before."""
        return self._failed_s is None

    def _is_awaited(self, name: str, incarnation: int) -> bool:
        return incarnation == self.incarnation and name in self.waiting

    # -- failures ------------------------------------------------------------------------------------
    def _on_failed(self, event: Failed, now_s: float, effects: list[Effect]) -> None:
        name, failure, reported = event.name, event.failure, self._reported
        known = self.incarnation if name is None else self.incarnations.get(name, self.incarnation)
        if event.incarnation != known:
            return  # of an actor, or of an attempt, that has been replaced
        if event.is_final or (self._is_first and self.phase is Phase.READING):
            effects.append(StopChange())
            self._give_up(failure, "", effects)
            return
        if self.phase is Phase.DELAYED and self._region is not None and name is not None:
            self._stuck |= {name} if event.is_stuck else set()
            self._spread(name, effects)  # nothing has been restarted yet: it is the same failure
            return
        if failure in reported.failures:
            return
        reported.failures.append(failure)
        reported.is_of_nobody |= name is None
        if name is not None:
            reported.names.add(name)
            reported.stuck |= {name} if event.is_stuck else set()
            if failure.has_ended:
                reported.ended[name] = failure.working
        reported.decide_s = min(reported.decide_s, now_s + self._grace_s(event))

    def _grace_s(self, event: Failed) -> float:
        """How long others may still report: not when it is clear what follows, whoever else has failed."""
        if event.is_stuck or self.phase is not Phase.RUNNING:
            return 0.0
        if event.failure.is_lost_peer:
            return GRACE_S
        is_whole = event.name is None or self.config.failures.recovery == "graph"
        return 0.0 if is_whole and (self.keeps_snapshots or event.name is None) else GRACE_S

    def _decide(self, now_s: float, effects: list[Effect]) -> None:
        """Whether the job survives what has been reported, and what is restarted."""
        reported, self._reported = self._reported, _Reported()
        failure = min(reported.failures, key=lambda one: one.rank)
        effects.append(StopChange())
        self._crashes.on_ended(reported.ended, now_s)
        policy = self.config.failures
        if self._is_of_damage(reported.failures):
            effects.append(WholeGraph(f"{failure.who} cannot read its part of the snapshot: {failure.message}"))
            self._recover({PROGRESS, *self._processes()}, reported.stuck, 0.0, now_s, effects)
            return
        if not self.keeps_snapshots or not policy.most or (failure.is_raised and not policy.survives_errors):
            self._give_up(failure, "", effects)
            return
        decision = self._restarts.on_failure(failure.sign, now_s)
        self._causes.append(failure)
        while len(self._causes) > decision.number:
            self._causes.popleft()
        if isinstance(decision, TooMany):
            cause = failure if decision.is_newest else self._causes[0]
            last = "" if decision.is_newest else f"; the last: {failure.message}"
            crashed = self._crashes.told(self.plan)
            self._give_up(cause, f"{decision.why}{last}{crashed and f'; {crashed}'}", effects)
            return
        self.failures += 1
        effects.append(Survived(failure, decision.number, decision.delay_s))
        is_whole = reported.is_of_nobody or self.phase is not Phase.RUNNING  # a second failure during a recovery
        everybody = {PROGRESS, *self._processes()}
        self._recover(everybody if is_whole else reported.names, reported.stuck, decision.delay_s, now_s, effects)

    def _is_of_damage(self, failures: Collection[Failure]) -> bool:
        """Whether replicas fail only since they cannot read their parts, of which nobody has heard. That is no failure of the job: the
        coordinator looks at these files, and goes to an older snapshot. Where it finds them whole, the next such failure counts."""
        damaged = frozenset(failure.damaged for failure in failures if failure.damaged)
        is_new = self.keeps_snapshots and all(failure.damaged and failure.damaged not in self._suspected for failure in failures)
        self._suspected |= damaged
        return is_new

    def _give_up(self, failure: Failure, why: str, effects: list[Effect]) -> None:
        self.end()
        effects.append(GaveUp(failure, why))

    # -- a recovery ----------------------------------------------------------------------------------
    def _recover(self, failed: set[str], stuck: set[str], delay_s: float, now_s: float, effects: list[Effect]) -> None:
        self.phase, self._moved = Phase.DELAYED, ()
        self.waiting, self._too_late_s, self._room_s = set(), float("inf"), float("inf")
        self._lost, self._stuck = failed, self._stuck | stuck
        self._failed_s, self._delay_s, self._due_s = now_s, delay_s, now_s + delay_s
        region = self._region_of(failed)
        if isinstance(region, str):
            self._restart_all(region, effects)
        else:
            self._region = region
        if not delay_s:
            self._read_store(now_s, effects)

    def _region_of(self, failed: Collection[str]) -> Region | str:
        """What has to be restarted; a string says why everything has to be, and is empty where that was to be expected."""
        if self.config.failures.recovery != "upstream" or PROGRESS in failed or not failed:
            return ""
        return region_of(self.plan, {stage_of(name) for name in failed})

    def _spread(self, name: str, effects: list[Effect]) -> None:
        """One more has failed before anything was restarted."""
        self._lost.add(name)
        region = self._region_of(self._lost)
        if isinstance(region, str):
            self._restart_all(region, effects)
        else:
            self._region = region

    def _restart_all(self, why: str, effects: list[Effect]) -> None:
        """All actors end their work, and new ones start meanwhile."""
        if why:
            effects.append(WholeGraph(why))
        self._region = None
        self._release(None, effects)
        self.incarnations = dict.fromkeys(self._names(), self.incarnation)  # answers of earlier incarnations are void

    def _release(self, names: tuple[str, ...] | None, effects: list[Effect]) -> None:
        effects.append(Release(names, self.incarnation, tuple(sorted(self._stuck))))
        self._stuck = set()
        self.incarnation += 1
        effects.append(Start(self.incarnation))

    def _read_store(self, now_s: float, effects: list[Effect]) -> None:
        self.phase = Phase.READING
        self._due_s = 0.0
        self._store_patience_s = now_s + self.config.start_timeout_s
        effects.append(self._to_read())

    def _to_read(self) -> ReadStore:
        return ReadStore(self.incarnation, self._region, self._names() if self._region is not None else (), self._suspected)

    def _on_store_away(self, event: StoreAway, now_s: float, effects: list[Effect]) -> None:
        """Wait for the store as long as for an actor that starts; a new job waits only if it has to resume."""
        if self.phase is not Phase.READING or event.incarnation != self.incarnation:
            return
        if (self._is_first and not self._succeeds) or now_s > self._store_patience_s:
            self._give_up(event.failure, "", effects)
        else:
            self._due_s = now_s + STORE_AWAY_S

    def _on_store_read(self, event: StoreRead, now_s: float, effects: list[Effect]) -> None:
        if self.phase is not Phase.READING or event.incarnation != self.incarnation:
            return
        region = self._region
        if region is not None and event.all_because:
            self._restart_all(event.all_because, effects)
            self._read_store(now_s, effects)
            return
        if self._is_first:
            effects.append(Start(self.incarnation))
        names = self._names()
        self._void = event.void
        if region is not None:
            self._release(names, effects)
            effects.append(Switch(names, region, self.incarnation))
            self.incarnations.update(dict.fromkeys(names, self.incarnation))
        else:
            self.incarnations = dict.fromkeys(names, self.incarnation)
        self.phase = Phase.LISTENING
        self._addresses = {}
        self._await(names, self.config.start_timeout_s, now_s)
        if not self._is_first:
            self._room_s = now_s + self.config.failures.room_wait_s
        effects.append(Listen(names, self.incarnation, dict(self.incarnations), self._crashes.in_a_row))

    def _await(self, names: Collection[str], timeout_s: float, now_s: float) -> None:
        self.waiting, self.asked, self._room_s = set(names), len(names), float("inf")
        self._too_late_s = now_s + timeout_s

    def _on_all_listen(self, now_s: float, effects: list[Effect]) -> None:
        names, region = self._names(), self._region
        if region is None:
            self._on_all_there(now_s, effects)
            return
        living = tuple(name for name in self._processes() if name not in names)
        self.phase = Phase.ROLLING_BACK
        self._await(living, self.config.start_timeout_s + ROLL_BACK_S, now_s)
        effects.append(RollBack(living, region, self.incarnation, self._void, dict(self._addresses)))

    def _on_all_there(self, now_s: float, effects: list[Effect]) -> None:
        """All that are new listen, and those that live on know them: else a credit for what an earlier one sent would go to a new one."""
        names = self._names()
        effects.append(Run(names, self.incarnation, dict(self._addresses)))
        restart_s = None if self._failed_s is None else max(0.0, now_s - self._failed_s - self._delay_s)
        self.phase = Phase.RUNNING
        self._restarts.on_running(now_s)
        self._crashes.on_running(now_s)
        self._region, self._lost, self._too_late_s, self._room_s = None, set(), float("inf"), float("inf")
        effects.append(Running(names, restart_s, self._moved))
        self._moved = ()

    # -- names ---------------------------------------------------------------------------------------
    def _names(self) -> tuple[str, ...]:
        """Who is restarted."""
        if self._region is None:
            return (PROGRESS, *self._processes())
        return tuple(name for name in self._processes() if stage_of(name) in self._region.stages)

    def _processes(self) -> tuple[str, ...]:
        """Stage by stage."""
        return self._places.processes(self.plan)
