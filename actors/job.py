"""What both runtimes' job handles share: results, states, probes, inputs."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rayad.actors.inputs.collection_input import CollectionInput
from rayad.actors.inputs.job_input import JobInput as JobInput
from rayad.actors.lead.job_leader import JobState as JobState
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.lead.saved_inputs import SavedEpochs as SavedEpochs
from rayad.actors.status.job_status import JobStatus as JobStatus
from rayad.actors.status.journal import JobEvent as JobEvent
from rayad.actors.status.laid_out import laid_out
from rayad.actors.status.silent import THE_COORDINATOR as THE_COORDINATOR
from rayad.actors.status.silent import Silent as Silent
from rayad.actors.status.snapshots_late import SnapshotsLate as SnapshotsLate
from rayad.actors.status.table import as_html
from rayad.actors.status.updates import Update as Update
from rayad.actors.status.updates import Updates as Updates
from rayad.actors.tables.of_job import ReadsTables
from rayad.dataflow.compiling.drawing import draw_plan
from rayad.dataflow.config import RunConfig, check_timeout
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.records.wrong_names import Advising, NoSuchMethod, by_instead
from rayad.dataflow.source import Source
from rayad.progress import DataflowError, RayadError, Timestamp, arguments, show
from rayad.snapshots.attempts import SnapshotStatistics

if TYPE_CHECKING:
    from rayad.autoscale import ScalingProgress

SHOWN_ROWS = 20
"""The records of a result that are shown, at most."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """What a job did: its times, actors, batches and records by vertex, the snapshots taken, failures survived, how it was scaled.

    ``start_s``: seconds from the driver's first request to Ray until all actors ran. ``run_s``: seconds from then until the results were
    published. Neither includes planning (listing files, reading footers) before, nor fetching results after; ``benchmarks/clock.py`` counts
    both. The local runtime starts nothing: ``start_s`` and ``actors`` are 0.
    """

    start_s: float = 0.0
    run_s: float = 0.0
    actors: int = 0
    stages: dict[str, dict[str, int]] = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=dict)
    snapshots: tuple[SnapshotStatistics, ...] = ()
    failures: int = 0
    scaling: ScalingProgress | None = None


class NoSuchResult(DataflowError, KeyError):
    """No sink gives the result that was asked for. It is also a KeyError, as for any mapping."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its message


class Result(Advising, Mapping[str, Any]):
    """Results by sink name; ``statistics`` tells how the job ran."""

    _not_here = by_instead(
        {
            "to_pandas() of one of them: result['x'].to_pandas()": ("to_pandas", "toPandas", "to_df", "toDF", "df"),
            "to_polars() of one of them: result['x'].to_polars()": ("to_polars", "toPolars"),
            "to_arrow() of one of them: result['x'].to_arrow()": ("to_arrow", "toArrow", "to_table"),
            "result['x'], a list": ("collect", "records", "rows", "to_list", "fetchall", "take"),
            "show()": ("print", "display", "head"),
            "statistics": ("stats", "metrics", "status"),
        }
    )

    def __init__(self, values: Mapping[str, Any], statistics: JobStatistics) -> None:
        self._values = dict(values)
        self.statistics = statistics

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and name in self._values:
                raise NoSuchMethod(f"{name} at {users_line()}: a Result is a mapping; use result[{name!r}]")
            return super().__getattr__(name)

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise NoSuchResult(f"there is no result {show(key)}: the sinks of this dataflow are {sorted(self._values)}")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Result({', '.join(sorted(self._values))})"

    def _repr_html_(self) -> str:
        """In a notebook: the first records of each."""
        return "".join(laid_out(value, SHOWN_ROWS).as_html(name) for name, value in self._values.items())

    def show(self, name: str | None = None, *, rows: int = SHOWN_ROWS) -> None:
        """Print the first ``rows`` records of a result, or of each, as a table: on a terminal and in a notebook."""
        rows = arguments.whole(rows, "show: rows", least=1)
        found = dict(self._values) if name is None else {name: self[name]}
        for each, value in found.items():
            laid_out(value, rows).show(each)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """One vertex as seen by the progress core: times that can still arrive, and what its replicas have done."""

    name: str
    frontier: tuple[Timestamp, ...]
    pending_notifications: tuple[Timestamp, ...]
    batches_in: int = 0
    records_in: int = 0
    replicas: int = 0
    """Those that have told something; 0 while the job starts."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A look at a job: its state, its vertices, and how many pointstamps are active."""

    state: JobState
    stages: tuple[StageProgress, ...]
    active: int
    snapshot: SnapshotStatistics | None = None
    """The newest snapshot of this run."""
    snapshot_interval_s: float | None = None
    """Seconds between snapshots as they stand now; None: on demand only."""
    failures: int = 0
    """How many failures have been survived."""
    scaling: ScalingProgress | None = None
    """What the autoscaler measures and decided, with reasons; None where the job has none."""
    silent: tuple[Silent, ...] = ()
    """Who did not answer: of these, the counts are what could be seen from outside, or was last known."""
    snapshots_late: SnapshotsLate | None = None
    """Snapshots that fail, take long or do not come; None: they come in time."""


