"""Leaders of recoveries and jobs, driven by tests: their events and effects, and a shell whose answers come in any order."""

from __future__ import annotations

import random
from typing import Any

import rayad as rd
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import recovery_leader as recovery
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobLeader
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.user_errors import restarts_of
from rayad.dataflow.plan import Plan


def plan_of(parallelism: int = 1) -> Plan:
    """``numbers`` -> ``first`` -> ``second``, each a stage."""
    flow = rd.Dataflow("job")
    counted = flow.from_items([1, 2, 3], name="numbers").key_by(lambda n: n).count(name="first").as_records()
    counted.key_by(lambda pair: pair[1]).count(name="second").collect("out")
    return flow.plan(parallelism)


def failure(who: str = "'first'[0]", message: str = "ValueError: bad", **facts: Any) -> Failure:
    return Failure(**{"who": who, "message": message, "details": "", "error": None, "is_lost_peer": False, **facts})


class Led:
    """A leader, its events and its effects."""

    def __init__(self, *, keeps_snapshots: bool = True, plan: Plan | None = None, **failures: Any) -> None:
        self.now_s = 100.0
        self.plan = plan if plan is not None else plan_of()
        self.names = {stage.name: f"v{stage.id}.0" for stage in self.plan.stages}
        config = rd.RunConfig(
            storage_path="/nowhere" if keeps_snapshots else None,
            start_timeout_s=20.0,
            failures=rd.FailureConfig(**{"max_failures": 3 if keeps_snapshots else 0, **failures}),
        )
        self.leader = JobLeader(self.plan, config, restarts_of(config.failures, random.Random(0)), keeps_snapshots=keeps_snapshots)

    @property
    def everybody(self) -> tuple[str, ...]:
        return (PROGRESS, *(f"v{stage.id}.{r}" for stage in self.plan.stages for r in range(stage.parallelism)))

    def tell(self, event: lead.Event, after_s: float = 0.0) -> list[lead.Effect]:
        self.now_s += after_s
        effects = self.leader.handle(event, self.now_s)
        self.leader.check_invariants()
        return effects

    def tick(self, after_s: float = 0.0) -> list[lead.Effect]:
        return self.tell(recovery.Tick(), after_s)

    def fail(
        self, vertex: str | None, after_s: float = 0.0, is_stuck: bool = False, is_final: bool = False, **facts: Any
    ) -> list[lead.Effect]:
        """A replica, or None the coordinator, fails in its own incarnation."""
        leader = self.leader.recovery
        name = self.names[vertex] if vertex is not None else None
        incarnation = leader.incarnation if name is None else leader.incarnations.get(name, leader.incarnation)
        return self.tell(recovery.Failed(name, incarnation, failure(**facts), is_stuck=is_stuck, is_final=is_final), after_s)

    def store_read(self, **found: Any) -> list[lead.Effect]:
        return self.tell(recovery.StoreRead(self.leader.recovery.incarnation, **found))

    def all_listen(self, names: tuple[str, ...] | None = None) -> list[lead.Effect]:
        """All replicas that are waited for listen; gives the effects of the last answer."""
        out: list[lead.Effect] = []
        for name in names or sorted(self.leader.recovery.waiting):
            assert not out, f"{out} before {name} listens"
            out = self.tell(recovery.Listens(name, self.leader.recovery.incarnation, f"at {name}"))
        return out

    def started(self) -> Led:
        """The job runs."""
        self.tell(recovery.Begin())
        self.store_read()
        self.all_listen()
        assert self.leader.state is lead.JobState.RUNNING
        return self

    def recovering(self, vertex: str = "first") -> Led:
        """A replica has failed, the whole graph is being restarted, and all replicas have to listen next."""
        self.fail(vertex)
        self.tick()
        self.store_read()
        assert self.leader.recovery.phase is recovery.Phase.LISTENING
        return self


def kinds(effects: list[lead.Effect]) -> list[str]:
    """Their classes, by name."""
    return [type(effect).__name__ for effect in effects]
