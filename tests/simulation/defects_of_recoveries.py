"""Realistic mistakes of who leads recoveries and the end of a job, planted one at a time; see ``defects.py``."""

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
from tests.simulation.defects import Plant, replaced

DEFECTS_OF_RECOVERIES: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_RECOVERIES[plant.__name__.replace("_", " ")] = plant
    return plant


# -- answers -------------------------------------------------------------------------------------------------------------------


@defect
def a_listening_answer_of_an_older_incarnation_is_believed(stack: ExitStack) -> None:
    replaced(stack, RecoveryLeader, "_is_awaited", lambda real: lambda self, name, incarnation: name in self.waiting)


@defect
def replicas_run_before_all_listen(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        return lambda self, names, *args: real(self, list(names)[:-1] if len(names) > 1 else names, *args)

    replaced(stack, RecoveryLeader, "_await", make)


@defect
def a_failure_during_a_recovery_is_lost(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        return lambda self, event, *args: real(self, event, *args) if self.phase is Phase.RUNNING or event.is_final else None

    replaced(stack, RecoveryLeader, "_on_failed", make)


# -- what is upstream of a failure -----------------------------------------------------------------------------------------------


@defect
def a_region_misses_one_stage(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        def region_of(plan: Any, failed: Any) -> Any:
            region = real(plan, failed)
            left_out = min(region.stages - set(failed), default=None) if isinstance(region, Region) else None
            return dataclasses.replace(region, stages=region.stages - {left_out}) if left_out is not None else region

        return region_of

    replaced(stack, recovery_leader, "region_of", make)


@defect
def those_that_live_on_do_not_roll_back(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        def on_all_listen(self: Any, now_s: float, effects: Any) -> None:
            real(self, now_s, effects)
            for index, effect in enumerate(effects):
                if isinstance(effect, RollBack):
                    region = dataclasses.replace(effect.region, edges=frozenset())
                    effects[index] = dataclasses.replace(effect, region=region)

        return on_all_listen

    replaced(stack, RecoveryLeader, "_on_all_listen", make)


@defect
def somebody_lives_on_though_nobody_may(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        return lambda self, event, *args: real(self, dataclasses.replace(event, all_because=""), *args)

    replaced(stack, RecoveryLeader, "_on_store_read", make)


@defect
def the_last_snapshot_may_be_of_some_replicas(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SnapshotLeader, "may_live_on", property(lambda self: True)))


# -- the end ---------------------------------------------------------------------------------------------------------------------


@defect
def results_are_published_before_the_last_snapshot(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        def look_at_end(self: Any, *args: Any) -> None:
            self._has_last = True
            real(self, *args)

        return look_at_end

    replaced(stack, JobLeader, "_look_at_end", make)


@defect
def a_job_that_begins_anew_is_taken_for_one_that_has_ended(stack: ExitStack) -> None:
    def make(real: Any) -> Any:
        def look_at_end(self: Any, *args: Any) -> None:
            had_last = self._has_last
            real(self, *args)
            if not self.recovery.is_running and not self.is_over and self.recovery.failures and not had_last:
                self._has_last = True

        return look_at_end

    replaced(stack, JobLeader, "_look_at_end", make)