class Probe(ABC):
    """Progress at one place of the dataflow."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __init_subclass__(cls) -> None:
        explains_calls(cls)

    @abstractmethod
    def frontier(self) -> tuple[Timestamp, ...]:
        """The minimal times that can still appear here; empty when nothing can."""

    def wait(self, epoch: int, timeout_s: float | None = None) -> bool:
        """Wait until ``epoch`` is complete here. Returns False after ``timeout_s``, or, in the local runtime, if nothing can move before
        something is sent."""
        return self._wait(arguments.whole(epoch, "wait(epoch) of a probe"), check_timeout(timeout_s, "wait(timeout_s) of a probe"))

    @abstractmethod
    def _wait(self, epoch: int, timeout_s: float | None) -> bool: ...

    def less_than(self, time: Timestamp) -> bool:
        """Whether something before ``time`` can still appear."""
        return any(f < time for f in self.frontier())

    def less_equal(self, time: Timestamp) -> bool:
        """Whether ``time`` or something before it can still appear."""
        return any(f <= time for f in self.frontier())

    def done(self) -> bool:
        """Whether nothing can appear any more."""
        return not self.frontier()

    def complete(self, epoch: int) -> bool:
        """Whether everything of ``epoch`` and before has passed."""
        epoch = arguments.whole(epoch, "complete(epoch) of a probe")
        return all(f.epoch > epoch for f in self.frontier())


class Job(Advising, ReadsTables, ABC):
    """A running dataflow."""

    _called = "a job"
    _not_here = by_instead(
        {
            "wait()": ("join", "await_termination", "awaitTermination", "get", "wait_for_completion", "run", "block"),
            "stop(), which finishes what is under way, or cancel()": ("terminate", "kill", "shutdown", "close", "end"),
            "savepoint()": ("checkpoint", "snapshot", "save", "trigger_savepoint", "take_savepoint"),
            "rescale({name: replicas})": ("scale", "resize", "set_parallelism", "setParallelism", "scale_up", "scale_down"),
            "status()": ("stats", "metrics", "statistics", "info", "describe", "health", "lastProgress", "recentProgress"),
            "result('x')": ("results", "collect", "output", "outputs"),
            "result('x').to_pandas()": ("to_pandas", "toPandas"),
            "updates('x')": ("stream", "subscribe", "watch", "listen", "tail", "follow", "iter", "execute_and_collect"),
            "journal()": ("logs", "log", "events", "history", "exceptions"),
            "input('x').send(records)": ("send", "push", "feed", "put", "write", "ingest"),
            "explain_stuck(), or plan": ("explain", "why"),
            "state": ("is_running", "is_done", "done", "running", "isActive", "finished"),
        }
    )

    runs_alone: ClassVar[bool] = True
    """Whether it moves by itself; a local job moves while somebody waits for something in it."""

    _calls_of_runtime: ClassVar[tuple[str, ...]] = ()
    """What else a user can call on a job of this runtime."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __dir__(self) -> list[str]:
        """What is meant for users; how a runtime works inside is our affair."""
        of_all = {**vars(ReadsTables), **vars(Job)}
        shared = [name for name, value in of_all.items() if callable(value) or isinstance(value, property)]
        return sorted({"name", *shared, *self._calls_of_runtime, *dir(object)})

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What runs."""

    def __init_subclass__(cls) -> None:
        explains_calls(cls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.state.value}>"

    def _repr_html_(self) -> str:
        """In a notebook: its vertices, as a drawing and as a table of what they do now."""
        return draw_plan(self.plan) + as_html(self.status())

    @property
    @abstractmethod
    def state(self) -> JobState:
        """Where the job is in its life."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        """Wait for the end and return the results. Raises what ended the job; after ``timeout_s`` raises TimeoutError, and the job runs
        on.

        ``progress``: True shows meanwhile how far the job is; None does, too, unless the environment has ``RAYAD_PROGRESS=0``. What is
        shown is described at :meth:`Dataflow.run`.
        """

    def result(self, name: str | None = None) -> Any:
        """Wait for the end and return the results, or the one called ``name``."""
        out = self.wait()  # ends with the job: nobody in it is silent for longer than its heartbeat timeout
        return out if name is None else out[name]

    @abstractmethod
    def progress(self) -> JobProgress:
        """Frontiers and counts of each vertex at this moment."""

    @abstractmethod
    def status(self) -> JobStatus:
        """Look at the job now: rates, shares of time, backlog, state, frontier and its lag for each vertex and replica; the last
        snapshot; who is silent.

        On Ray it returns within a second, even if some do not answer. The first call gives means since the start, later calls means of the
        last second or more. Of a job that has ended only the state is known. In the local runtime the clock counts steps.
        """

    @abstractmethod
    def journal(self) -> tuple[JobEvent, ...]:
        """Events of the job, oldest first: start, snapshots, failures, recoveries, rescales, decisions of the autoscaler, end; the
        newest 1,000.

        With ``storage_path`` they are also appended as JSON lines to ``<storage_path>/<job>/journal.jsonl``, which all runs of the job
        share; events of earlier runs then come first.
        """

    @abstractmethod
    def page(self, *, host: str = "127.0.0.1", port: int = 0, steps: bool = False, state: bool = False) -> str:
        """Serve a web page of the job until it, or this process, has ended, and give the page's address.

        The page shows figures, the graph with back-pressure by colour, a table of the vertices, lines over time, and what has happened. On
        Ray an actor on this node serves it, which asks the coordinator at most once a second, however many browsers look. In the local
        runtime a thread of this process does; the job moves in your own thread, so the page stands still while nobody waits for the job.

        Args:
            host: where to listen. On an address that others can reach (``"0.0.0.0"``: all of this node) the page needs the token in the
                address that is given.
            port: 0 takes one that is free.
            steps: whether the job can be steered from the page: savepoint, rescale, stop. Then the token is needed on every address.
                Not in the local runtime, whose jobs move in your own thread.
            state: whether the page shows the first keys and values of a vertex in the newest snapshot, on demand. Then the token is needed
                on every address. Only signed snapshots are read (``SnapshotConfig(secret=...)``).

        Called again with the same it gives the same page. Raises ConfigError for what cannot be, DataflowError when the job has ended,
        RayadError when the page cannot be served.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End the job without results. No process stays and nothing more is published; what snapshots have committed stays. Does nothing
        if the job has ended."""

    @abstractmethod
    def fail(self, error: RayadError) -> None:
        """End the job like :meth:`cancel`, but as failed: :meth:`wait` raises ``error``. For whoever feeds the job from outside and
        cannot continue. Does nothing if the job has ended."""

    @abstractmethod
    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        """End the input: sources stop reading, live inputs close, and the job finishes what is under way. With ``drain=False`` it is
        cancelled."""

    @abstractmethod
    def savepoint(self, *, timeout_s: float | None = None) -> str:
        """Take a snapshot now that is kept until you delete it; returns its path, for ``RunConfig(resume=path)``.

        It holds what the dataflow has received: of records that were just sent to a live input, ``job.input(name).sent`` of the job that
        resumes says how many; wait for a probe or :meth:`JobInput.wait_saved` to have all of them in it.

        ``timeout_s``: how long it may take; None: ``SnapshotConfig.timeout_s``. The local runtime does nothing else meanwhile and needs no
        timeout. Raises ConfigError if the job keeps no snapshots, SnapshotError if the savepoint could not be taken, or not in time; it may
        then still be completed later, and the message says what is known. Of a failed job, :meth:`wait` raises the cause.
        """

    @abstractmethod
    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> RescaleReport:
        """Change the number of replicas of a vertex while the job runs, or of several (``{name: replicas}``); returns when it is done.

        Keyed vertices take their state along, a few key-groups at a time; nothing halts (docs/design/rescaling.md). A failure meanwhile is
        survived like any other, and the change starts again. Raises RescaleRefused, and the layout stays, if a name is unknown, a vertex
        cannot be divided, or (on Ray) new replicas could not be placed, or a replica in a long activation did not reach the change, within
        ``timeout_s``. From then on it waits for the change at most 10 more minutes: then it raises TimeoutError while the change goes on.
        In the local runtime new replicas exist at once, and all key-groups move in one step.
        """

    @abstractmethod
    def configure(self, **changes: Any) -> None:
        """Change settings while the job runs.

        These are fields of :class:`RunConfig` that bound buffers, batches and pauses (``window_batches``, ``window_bytes``, ``batch_rows``,
        ``combine_hold_s``, ``rescale_pause_s``), and the autoscaler's ``report_interval_s``. Nothing halts; replicas that are added later
        have them, too. Raises ConfigError for other names and impossible values. On Ray it waits for replicas in long activations, as
        :meth:`rescale` does; the local runtime warns of settings that have no effect there.
        """

    @abstractmethod
    def input(self, name: str) -> JobInput:
        """The sending end of the live input ``name``."""

    def collection(self, name: str) -> CollectionInput:
        """The sending end of the live collection ``name``."""
        return CollectionInput(self.input(name))

    @abstractmethod
    def probe(self, name: str) -> Probe:
        """The probe ``name``."""

    def updates(self, name: str) -> Updates:
        """Iterate over the records written to ``collect(name)`` while the job runs: ``for update in job.updates("x")``.

        Each update has ``epoch``, ``time`` and ``record``. Updates of a replica are in the order in which it wrote them; those of different
        replicas are in any order. They are read before a snapshot holds them, so some come again after a recovery: the newest value of a
        key is the one with the greatest time.

        The job does not wait for its readers. Each replica keeps its last 10,000 records; ``missed`` is the number of records lost before
        an update because the reader was too slow, or None if a replica died or left, since then nobody knows.

        The loop ends when the job is complete, and raises the error of a job that failed or was cancelled; Ctrl-C ends the loop only. In
        the local runtime the loop runs the job; it also ends when nothing can move before something is sent, and the same ``updates`` can
        be used again afterwards.

        Raises DataflowError if there is no ``collect`` of that name.
        """
        known = [sink.key for sink in self.plan.sinks if sink.sink.tells_updates]
        if name not in known:
            raise DataflowError(f"updates of job {self.name!r}: there is no collect({show(name)}): it has {sorted(known)}")
        return self._updates(name)

    @abstractmethod
    def _updates(self, name: str) -> Updates: ...

    @abstractmethod
    def explain_stuck(self) -> str:
        """Say why nothing moves: for each waiting notification what could still result in it, and where batches are held up."""

    @contextmanager
    def showing(self, progress: bool | None, what: str) -> Iterator[bool]:
        """Show how far the job is while the block runs, if the job runs by itself; gives whether that is done. ``progress``: as of
        :meth:`wait`, which may be called in the block. ``what`` was given it, for errors."""
        yield False

    def _records_read(self, statistics: JobStatistics) -> int:
        """How many records all sources and live inputs have given."""
        starts = (stage.name for stage in self.plan.stages if stage.kind in (NodeKind.SOURCE, NodeKind.INPUT))
        return sum(statistics.stages.get(name, {}).get("records_in", 0) for name in starts)

    def _known(self, name: str, kind: str, among: Mapping[str, int]) -> int:
        if not isinstance(name, str) or name not in among:
            raise DataflowError(f"dataflow {self.plan.name!r} has no {kind} {show(name)}: it has {sorted(among)}")
        return among[name]


class SourcesOfJob:
    """The sources of a job, on the driver: each is told that the job has started, and once that it has ended."""

    def __init__(self, plan: Plan) -> None:
        self._sources = [stage.op for stage in plan.stages if stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        self._told: list[Source] = []
        self._is_over = False
        self._telling = threading.Lock()

    def started(self, job: Job, config: RunConfig) -> None:
        """The job has been submitted. Raises what a source raises."""
        for source in self._sources:
            self._told.append(source)
            source.job_started(job, config)
        if self._is_over:
            self.ended()

    def ended(self) -> None:
        """The job is over; from any thread, and as often as somebody notices it. When this returns all have been told."""
        self._is_over = True
        with self._telling:
            while self._told:
                source = self._told.pop()
                try:
                    source.job_ended()
                except Exception:
                    _log.warning("%s raised in job_ended()", type(source).__name__, exc_info=True)


def not_yet(name: str, timeout_s: float | None) -> TimeoutError:
    """What ``wait(timeout_s)`` raises: the job runs on."""
    return TimeoutError(f"job {name!r} is not complete after {timeout_s} s; it goes on, wait() again or cancel()")


def describe_blockers(stage: str, time: Timestamp, blockers: list[tuple[str, Timestamp, int]], limit: int = 8) -> str:
    """One paragraph of ``explain_stuck``."""
    lines = [f"{stage!r} waits for {time}; before it:"]
    lines.extend(f"  {count} at {place}, {when}" for place, when, count in blockers[:limit])
    if len(blockers) > limit:
        lines.append(f"  and {len(blockers) - limit} more")
    return "\n".join(lines)
