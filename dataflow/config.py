"""How a job runs: names, storage, parallelism. Plain frozen values, checked when they are made.

Settings that the local runtime ignores begin with "on Ray" in the docstrings here (`without_effect.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rayad.dataflow.logical_graph import check_count, check_name
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.resources import Resources
from rayad.progress import ConfigError, DataflowError, arguments, masks_repr, show

BATCH_ROWS = 4096
"""Default of ``RunConfig.batch_rows``."""

KEY_GROUPS_MOST = 32_768
"""Most key-groups that a job may have."""
Rule = Callable[..., Any]


def check_timeout(value: Any, what: str) -> float | None:
    """None, or seconds: a number of at least 0."""
    return arguments.seconds_or_none(value, what, error=ConfigError)


def _settle(config: Any, rule: Rule, *names: str, optional: bool = False, **options: Any) -> None:
    """Check these fields of a configuration that is being made, by a rule of ``arguments``, and keep what it gives: a plain value."""
    for name in names:
        value = getattr(config, name)
        if optional and value is None:
            continue
        more = ", or None" if optional else ""
        object.__setattr__(config, name, rule(value, f"{type(config).__name__}.{name}", error=ConfigError, more=more, **options))


@explains_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    """When and how snapshots are taken.

    Args:
        interval_s: seconds from the beginning of one snapshot to the next. ``"auto"`` computes the best interval online from the measured
            cost of snapshots and the failure rate (Jayasekara et al., FGCS 2020). None: only ``job.savepoint()`` takes one.
        timeout_s: a snapshot or savepoint that takes longer is given up; the next one begins at its time.
        alignment_timeout_s: if barriers take longer than this to arrive on all inputs of a replica, it captures at once, and records in
            flight become part of the snapshot. None: never. 0: always (unaligned snapshots, for jobs under backpressure). In the local
            runtime the seed draws when, if it is above 0.
        keep: how many snapshots stay in the store, with those that they build on; savepoints are kept in addition.
        failures_max: how many snapshots in a row may fail before that counts as a failure (`FailureConfig`); None: the job runs on without
            snapshots.
        secret: signs manifests and what the keeper of a detached job stores, for this job and the place where each lies; anything else,
            unsigned files too, is refused (docs/deployment.md).
        signed_for: the name of another job whose signed snapshots are accepted, because its store was copied here or the job was renamed.
    """

    interval_s: float | Literal["auto"] | None = None
    timeout_s: float = 600.0
    alignment_timeout_s: float | None = None
    keep: int = 2
    failures_max: int | None = None
    secret: bytes | None = field(default=None, repr=False)
    signed_for: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.interval_s, str) and self.interval_s == "auto"):
            _settle(self, _interval, "interval_s", optional=True)
        _settle(self, arguments.number, "timeout_s")
        _settle(self, arguments.number, "alignment_timeout_s", optional=True, zero=True)
        _settle(self, arguments.whole, "keep", least=1)
        _settle(self, arguments.whole, "failures_max", optional=True, least=1)
        _settle(self, arguments.secret, "secret", optional=True)
        _settle(self, arguments.text, "signed_for", optional=True)


DEATHS_SURVIVED = 10
"""How many deaths a job with a store survives where nothing else is said."""


@explains_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class FailureConfig:
    """How many failures a job survives, and how they are noticed. Without a store (``RunConfig.storage_path``) it survives none.

    Args:
        max_failures: how many failures within ``window_s`` the job survives; after each it resumes from its last snapshot, or restarts if
            there is none. One more, and it fails with the first cause among them. 0: the first failure ends it. None: survive 10 deaths of
            processes or nodes, and no exception of your code.
        survive_errors: whether exceptions of your code are survived like deaths; None: only if ``max_failures`` is given.
        window_s: failures no longer count after the job has run for so long; None: all since the job's start count. Only running time ages
            them, not the time of starts and delays: a job that dies at every start ends.
        delay_s, delay_max_s: the first restart is immediate. When failures come in a row, the second waits ``delay_s``, each later one
            twice as long as the one before (plus or minus a random tenth), up to ``delay_max_s``.
        reset_after_s: a row of failures is over when the job has run for so long without one; snapshots in between do not end it. A
            repetition of the same exception of your code always belongs to the row.
        same_error_max: end the job when the same exception of your code repeats so many times in a row at the same vertex and time: it
            would repeat for ever. Errors that may pass (OSError, those of other libraries) do not count. None: only ``max_failures`` does.
        recovery: "graph" restarts all vertices from the snapshot. "upstream" restarts the failed vertices and those upstream of them, while
            the others keep running. For that, batches wait before each vertex until their time is complete (in loops: before the loop),
            which costs latency and memory for one epoch; and what a vertex sends at a time must follow from what it received at and before
            that time, in whatever order. If a failure reaches every vertex, the whole graph restarts.
        heartbeat_timeout_s: on Ray: a process that has not answered for so long counts as dead, and so does one whose lost connection was
            not replaced for so long. Heartbeats have a thread of their own, so your functions may take longer, as long as they let other
            threads run (Python code does; C code that keeps the interpreter's lock does not). For functions that never return see
            `RunConfig.activation_timeout_s`.
        room_wait_s: on Ray: when nodes are gone, a recovery waits so long for others. Then workers (`ScalingConfig.placement`) for which no
            node has room share the processors that are there, until a `Job.rescale` finds room. Other actors are waited for.
    """

    max_failures: int | None = None
    survive_errors: bool | None = None
    window_s: float | None = 3600.0
    delay_s: float = 1.0
    delay_max_s: float = 60.0
    reset_after_s: float = 600.0
    same_error_max: int | None = 3
    recovery: Literal["graph", "upstream"] = "graph"
    heartbeat_timeout_s: float = 60.0
    room_wait_s: float = 30.0

    def __post_init__(self) -> None:
        _settle(self, arguments.number, "heartbeat_timeout_s", "room_wait_s")
        arguments.choice(self.recovery, "FailureConfig.recovery", "graph", "upstream", error=ConfigError)
        _settle(self, arguments.number, "window_s", optional=True)
        _settle(self, arguments.number, "delay_s", "delay_max_s", zero=True)
        _settle(self, arguments.number, "reset_after_s")
        if self.delay_max_s < self.delay_s:
            raise ConfigError(f"FailureConfig.delay_max_s is {self.delay_max_s!r}: it must be at least delay_s, {self.delay_s!r}")
        _settle(self, arguments.whole, "same_error_max", optional=True, least=2)
        _settle(self, arguments.whole, "max_failures", optional=True, least=0)
        _settle(self, arguments.flag, "survive_errors", optional=True)

    @property
    def most(self) -> int:
        """How many failures a job with a store survives."""
        return DEATHS_SURVIVED if self.max_failures is None else self.max_failures

    @property
    def survives_errors(self) -> bool:
        """Whether what the user's code raises is survived as deaths are."""
        return self.max_failures is not None if self.survive_errors is None else self.survive_errors


@masks_repr
@explains_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one run.

    Args:
        name: the job's name; default: the dataflow's.
        storage_path: a folder, or a URI that pyarrow knows, under which the job keeps its snapshots (``<storage_path>/<name>/snapshots``).
            Default: ``~/.rayad`` if an interval or ``resume`` is given, otherwise no snapshots are kept.
        resume: "latest" resumes from the newest complete snapshot of the job of this name, or starts afresh if there is none; a number, or
            a path that ``job.savepoint()`` returned, resumes from that one. "never" starts afresh and deletes the snapshots of that name,
            except savepoints. None starts afresh if there are no snapshots, and is refused if there are: nothing is deleted silently.
        snapshots, failures: see `SnapshotConfig` and `FailureConfig`.
        key_groups: number of key-groups, the upper bound of replicas of a keyed vertex.
        window_batches, window_bytes: credits of each channel: how much may be in flight to a slow receiver; locally bytes are an estimate.
        batch_rows: lists of records for one replica are merged up to this length while they wait to be sent.
        spill_memory_bytes: what a replica keeps in memory of a feedback edge's backlog, and of batches that wait for their turn.
        spill_directory: the folder for the rest; default: the system's temporary folder.
        state_memory_bytes: memory of a replica for its state; more is in files (docs/state.md). None: all.
        epochs_ahead: how many epochs inputs may begin beyond what is complete in collections behind them; None: any (docs/collections.md).
        combine_hold_s: on Ray: how long a replica with more input ready may combine before it sends; 0: a round of its loop. Locally drawn.
        activation_timeout_s: on Ray: how long one call of a vertex or source (``on_recv``, ``on_notify``, ``next_batch``, with the
            functions in it) may take; a replica that takes longer is killed, which counts as a failure. None: no limit, since a model may
            take minutes; ``job.explain_stuck()`` names the replica and function that take long.
        input_log_bytes: on Ray: how much of what was sent to each live input since the last snapshot the driver keeps, to send it again
            after a failure; beyond it ``send`` waits for the next snapshot. Nothing is kept for a job that survives no failure.
        start_timeout_s: on Ray: how long the actors may take to start, and how long a recovery waits for a store that is unavailable.
        termination_s: on Ray: on SIGTERM to the driver (``ray job stop``, the end of a pod) the job takes a savepoint if it has a store,
            and job and process end, with status 143, within this time; a second SIGTERM ends them at once. ``ray job stop`` kills after 3 s
            unless ``RAY_JOB_STOP_WAIT_TIME_S`` is larger. A signal handler of your own is kept.
        keep_results_s: on Ray: how long results of a job submitted with ``detached=True`` are kept after its end if nobody fetches them.
        keep_warm_s: on Ray: how long processes of a complete job wait for the driver's next one (see `rayad.session`); None: they end.
        cpus_per_replica: on Ray: CPUs of each replica, unless its vertex says otherwise.
        resources: on Ray: resources of each replica by vertex name, in place of those in the program (``map(f, num_gpus=1)``).
        autoscaling_cluster: on Ray: whether the cluster may add nodes for resources that none has now: the job waits for them, at most
            ``start_timeout_s``; else it is refused at once. None: as the cluster says (Ray's autoscaler v2 does).
        rescale_pause_s: on Ray: how long one step of a rescale may pause a replica: large state moves in many steps. None: all key-groups
            at once, as in the local runtime (docs/design/rescaling.md).
        unix_sockets: on Ray: whether replicas on one node use Unix sockets; False: TCP everywhere, as between nodes.
        encrypt: on Ray: whether traffic between nodes is sealed (decision 075). None: only with ``RAY_USE_TLS=1``, where False is refused.
        host: on Ray: address that all actors listen on, one of their node's; default: that by which Ray knows each (``--node-ip-address``).
    """

    name: str | None = None
    storage_path: str | None = None
    resume: str | int | None = None
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)
    failures: FailureConfig = field(default_factory=FailureConfig)
    key_groups: int = DEFAULT_KEY_GROUPS
    window_batches: int = 64
    window_bytes: int = 16 << 20
    batch_rows: int = BATCH_ROWS
    spill_memory_bytes: int = 64 << 20
    spill_directory: str | None = None
    state_memory_bytes: int | None = None
    epochs_ahead: int | None = 64
    combine_hold_s: float = 0.1
    activation_timeout_s: float | None = None
    input_log_bytes: int = 256 << 20
    start_timeout_s: float = 120.0
    termination_s: float = 25.0
    keep_results_s: float = 3600.0
    keep_warm_s: float | None = None
    cpus_per_replica: float = 0.01
    resources: Mapping[str, Resources] = field(default_factory=dict)
    autoscaling_cluster: bool | None = None
    rescale_pause_s: float | None = 0.015
    encrypt: bool | None = None
    host: str | None = None
    unix_sockets: bool = True

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "the job name")
        _settle(self, arguments.path, "storage_path", "spill_directory", optional=True)
        _settle(self, arguments.text, "host", optional=True)
        _settle(self, arguments.instance, "snapshots", of=SnapshotConfig)
        _settle(self, arguments.instance, "failures", of=FailureConfig)
        _settle(self, arguments.whole, "key_groups", least=1, most=KEY_GROUPS_MOST)
        _settle(self, arguments.whole, "window_batches", "batch_rows", least=1)
        _settle(self, arguments.whole, "state_memory_bytes", least=1 << 20, optional=True)
        _settle(self, arguments.whole, "epochs_ahead", least=1, optional=True)
        if self.resume is not None:
            object.__setattr__(self, "resume", _resume(self.resume))
        _settle(self, arguments.number, "window_bytes", "spill_memory_bytes", "input_log_bytes", "start_timeout_s", "termination_s")
        _settle(self, arguments.number, "rescale_pause_s", "activation_timeout_s", "keep_warm_s", optional=True)
        _settle(self, arguments.flag, "unix_sockets")
        _settle(self, arguments.flag, "encrypt", optional=True)
        _settle(self, arguments.flag, "autoscaling_cluster", optional=True)
        if not isinstance(self.resources, Mapping) or not all(isinstance(one, Resources) for one in self.resources.values()):
            raise ConfigError(
                f"RunConfig.resources is {show(self.resources, 120)}: it must be a dict from a vertex's name to "
                "rd.Resources(num_cpus=..., ...)"
            )
        _settle(self, arguments.number, "cpus_per_replica", "combine_hold_s", "keep_results_s", zero=True)

    @property
    def keeps_snapshots(self) -> bool:
        """Whether the job has a store for snapshots."""
        return self.storage_path is not None or self.snapshots.interval_s is not None or self.resume is not None

    @property
    def failures_survived(self) -> int:
        """How many failures the job survives within ``failures.window_s``."""
        return self.failures.most if self.keeps_snapshots else 0


CHANGEABLE = ("window_batches", "window_bytes", "batch_rows", "combine_hold_s", "rescale_pause_s")
"""The settings of a RunConfig that may change while the job runs."""
REPORT_INTERVAL = "report_interval_s"
"""The one of a ScalingConfig that may."""


def configured(run: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """The configuration with these changes. Raises ConfigError where one cannot be."""
    wrong = sorted(set(changes) - set(CHANGEABLE))
    if REPORT_INTERVAL in wrong:
        raise ConfigError(f"configure({dict(changes)}): {REPORT_INTERVAL!r} is the autoscaler's, and this job has none")
    if wrong or not changes:
        told = f"{wrong[0]!r} is fixed when the job starts" if wrong else "nothing is to be changed"
        known = ", ".join((*CHANGEABLE, REPORT_INTERVAL))
        raise ConfigError(f"configure({dict(changes)}): {told}; what may change while it runs: {known}")
    return replace(run, **changes)


Parallelism = int | Mapping[str, int | tuple[int, int]]
PolicyChoice = str | Callable[[Any, Any, float], Any]


PLACEMENTS = ("auto", "vertices", "workers")
Placement = str | Mapping[str, str]
"""One of PLACEMENTS for all vertices, or a mapping from a vertex's name to one of them."""


@masks_repr
@explains_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """How many replicas vertices have, and who changes that while the job runs (docs/design/autoscaling.md).

    Without policy, ranges and folder there is no autoscaler. With a policy or a folder it may change every vertex that can be rescaled: a
    range bounds a vertex, an int is where it starts. With ranges alone the policy is "ds2", and only vertices with a range change.

    Args:
        parallelism: an int for all vertices, or a dict from vertex name to an int or a range ``(least, most)``, which starts at ``least``.
            Without a range a policy may ask for as many replicas as the cluster has CPUs (at least 2; with ``mpr_folder`` 256). In the
            local runtime a range stays where it starts.
        default: replicas of vertices that the dict does not name.
        policy: on Ray: who decides: "ds2"; "observe", which only measures; a policy of `rayad.autoscale`; or a picklable function
            ``(samples, state, now_s)`` that returns a decision, replicas by vertex name, or None.
        mpr_folder: on Ray: instead of a policy, a program in any language decides (MPR, PUCRS 2023, 5.5): it reads ``stats_<vertex>.json``
            in this folder, and the job applies what it writes to ``parameters.json``.
        report_interval_s: on Ray: seconds from one round of measurements, with its decision, to the next.
        window_s: on Ray: a decision uses the measurements of the last ``window_s`` seconds.
        warm_up_s: on Ray: measurements within so many seconds after a change are ignored.
        timeout_s: on Ray: how long the new replicas of a change may take to start.
        placement: on Ray: who shares a process. "vertices": each replica is an actor of its own; "workers": one of each vertex shares a
            worker, so that what stays within it is handed over as it is; "auto": an actor for each replica while the cluster has a
            processor for each, else as many workers as it has processors. Or a dict from vertex name to one of these ("vertices" for those
            that it does not name). Always by themselves are vertices that ask for resources, and unless the dict names them sources that
            wait (``Source.blocks``) and classes given to ``map_batches``: models take long.
        journal: on Ray: file to which measurements and decisions are appended as JSON lines, for ``rayad plot``; default:
            ``<storage_path>/<job>/scaling.jsonl`` if the storage is a local folder.
    """

    parallelism: Parallelism = 1
    default: int = 1
    policy: PolicyChoice | None = None
    mpr_folder: str | None = None
    report_interval_s: float = 2.0
    window_s: float = 10.0
    warm_up_s: float = 5.0
    timeout_s: float = 60.0
    journal: str | None = None
    placement: Placement = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", _placement(self.placement))
        if self.policy is not None and not (isinstance(self.policy, str) and self.policy) and not callable(self.policy):
            raise ConfigError(
                f"ScalingConfig.policy is {show(self.policy)}: it must be 'ds2', 'observe', a policy, or a function (samples, state, now_s)"
            )
        if self.policy is not None and self.mpr_folder is not None:
            raise ConfigError("both ScalingConfig.policy and mpr_folder are given: either a policy decides or who writes parameters.json")
        _settle(self, arguments.path, "mpr_folder", "journal", optional=True)
        _settle(self, arguments.number, "report_interval_s", "timeout_s")
        _settle(self, arguments.number, "window_s", "warm_up_s", zero=True)
        if isinstance(self.parallelism, Mapping):
            asked: Parallelism = {name: _asked(name, value) for name, value in self.parallelism.items()}
        else:
            asked = check_count(self.parallelism, "parallelism")
        object.__setattr__(self, "parallelism", asked)
        object.__setattr__(self, "default", check_count(self.default, "ScalingConfig.default"))

    def of(self, name: str) -> int | None:
        """The replicas given for a vertex by name; None if none were given."""
        if not isinstance(self.parallelism, Mapping):
            return None
        value = self.parallelism.get(name)
        return value[0] if isinstance(value, tuple) else value

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Least and most replicas by vertex, for those that were given a range."""
        named = self.parallelism.items() if isinstance(self.parallelism, Mapping) else ()
        return {name: value for name, value in named if isinstance(value, tuple)}

    @property
    def is_adaptive(self) -> bool:
        """Whether the job has an autoscaler."""
        return self.policy is not None or self.mpr_folder is not None or bool(self.ranges)

    @property
    def otherwise(self) -> int:
        """Replicas of vertices that are not named."""
        return self.default if isinstance(self.parallelism, Mapping) else self.parallelism


def _placement(value: Any) -> Placement:
    by_name = value.items() if isinstance(value, Mapping) else [("", value)]
    for name, one in by_name:
        if not isinstance(name, str) or not (isinstance(one, str) and one in PLACEMENTS):
            where = f" of {show(name)}" if isinstance(value, Mapping) else ""
            raise ConfigError(f"ScalingConfig.placement{where} is {show(one)}: it must be 'auto', 'vertices' or 'workers'")
    return dict(value) if isinstance(value, Mapping) else str(value)


def _asked(name: Any, value: Any) -> int | tuple[int, int]:
    """Of one vertex: a number of replicas, or the least and the most."""
    what = f"parallelism of {show(name)}"
    rule = " or a range (least, most) of such"
    if not isinstance(value, tuple):
        return check_count(value, what, more=rule)
    if len(value) != 2:
        raise DataflowError(f"{what} is {show(value)}: it must be an int of at least 1{rule}")
    least, most = (check_count(bound, f"{what} is {show(value)}, of which one") for bound in value)
    if least > most:
        raise DataflowError(f"{what} is {show(value)}: the least number is above the most; write ({most}, {least})")
    return least, most


def _interval(value: Any, what: str, *, error: type[ConfigError], more: str) -> float:
    return arguments.number(value, what, error=error, more=f", 'auto'{more}")


def _resume(value: Any) -> str | int:
    """Where to resume: a word or path, or a number of a snapshot."""
    rule = "it must be 'latest', 'never', a snapshot's number or path, or None"
    if isinstance(value, (str, os.PathLike)) and value != "":
        return arguments.path(value, "RunConfig.resume", error=ConfigError)
    try:
        return arguments.whole(value, "RunConfig.resume", least=1, error=ConfigError)
    except ConfigError:
        raise ConfigError(f"RunConfig.resume is {show(value)}: {rule}") from None
