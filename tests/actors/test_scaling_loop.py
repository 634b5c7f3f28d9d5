"""The autoscaler's shell: rounds over a simulated job, changes that come late or not at all, jobs that pause."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.scaling.loop import scaling_graph
from rayad.autoscale import DS2, Decision, DecisionOutcome, FunctionPolicy, Hold
from tests.actors.simulated_job import Later, Notes, SimulatedJob, loop_of


def test_ds2_brings_a_job_to_its_target_and_records_the_effect() -> None:
    job, notes = SimulatedJob(rate=400.0), Notes()
    loop = loop_of(job, DS2(utilization=0.8), notes)
    job.rounds(loop, 8)
    assert job.asked == [{"count": 5}], "400 a second at 100 each, 80 % busy"
    told = loop.finish()
    assert told.layout == {"lines": 1, "count": 5}
    record = told.decisions["count"]
    assert (record.outcome, record.answer, told.changes, told.refused) == (DecisionOutcome.APPLIED, "", 1, 0)
    assert "count" in record.decision.reason
    assert record.got["count"].parallelism == 5
    outcomes = [r.outcome.value for r in notes.records if r.number == record.number]
    assert outcomes == ["asked", "applied", "applied"]
    assert len(notes.samples) == 7, "one for each two rounds that follow each other"
    assert notes.samples[-1][1] == {"lines": 1, "count": 5}


def test_measuring_continues_while_new_replicas_start() -> None:
    job, notes, later = SimulatedJob(), Notes(), Later()
    loop = loop_of(job, DS2(), notes, execute=later)
    held: list[Decision | None] = job.rounds(loop, 5)
    assert job.asked == []
    assert [type(decision).__name__ for decision in held] == ["Hold", "ScaleUp", "Hold", "Hold", "Hold"]
    assert held[-1] == Hold(reason="the change of decision 1 is under way")
    later.run()
    loop.round()
    assert loop.look().layout == {"lines": 1, "count": 4}
    assert len(notes.samples) == 5


def test_a_refusal_is_written_down_and_not_repeated_at_once() -> None:
    job = SimulatedJob()
    job.refuses = "no room for 3 more replicas"
    loop = loop_of(job, DS2())
    held = job.rounds(loop, 10)
    assert len(job.asked) == 1
    told = loop.look()
    assert (told.changes, told.refused) == (0, 1)
    assert told.decisions["count"].outcome is DecisionOutcome.REFUSED
    assert told.decisions["count"].answer == "ConfigError: no room for 3 more replicas"
    assert held[-1] is not None
    assert held[-1].reason.startswith("a change was refused 16")
    job.refuses = ""
    job.rounds(loop, 10)
    assert job.dataflow.layout["count"] > 1, "30 s later it asked again"


def test_a_layout_that_a_user_asked_for_is_noticed() -> None:
    job = SimulatedJob(rate=50.0)
    loop = loop_of(job, FunctionPolicy(lambda samples, state, now_s: None))
    job.rounds(loop, 2)
    job.rescale({"count": 3}, 1.0, job.layout())
    job.rounds(loop, 2)
    assert loop.look().layout == {"lines": 1, "count": 3}
    assert loop.core is not None
    assert loop.core.state().changed_s > 4.0


def test_a_job_that_does_not_run_for_a_while_is_left_alone() -> None:
    job = SimulatedJob()
    loop = loop_of(job, DS2())
    job.is_running = False
    assert job.rounds(loop, 3) == [None, None, None]
    assert loop.look().layout == {}
    job.is_running = True
    job.rounds(loop, 4)
    assert job.dataflow.layout["count"] > 1


def test_counters_that_go_back_restart_the_measurement() -> None:
    job = SimulatedJob(rate=50.0)
    loop = loop_of(job, FunctionPolicy(lambda samples, state, now_s: None))
    job.rounds(loop, 3)
    for replica in job.dataflow.replicas["count"]:
        replica.counters.received_items = {0: 0}
    assert loop.round() is None
    job.rounds(loop, 3)
    sample = loop.look().sample
    assert sample is not None
    assert sample.vertices["count"].observed_rate == pytest.approx(50.0, rel=0.1)


def test_a_change_that_is_pending_when_the_job_ends_is_refused() -> None:
    job, later = SimulatedJob(), Later()
    loop = loop_of(job, DS2(), execute=later)
    job.rounds(loop, 3)
    record = loop.finish().decisions["count"]
    assert (record.outcome, record.answer) == (DecisionOutcome.REFUSED, "the job ended")


def test_a_listener_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def on_sample(self, *_: Any) -> None:
            raise OSError("the disk is full")

        on_record = on_sample

    job = SimulatedJob()
    job.rounds(loop_of(job, DS2(), Full()), 4)
    assert job.dataflow.layout["count"] == 4
    assert "a listener of the autoscaler failed" in caplog.text


def words(**scaling: Any) -> dict[str, tuple[int, int, str | None]]:
    flow = rd.Dataflow("words")
    lines = flow.from_items(["a b"], name="lines").rebalance().flat_map(str.split)
    lines.key_by(lambda w: w).count(name="count").collect("counts")
    config = rd.ScalingConfig(**scaling)
    graph = scaling_graph(flow.plan(scaling=config, key_groups=16), config, 4)
    return {v.name: (v.least, v.most, v.fixed) for v in graph.vertices}


def test_the_ranges_of_vertices_that_may_be_scaled() -> None:
    policy = words(policy="ds2", parallelism={"count": (2, 40)}, default=6)
    assert policy["count"] == (2, 16, None), "no more replicas than key-groups"
    assert policy["rebalance"] == (1, 6, None), "as many as there are CPUs, or as it began with"
    assert policy["lines"][2] is not None
    ranges = words(parallelism={"count": (1, 8)})
    assert ranges["count"] == (1, 8, None)
    assert ranges["rebalance"][2] == "no range was given for it"
    equal = words(policy="ds2", parallelism={"count": (2, 2)})
    assert equal["count"] == (2, 2, "its bounds are 2 to 2")
    begins = words(mpr_folder="/nowhere", parallelism={"count": 2})
    assert begins["count"] == (1, 16, None), "whoever writes parameters.json knows the machine"


def test_invalid_configurations() -> None:
    with pytest.raises(rd.ConfigError, match=r"ScalingConfig.policy is 3: it must be 'ds2', 'observe', a policy, or a function"):
        rd.ScalingConfig(policy=3)  # type: ignore[arg-type]
    with pytest.raises(rd.ConfigError, match=r"both ScalingConfig\.policy and mpr_folder are given"):
        rd.ScalingConfig(policy="ds2", mpr_folder="/x")
    with pytest.raises(rd.ConfigError, match=r"ScalingConfig.report_interval_s is 0: it must be a number above 0"):
        rd.ScalingConfig(report_interval_s=0)
