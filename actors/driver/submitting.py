"""Submitting a dataflow on Ray: plan it, join or start a cluster, refuse what cannot work, then start the job, here or in a keeper."""

from __future__ import annotations

import dataclasses
import os
import time as clock
from typing import TYPE_CHECKING, Any

from rayad.actors.cluster.joining import ensure_ray, ray_encrypts
from rayad.actors.cluster.parcels import pack
from rayad.actors.driver.job_handle import RayJobHandle
from rayad.actors.driver.program import Program
from rayad.actors.driver.ray_job import RayJob, places_for
from rayad.actors.driver.termination import OF_THIS_PROCESS
from rayad.actors.driver.worker_modules import check_can_travel
from rayad.actors.lead.placing import needs_of
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.items import FedInput
from rayad.dataflow.streams.flow import Dataflow
from rayad.progress import ConfigError, DataflowError

if TYPE_CHECKING:
    from rayad.actors.driver.attached_job import AttachedJob

PROGRAM_BYTES_MAX = 8 << 20
"""Ray keeps the arguments of an actor that it may restart in its control store, up to 10 MB; larger ones would die with the driver."""


def submit_to_ray(flow: Dataflow, config: RunConfig, scaling: ScalingConfig, *, detached: bool = False, **options: Any) -> RayJobHandle:
    """Plan, check, and start a job on Ray."""
    if options:
        raise ConfigError(f"unknown options {sorted(options)} for runtime='ray'")
    config = _as_ray_encrypts(config)
    if detached:
        config = _fit_for_a_keeper(flow, config)
    plan = flow.plan(scaling=scaling, key_groups=config.key_groups, fingerprints=config.keeps_snapshots)
    plan = plan.needing(config.resources)
    ensure_ray(
        lambda: needs_of(plan, places_for(plan, config, scaling), config.cpus_per_replica),
        f"{flow.name!r} with {plan.replicas} replicas",
        config.autoscaling_cluster,
    )
    asked_s = check_can_travel(plan) or clock.time()  # set if a worker was started for the check; else the first process is next
    program = Program(config.name or flow.name, plan, config, scaling, asked_s)
    return _submit_detached(program) if detached else _submit_here(program)


def _as_ray_encrypts(config: RunConfig) -> RunConfig:
    """Whether frames between nodes are encrypted, for all processes of the job; not in the clear beside what Ray encrypts."""
    asked = ray_encrypts()
    if config.encrypt is False and asked:
        raise ConfigError(
            f"RunConfig(encrypt=False), but RAY_USE_TLS={asked}: Ray encrypts what goes between nodes, and the job's batches would go "
            "beside it in the clear; leave encrypt out"
        )
    return dataclasses.replace(config, encrypt=bool(asked) if config.encrypt is None else config.encrypt)


def _submit_here(program: Program) -> RayJob:
    job = RayJob(program.name, program.plan, program.config, program.scaling, program.asked_s)
    OF_THIS_PROCESS.watch(job, program.config.termination_s)
    try:
        job.sources.started(job, program.config)
    except BaseException:
        job.cancel()
        raise
    return job


def _submit_detached(program: Program) -> AttachedJob:
    """In a keeper; other jobs do not load it."""
    from rayad.actors.driver.attached_job import attach
    from rayad.actors.driver.keeper import start_keeper

    start_keeper(program.name, program.config, _packed(program))
    return attach(program.name)


def _fit_for_a_keeper(flow: Dataflow, config: RunConfig) -> RunConfig:
    """The configuration as it is valid in another process. Raises ConfigError where a keeper could not do what is asked."""
    if config.failures.max_failures and not config.keeps_snapshots:
        raise ConfigError(
            f"submit(detached=True): FailureConfig.max_failures is {config.failures.max_failures}, but the job keeps no snapshots to "
            "resume from: give RunConfig(storage_path=...), or say with max_failures=0 that the job may be lost"
        )
    if config.keep_warm_s:
        raise ConfigError(
            f"submit(detached=True): RunConfig(keep_warm_s={config.keep_warm_s:g}) keeps processes for the next job of this driver, but a "
            "detached job's are its keeper's, and end with it: leave keep_warm_s out"
        )
    fed = [node.name for node in flow.graph.nodes if isinstance(node.op, FedInput)]
    if fed:
        raise ConfigError(f"submit(detached=True): {', '.join(map(repr, fed))} is fed by this process, and would stand still without it")
    if config.storage_path is not None and "://" not in config.storage_path:
        config = dataclasses.replace(config, storage_path=os.path.abspath(os.path.expanduser(config.storage_path)))
    return config


def _packed(program: Program) -> bytes:
    """The program as it travels to the keeper. Raises DataflowError where it could not outlive this process."""
    held = [stage for stage in program.plan.stages if pack(stage)[1]]
    if held:
        raise DataflowError(
            f"submit(detached=True): {held[0].name!r} ({held[0].where}) reads objects in Ray's object store that this process owns: they "
            "are gone when it ends; write them to files (read_parquet), or submit without detached=True and keep this process"
        )
    data, _ = pack(program)
    if len(data) > PROGRAM_BYTES_MAX:
        raise DataflowError(
            f"submit(detached=True): the program and the data in it are {len(data)} bytes; a job that outlives its driver may have "
            f"{PROGRAM_BYTES_MAX}: read the data from files (read_parquet), or send it to a live input"
        )
    return data


__all__ = ["submit_to_ray"]
