"""Runtime parameters change while the job runs: windows, sizes of batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.plane.credits import ReceiveWindow, SendWindow


def words() -> rd.Dataflow:
    flow = rd.Dataflow("words")
    lines = flow.from_items([f"w{i % 7}" for i in range(400)], batch_rows=5)
    lines.key_by(lambda w: w).count(name="count").collect("counts")
    return flow


@pytest.mark.parametrize("seed", range(6))
def test_a_job_continues_with_other_windows(seed: int) -> None:
    job = words().submit(rd.RunConfig(window_batches=1), runtime="local", seed=seed, parallelism=2)
    for _ in range(20 * seed):
        job.step()
    job.configure(window_batches=8, batch_rows=3)
    assert all(window.batches == 8 for host in job.runtime.processes.hosts() for window in host.place.sender.windows.values())
    assert all(core.outputs.outbox.batch_rows == 3 for core in job.cores.values())
    job.rescale("count", 3)
    assert all(core.outputs.outbox.batch_rows == 3 for core in job.cores.values())
    assert sorted(record for _, record in job.wait()["counts"]) == sorted((f"w{i}", 58 if i == 0 else 57) for i in range(7))


def test_after_a_failure_in_the_middle_of_a_change_all_have_the_new_parameters(tmp_path: Path) -> None:
    struck = set()
    for steps in range(0, 120, 3):
        config = rd.RunConfig(window_batches=1, storage_path=str(tmp_path / str(steps)))
        job = words().submit(config, runtime="local", seed=steps, parallelism=2)
        for _ in range(20):
            job.step()
        wish = job.runtime.start_configure({"window_batches": 8, "batch_rows": 3})
        for _ in range(steps):
            job.step()
        when = "after it" if wish.is_over else "in the middle" if wish.driver is not None else "before it"
        struck.add(when)
        job.crash()
        assert wish.is_over or when == "before it", "those that begin anew would not have them"
        while not wish.is_over:
            job.step()
        assert all(window.batches == 8 for host in job.runtime.processes.hosts() for window in host.place.sender.windows.values())
        assert all(core.outputs.outbox.batch_rows == 3 for core in job.cores.values())
        assert sorted(record for _, record in job.wait()["counts"]) == sorted((f"w{i}", 58 if i == 0 else 57) for i in range(7))
    assert struck == {"before it", "in the middle", "after it"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "nothing is to be changed; what may change while it runs: window_batches"),
        ({"key_groups": 512}, "'key_groups' is fixed when the job starts"),
        ({"report_interval_s": 1.0}, "'report_interval_s' is the autoscaler's, and this job has none"),
        ({"window_batches": 0}, "RunConfig.window_batches is 0: it must be an int of at least 1"),
        ({"combine_hold_s": -1.0}, "RunConfig.combine_hold_s is -1.0"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], told: str) -> None:
    job = words().submit(runtime="local")
    with pytest.raises(rd.ConfigError, match=told.replace("(", r"\(")):
        job.configure(**changes)
    job.cancel()


@given(
    before=st.integers(1, 20),
    after=st.integers(1, 20),
    turns=st.lists(st.sampled_from(["send", "consume"]), max_size=60),
    at=st.lists(st.integers(0, 60), min_size=3, max_size=3),
)
def test_no_channel_stands_still_in_any_turn_of_a_change(before: int, after: int, turns: list[str], at: list[int]) -> None:
    """Receivers with the smaller window, then senders, then receivers: whenever all that was sent is consumed, more may be sent."""
    sender, receiver, waiting = SendWindow(before, 10**6), ReceiveWindow(before, 10**6), 0
    first, second, third = sorted(at)
    for number, turn in enumerate([*turns, *["consume"] * 60]):
        for when, change in ((first, "first"), (second, "senders"), (third, "receivers")):
            if number == when:
                if change == "senders":
                    sender.resize(after, 10**6)
                else:
                    grant = receiver.resize(min(before, after) if change == "first" else after, 10**6)
                    if grant is not None:
                        sender.on_credit(*grant)
        if turn == "send" and sender.may_send():
            sender.on_send(10)
            waiting += 1
        elif turn == "consume" and waiting:
            waiting -= 1
            grant = receiver.on_consumed(10)
            if grant is not None:
                sender.on_credit(*grant)
        if not waiting:
            assert sender.may_send()
