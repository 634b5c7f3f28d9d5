"""Which settings have no effect in a run, and the words that warn of them, so that nobody relies on them.

The local runtime is one process, without actors, connections, heartbeats and an autoscaler. Settings that it ignores begin with "on Ray" in
the docstrings of ``config.py``, and warn where they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rayad.dataflow.config import FailureConfig, RunConfig, ScalingConfig, SnapshotConfig
from rayad.dataflow.logical_graph import LogicalGraph
from rayad.progress import mask

USED_LOCALLY: dict[type, frozenset[str]] = {
    RunConfig: frozenset({
        "name", "storage_path", "resume", "snapshots", "failures", "key_groups", "window_batches", "window_bytes", "batch_rows",
        "spill_memory_bytes", "spill_directory", "state_memory_bytes", "epochs_ahead",
    }),
    SnapshotConfig: frozenset({"interval_s", "timeout_s", "alignment_timeout_s", "keep", "failures_max", "secret", "signed_for"}),
    FailureConfig: frozenset({
        "max_failures", "survive_errors", "window_s", "delay_s", "delay_max_s", "reset_after_s", "same_error_max", "recovery",
    }),
    ScalingConfig: frozenset({"parallelism", "default"}),
}  # fmt: skip
"""The settings that the local runtime uses."""
AUTOSCALER = frozenset({"policy", "mpr_folder", "report_interval_s", "window_s", "warm_up_s", "timeout_s", "journal"})
"""The settings of a ScalingConfig for the autoscaler; the local runtime has none."""
OF_MACHINES: dict[type, frozenset[str]] = {
    RunConfig: frozenset({
        "combine_hold_s", "start_timeout_s", "cpus_per_replica", "rescale_pause_s", "keep_results_s", "keep_warm_s", "encrypt",
        "host", "unix_sockets", "resources", "autoscaling_cluster", "termination_s", "activation_timeout_s", "input_log_bytes",
    }),
    FailureConfig: frozenset({"heartbeat_timeout_s", "room_wait_s"}),
    ScalingConfig: frozenset({"placement"}),
}  # fmt: skip
"""The settings for processes, connections, memory and machines, of which the local runtime has none."""

OF_RESTARTS = USED_LOCALLY[FailureConfig]
"""The settings for restarts after a failure."""
NOTHING_LOCALLY = "does nothing in the local runtime: it is one process, without actors, connections and heartbeats"
STORE = "give RunConfig(storage_path=...)"


def _given(config: Any, names: Iterable[str] | None = None) -> str:
    """``RunConfig(host='h')``: what differs from the defaults, of some fields; empty when nothing does."""
    default = type(config)()
    chosen = [f for f in fields(config) if (names is None or f.name in names) and getattr(config, f.name) != getattr(default, f.name)]
    shown = [f"{f.name}={mask(repr(getattr(config, f.name)))}" if f.repr else f"{f.name}=..." for f in chosen]
    return f"{type(config).__name__}({', '.join(shown)})" if shown else ""


def not_acted_on(run: RunConfig, scaling: ScalingConfig, runtime: str, seed: int = 0) -> list[str]:
    """The settings that have no effect here, in words, so that nobody relies on them."""
    told = []
    if isinstance(scaling.parallelism, int) and scaling.default != 1:
        told.append(
            f"ScalingConfig(default={scaling.default}) is for vertices that a dict does not name: parallelism={scaling.parallelism} "
            "is for all"
        )
    if not scaling.is_adaptive and (asked := _given(scaling, AUTOSCALER)):
        told.append(f"{asked} is for the autoscaler, and this job has none: give a policy, or a range (least, most)")
    if not run.keeps_snapshots and (asked := _given(run.snapshots)):
        told.append(f"{asked} does nothing: no snapshots are kept; {STORE}")
    failures = run.failures
    if failures.max_failures and not run.keeps_snapshots:
        told.append(f"{_given(failures, OF_RESTARTS)} does nothing: a job without snapshots survives no failure; {STORE}")
    elif failures.max_failures == 0 and (asked := _given(failures, OF_RESTARTS - {"max_failures"})):
        told.append(f"{asked} does nothing: no failure is survived; give FailureConfig(max_failures=...)")
    if runtime != "local":
        if seed:
            told.append(f"seed={seed} does nothing with runtime={runtime!r}: only the local runtime draws its order from a seed")
        return told
    if scaling.is_adaptive:
        told.append("the local runtime has no autoscaler: replicas stay as they are at the beginning, but for job.rescale()")
    passed_over = [_given(config, OF_MACHINES[type(config)]) for config in (run, failures, scaling)]
    told += [f"{asked} {NOTHING_LOCALLY}" for asked in passed_over if asked]
    return told


def not_asked_locally(graph: LogicalGraph, runtime: str) -> list[str]:
    """The resources that operators ask for and a local run ignores, in words."""
    if runtime != "local":
        return []
    told = [f"{node.name!r} ({node.resources.told()})" for node in graph.nodes if node.resources is not None]
    return [f"what was asked for with {', '.join(told)} {NOTHING_LOCALLY}"] if told else []


def not_set_aside(graph: LogicalGraph, run: RunConfig, runtime: str) -> list[str]:
    """The operators whose ``after_crashes`` cannot be reached, in words."""
    asked = [(node.name, node.op.after_crashes) for node in graph.nodes if getattr(node.op, "after_crashes", None) is not None]
    survived = run.failures_survived
    if runtime == "local":
        told = ", ".join(f"after_crashes={after} of {name!r}" for name, after in asked)
        return [f"{told} {NOTHING_LOCALLY}"] if asked else []
    return [
        f"after_crashes={after} of {name!r} does nothing: the job survives {survived} failures; give "
        f"FailureConfig(max_failures={after}) or more{'' if run.keeps_snapshots else ' and RunConfig(storage_path=...)'}"
        for name, after in asked
        if after > survived
    ]


def not_changed_locally(changes: Mapping[str, Any]) -> str:
    """The settings of a ``configure(...)`` that the local runtime ignores, in words; "" for none."""
    passed_over = {name: value for name, value in changes.items() if name in OF_MACHINES[RunConfig]}
    told = ", ".join(f"{name}={value!r}" for name, value in passed_over.items())
    return f"configure({told}) {NOTHING_LOCALLY}" if told else ""
