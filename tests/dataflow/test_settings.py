"""Every setting has an effect in the local runtime, or warns that it has none. And: the effects of the local runtime's clock.

Issue 11: '"deterministic" where the local runtime reads the clock, parameters that the local runtime ignores in silence', and
'run(timeout_s=) says "it goes on" and cancels'.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.dataflow.config import CHANGEABLE
from rayad.dataflow.without_effect import AUTOSCALER, OF_MACHINES, USED_LOCALLY, not_acted_on, not_asked_locally, not_set_aside

NOTHING = "does nothing in the local runtime: it is one process, without actors, connections and heartbeats"
NO_AUTOSCALER = "is for the autoscaler, and this job has none: give a policy, or a range (least, most)"
OTHERS: dict[str, Any] = {  # for each field that the local runtime ignores, a value that is not the default
    **dict.fromkeys(("combine_hold_s", "start_timeout_s", "cpus_per_replica", "heartbeat_timeout_s", "room_wait_s"), 1.0),
    **dict.fromkeys(("report_interval_s", "window_s", "warm_up_s", "timeout_s"), 1.0),
    "rescale_pause_s": None,
    "host": "h",
    "unix_sockets": False,
    "encrypt": True,
    "journal": "j",
    "resources": {"items": rd.Resources(num_cpus=1)},
    "autoscaling_cluster": True,
    "termination_s": 1.0,
    "activation_timeout_s": 1.0,
    "input_log_bytes": 1,
    "keep_results_s": 1.0,
    "keep_warm_s": 1.0,
    "placement": "workers",
}


def small() -> rd.Dataflow:
    flow = rd.Dataflow("small")
    flow.from_items([1, 2, 3]).collect("out")
    return flow


@pytest.mark.parametrize("config", [rd.RunConfig, rd.SnapshotConfig, rd.FailureConfig, rd.ScalingConfig])
def test_each_setting_is_known_to_work_locally_or_not_to(config: type) -> None:
    """A new field must be in USED_LOCALLY, or be ignored with a warning."""
    passed_over = OF_MACHINES.get(config, frozenset()) | (AUTOSCALER if config is rd.ScalingConfig else frozenset())
    assert USED_LOCALLY[config] | passed_over == {field.name for field in fields(config)}
    assert not USED_LOCALLY[config] & passed_over


def told_fields(config: type) -> dict[str, str]:
    """What the docstring of a configuration says about each field."""
    assert config.__doc__ is not None
    entries = re.findall(r"^ {8}((?:\w+, )*\w+): (.*(?:\n {12}.*)*)", config.__doc__, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@pytest.mark.parametrize("config", [rd.RunConfig, rd.SnapshotConfig, rd.FailureConfig, rd.ScalingConfig])
def test_the_docstring_of_each_setting_says_whether_it_is_for_ray_alone(config: type) -> None:
    told = told_fields(config)
    assert told.keys() == {field.name for field in fields(config)}
    assert {name for name, text in told.items() if text.startswith("on Ray: ")} == told.keys() - USED_LOCALLY[config]


@pytest.mark.parametrize("name", sorted(set().union(*OF_MACHINES.values())))
def test_a_setting_of_machines_warns_locally_and_not_on_ray(name: str) -> None:
    config: type = next(config for config, names in OF_MACHINES.items() if name in names)
    value = config(**{name: OTHERS[name]})
    of_job = value if isinstance(value, rd.RunConfig) else rd.RunConfig()
    run = rd.RunConfig(failures=value) if isinstance(value, rd.FailureConfig) else of_job
    scaling = value if isinstance(value, rd.ScalingConfig) else rd.ScalingConfig()
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - the messages are below
        small().run(run, scaling, runtime="local")
    assert [str(w.message) for w in caught] == [f"{config.__name__}({name}={OTHERS[name]!r}) {NOTHING}"]
    assert not_acted_on(run, scaling, "ray") == []


def test_what_operators_ask_of_machines_warns_locally_and_not_on_ray() -> None:
    flow = rd.Dataflow("asking")
    items = flow.from_items([1, 2, 3]).map(lambda n: n, name="embed", num_cpus=0.5, resources={"disk": 2})
    items.rebalance().map(lambda n: n).collect("out")
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - the message is below
        assert sorted(value for _, value in flow.run(runtime="local")["out"]) == [1, 2, 3]
    told = "what was asked for with 'embed' (num_cpus=0.5, resources={'disk': 2})"
    assert [(str(w.message), w.filename) for w in caught] == [(f"{told} {NOTHING}", __file__)]
    assert not_asked_locally(flow.graph, "ray") == []


def test_crashes_that_cannot_be_reached_warn() -> None:
    flow = rd.Dataflow("asking")
    out = flow.from_items([1]).map(lambda n: n, name="parse", on_error="skip", after_crashes=3)
    out.collect("out")
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - the message is below
        flow.run(runtime="local")
    assert [str(w.message) for w in caught] == [f"after_crashes=3 of 'parse' {NOTHING}"]
    told = "after_crashes=3 of 'parse' does nothing: the job survives"
    unkept = rd.RunConfig(failures=rd.FailureConfig(max_failures=5))
    assert not_set_aside(flow.graph, unkept, "ray") == [
        f"{told} 0 failures; give FailureConfig(max_failures=3) or more and RunConfig(storage_path=...)"
    ]
    kept = rd.RunConfig(storage_path="/somewhere", failures=rd.FailureConfig(max_failures=2))
    assert not_set_aside(flow.graph, kept, "ray") == [f"{told} 2 failures; give FailureConfig(max_failures=3) or more"]
    enough = rd.RunConfig(storage_path="/somewhere", failures=rd.FailureConfig(max_failures=3))
    assert not_set_aside(flow.graph, enough, "ray") == []


@pytest.mark.parametrize("name", sorted(AUTOSCALER - {"policy", "mpr_folder"}))
@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_a_setting_of_the_autoscaler_warns_where_there_is_none(name: str, runtime: str) -> None:
    scaling = rd.ScalingConfig(**{name: OTHERS[name]})
    assert not_acted_on(rd.RunConfig(), scaling, runtime) == [f"ScalingConfig({name}={OTHERS[name]!r}) {NO_AUTOSCALER}"]
    adaptive = rd.ScalingConfig(policy="ds2", **{name: OTHERS[name]})
    assert not_acted_on(rd.RunConfig(), adaptive, "ray") == []


def test_a_job_with_a_store_survives_deaths_and_one_with_max_failures_errors_too() -> None:
    store, none = rd.RunConfig(storage_path="s"), rd.RunConfig()
    assert (store.failures_survived, store.failures.survives_errors) == (10, False)
    assert (none.failures_survived, rd.RunConfig(failures=rd.FailureConfig(max_failures=3)).failures_survived) == (0, 0)
    given = rd.RunConfig(storage_path="s", failures=rd.FailureConfig(max_failures=3))
    assert (given.failures_survived, given.failures.survives_errors) == (3, True)
    assert not rd.FailureConfig(max_failures=3, survive_errors=False).survives_errors
    assert rd.FailureConfig(survive_errors=True).survives_errors


def test_settings_that_need_another_one_say_which(tmp_path: Path) -> None:
    snapshots = rd.SnapshotConfig(keep=5, secret=b"0123456789abcdef")
    needs = "does nothing: no snapshots are kept; give RunConfig(storage_path=...)"
    assert not_acted_on(rd.RunConfig(snapshots=snapshots), rd.ScalingConfig(), "ray") == [f"SnapshotConfig(keep=5, secret=...) {needs}"]
    assert not_acted_on(rd.RunConfig(snapshots=snapshots, storage_path=str(tmp_path)), rd.ScalingConfig(), "ray") == []
    survives = rd.RunConfig(failures=rd.FailureConfig(max_failures=3))
    for runtime in ("ray", "local"):
        assert not_acted_on(survives, rd.ScalingConfig(), runtime) == [
            "FailureConfig(max_failures=3) does nothing: a job without snapshots survives no failure; give RunConfig(storage_path=...)"
        ]
        slow = rd.RunConfig(failures=rd.FailureConfig(max_failures=0, delay_s=2.0), storage_path=str(tmp_path))
        assert not_acted_on(slow, rd.ScalingConfig(), runtime) == [
            "FailureConfig(delay_s=2.0) does nothing: no failure is survived; give FailureConfig(max_failures=...)"
        ]
        assert not_acted_on(rd.RunConfig(storage_path=str(tmp_path)), rd.ScalingConfig(), runtime) == []
    assert not_acted_on(rd.RunConfig(), rd.ScalingConfig(default=2), "local") == [
        "ScalingConfig(default=2) is for vertices that a dict does not name: parallelism=1 is for all"
    ]
    assert not_acted_on(rd.RunConfig(), rd.ScalingConfig(), "ray", 7) == [
        "seed=7 does nothing with runtime='ray': only the local runtime draws its order from a seed"
    ]


def test_settings_that_work_do_not_warn(tmp_path: Path) -> None:
    run = rd.RunConfig(name="n", storage_path=str(tmp_path), key_groups=16, window_batches=2, window_bytes=100, batch_rows=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small().run(run, rd.ScalingConfig(parallelism={}, default=2), runtime="local", seed=3, timeout_s=60)


@pytest.mark.parametrize("name", CHANGEABLE)
def test_configure_warns_of_what_the_local_runtime_does_not_act_on(name: str) -> None:
    job = small().submit(runtime="local")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job.configure(**{name: 2})
    told = [f"configure({name}=2) {NOTHING}"] if name in OF_MACHINES[rd.RunConfig] else []
    assert [(str(w.message), Path(w.filename).name) for w in caught] == [(line, Path(__file__).name) for line in told]
    job.cancel()


def test_send_takes_a_timeout_in_the_local_runtime_too() -> None:
    flow = rd.Dataflow("slow")
    flow.input("in").collect("out")
    seconds = iter(range(1_000_000))
    job = flow.submit(rd.RunConfig(window_batches=1), runtime="local", clock=lambda: float(next(seconds)))
    live = job.input("in")
    live.send(["first"])
    with pytest.raises(TimeoutError) as caught:
        live.send(["second"], timeout_s=0)
    assert str(caught.value) == (
        "input 'in' of job 'slow' has taken nothing for 0 s: nothing was sent, send it again; job.explain_stuck() tells who takes long"
    )
    assert live.sent == 1
    live.send(["second"], timeout_s=60)
    live.close()
    assert [record for _, record in job.wait()["out"]] == ["first", "second"]


def test_an_unknown_option_is_refused() -> None:
    for options, meant in (({"retries": 3}, ""), ({"parallelisms": 2}, ": did you mean 'parallelism'?")):
        with pytest.raises(rd.ConfigError) as caught:
            small().run(runtime="local", **options)  # type: ignore[arg-type]
        assert str(caught.value) == f"unknown options {list(options)} for runtime='local'{meant}"
    with pytest.raises(rd.ConfigError, match=r"^clock is 5: it must be a function without arguments that gives seconds$"):
        small().run(runtime="local", clock=5)


# -- seconds ---------------------------------------------------------------------------------------------------------------


def test_with_a_clock_of_its_own_a_local_run_repeats_exactly(tmp_path: Path) -> None:
    def steps(folder: str) -> tuple[int, int, list[Any]]:
        flow = rd.Dataflow("repeats")
        flow.from_epochs([list(range(50))] * 20, batch_rows=5).key_by(lambda n: n % 3).count().collect("out")
        ticks = iter(range(1_000_000))
        run = rd.RunConfig(storage_path=str(tmp_path / folder), snapshots=rd.SnapshotConfig(interval_s=3))
        job = flow.submit(run, runtime="local", seed=5, clock=lambda: float(next(ticks)))
        result = job.wait()
        taken = job.progress().snapshot
        assert taken is not None
        assert taken.number > 2
        return job.steps, taken.number, result["out"]

    assert steps("a") == steps("b")


def test_run_with_a_timeout_cancels_and_says_so_but_wait_leaves_the_job() -> None:
    def endless() -> rd.Dataflow:
        flow = rd.Dataflow("endless")
        flow.from_items([1]).iterate(lambda inner: (inner, inner.filter(lambda _: False))).collect("out")
        return flow

    seconds = iter(range(1_000_000))
    with pytest.raises(TimeoutError) as caught:
        endless().run(runtime="local", timeout_s=30, clock=lambda: float(next(seconds)))
    assert str(caught.value) == (
        "job 'endless' was not complete after 30 s and has been cancelled: give run() a longer timeout_s, or use submit() and "
        "job.wait(timeout_s), which leaves it running"
    )
    job = endless().submit(runtime="local", clock=lambda: float(next(seconds)))
    for _ in range(2):
        with pytest.raises(TimeoutError) as caught:
            job.wait(timeout_s=30)
        assert str(caught.value) == "job 'endless' is not complete after 30 s; it goes on, wait() again or cancel()"
        assert job.state.value == "running"
    job.cancel()


@pytest.mark.parametrize("timeout_s", [-1, "5", True, float("nan")])
def test_a_timeout_is_a_number(timeout_s: Any) -> None:
    with pytest.raises(rd.ConfigError, match=r"^run\(timeout_s=...\) is .*: it must be a number of at least 0$"):
        small().run(runtime="local", timeout_s=timeout_s)
    with pytest.raises(rd.ConfigError, match=r"^wait\(timeout_s\) is .*: it must be a number of at least 0$"):
        small().submit(runtime="local").wait(timeout_s)


def test_a_warning_points_at_the_users_line() -> None:
    for start in (small().submit, small().run):
        with pytest.warns(UserWarning, match="does nothing") as caught:
            start(rd.RunConfig(host="h"), runtime="local")
        assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
