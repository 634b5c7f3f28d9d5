"""Realistic mistakes of the leaders of recoveries and of a job's end, planted one at a time; see ``defects.py``."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.actors.lead import recovery_leader
from rayad.actors.lead.job_leader import JobLeader
from rayad.actors.lead.recovery_leader import Phase, RecoveryLeader, RollBack
from rayad.actors.lead.snapshot_leader import SnapshotLeader
from rayad.actors.replica.upstream import Region
from tests.simulation.defects import Plant, around

DEFECTS_OF_RECOVERIES: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_RECOVERIES[plant.__name__.replace("_", " ")] = plant
    return plant


# -- answers -------------------------------------------------------------------------------------------------------------------


@defect
def a_listening_answer_of_an_older_incarnation_is_believed(stack: ExitStack) -> None:
    around(stack, RecoveryLeader, "_is_awaited", lambda real, self, name, incarnation: name in self.waiting)


@defect
def replicas_run_before_all_listen(stack: ExitStack) -> None:
    def wait_for(real: Any, self: Any, names: Any, *args: Any) -> Any:
        return real(self, list(names)[:-1] if len(names) > 1 else names, *args)

    around(stack, RecoveryLeader, "_await", wait_for)


@defect
def a_failure_during_a_recovery_is_lost(stack: ExitStack) -> None:
    def on_failed(real: Any, self: Any, event: Any, *args: Any) -> None:
        if self.phase is Phase.RUNNING or event.is_final:
            real(self, event, *args)

    around(stack, RecoveryLeader, "_on_failed", on_failed)


# -- what is upstream of a failure -----------------------------------------------------------------------------------------------


@defect
def a_region_misses_one_stage(stack: ExitStack) -> None:
    def missing_one(real: Any, plan: Any, failed: Any) -> Any:
        region = real(plan, failed)
        left_out = min(region.stages - set(failed), default=None) if isinstance(region, Region) else None
        return dataclasses.replace(region, stages=region.stages - {left_out}) if left_out is not None else region

    around(stack, recovery_leader, "region_of", missing_one)


@defect
def survivors_do_not_roll_back(stack: ExitStack) -> None:
    def on_all_listen(real: Any, self: Any, now_s: float, effects: Any) -> None:
        real(self, now_s, effects)
        for index, effect in enumerate(effects):
            if isinstance(effect, RollBack):
                region = dataclasses.replace(effect.region, edges=frozenset())
                effects[index] = dataclasses.replace(effect, region=region)

    around(stack, RecoveryLeader, "_on_all_listen", on_all_listen)


@defect
def a_replica_survives_though_none_may(stack: ExitStack) -> None:
    def on_store_read(real: Any, self: Any, event: Any, *args: Any) -> None:
        real(self, dataclasses.replace(event, all_because=""), *args)

    around(stack, RecoveryLeader, "_on_store_read", on_store_read)


@defect
def the_last_snapshot_may_be_of_some_replicas(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SnapshotLeader, "may_live_on", property(lambda self: True)))


# -- the end ---------------------------------------------------------------------------------------------------------------------


@defect
def results_are_published_before_the_last_snapshot(stack: ExitStack) -> None:
    def look_at_end(real: Any, self: Any, *args: Any) -> None:
        self._has_last = True
        real(self, *args)

    around(stack, JobLeader, "_look_at_end", look_at_end)


@defect
def a_restarting_job_counts_as_ended(stack: ExitStack) -> None:
    def look_at_end(real: Any, self: Any, *args: Any) -> None:
        had_last = self._has_last
        real(self, *args)
        if not self.recovery.is_running and not self.is_over and self.recovery.failures and not had_last:
            self._has_last = True

    around(stack, JobLeader, "_look_at_end", look_at_end)
