"""A vertex that declares a bound gets what it sends to itself at once; without one nothing changes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.progress import DataflowError, Timestamp
from tests.thorough import examples

BOUNDS = (0, 1, 5)


class Spreads(rd.Vertex):
    """The smallest label of each node, spread along the edges: port 0 goes round, port 1 emits every improvement."""

    deepest = 0

    def setup(self) -> None:
        self.least: dict[int, int] = {}
        self.running = 0

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.running += 1
        type(self).deepest = max(type(self).deepest, self.running - 1)
        better = {}
        for node, label in batch:
            if label < self.least.get(node, node + 1):
                self.least[node] = better[node] = label
        self.send_by(1, list(better.items()), time)
        self.send_by(0, [(other, label) for node, label in better.items() for other in NEIGHBOURS[node % len(NEIGHBOURS)](node)], time)
        self.running -= 1


NEIGHBOURS = (lambda node: (node + 1, max(node - 3, 0)), lambda node: (max(node - 1, 0),), lambda node: (node // 2,))


class Reduces(rd.Vertex):
    """Sums what comes at a time, and sends one less of each value round when the time is complete."""

    def setup(self) -> None:
        self.kept: dict[Timestamp, Counter[int]] = {}

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.kept:
            self.kept[time] = Counter()
            self.notify_at(time)
        self.kept[time].update(batch)
        self.send_by(0, [value // 3 for value in batch if value > 5], time)

    def on_notify(self, time: Timestamp) -> None:
        kept = self.kept.pop(time)
        self.send_by(1, [(time.counters[-1], sum(value * count for value, count in kept.items()))], time)
        self.send_by(0, [value - 1 for value, count in kept.items() if value > 0], time)


def with_bound(vertex: type[rd.Vertex], bound: int) -> type[rd.Vertex]:
    return type(vertex.__name__, (vertex,), {"reentrancy": bound, "__module__": __name__})


def looped(vertex: type[rd.Vertex], epochs: list[list[Any]], keyed: bool) -> rd.Dataflow:
    flow = rd.Dataflow("looped")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again, out = (inner.key_by(lambda r: r[0]) if keyed else inner).vertex(vertex, outputs=2, name="round")
        return again, out

    flow.from_epochs(epochs).iterate(body).collect("out")
    return flow


def labels(result: rd.Result) -> dict[int, int]:
    least: dict[int, int] = {}
    for _, (node, label) in result["out"]:
        least[node] = min(label, least.get(node, label))
    return least


@examples(each_run=25, soak=100)
@given(st.lists(st.lists(st.integers(0, 40), max_size=6), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 99))
def test_results_are_equal_with_every_bound(epochs: list[list[int]], replicas: int, seed: int) -> None:
    nodes = [[(node, node) for node in epoch] for epoch in epochs]
    found = []
    for bound in BOUNDS:
        spreads = with_bound(Spreads, bound)
        found.append(labels(looped(spreads, nodes, keyed=True).run(runtime="local", seed=seed, parallelism=replicas)))
        assert spreads.deepest <= bound  # type: ignore[attr-defined]
    assert found[0] == found[1] == found[2]


@examples(each_run=25, soak=100)
@given(st.lists(st.lists(st.integers(0, 12), max_size=5), min_size=1, max_size=4), st.integers(0, 99))
def test_notifications_come_when_nothing_nested_can_follow(epochs: list[list[int]], seed: int) -> None:
    """A time is complete only when no nested call can bring it any more, so each sum is that of all values of its round."""
    flows = [looped(with_bound(Reduces, bound), epochs, keyed=False) for bound in BOUNDS]
    found = [sorted(flow.run(runtime="local", seed=seed)["out"], key=repr) for flow in flows]
    assert found[0] == found[1] == found[2]


def count_down(bound: int, start: int) -> tuple[LocalJob, int]:
    """The finished job of one record that goes round, and how many batches were queued on the way."""

    class Down(rd.Vertex):
        reentrancy = bound

        def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
            self.send_by(0, [n - 1 for n in batch if n > 0], time)
            self.send_by(1, [n for n in batch if n == 0], time)

    job = looped(Down, [[start]], keyed=False).submit(runtime="local", seed=1)
    assert isinstance(job, LocalJob)
    queued = 0

    def counted(push: Any, *entry: Any) -> None:
        nonlocal queued
        queued += 1
        push(*entry)

    for host in job.runtime.processes.hosts():
        feedback = host.arrived.feedback
        feedback.push = partial(counted, feedback.push)  # type: ignore[method-assign]
    assert [record for _, record in job.wait()["out"]] == [0]
    return job, queued


def test_nested_batches_do_not_pass_the_queue_of_the_loop() -> None:
    """60 rounds: each queued one is followed by as many nested ones as the bound says."""
    assert {bound: count_down(bound, 60)[1] for bound in (0, 1, 2, 5, 64)} == {0: 60, 1: 30, 2: 20, 5: 10, 64: 0}
    core = next(core for core in count_down(5, 60)[0].cores.values() if core.name == "round")
    assert (core.callbacks.reentered, core.batches_in, core.callbacks.nested) == (50, 61, 0)


def test_the_progress_core_does_not_see_nested_rounds() -> None:
    changes = {bound: sum(count_down(bound, 60)[0].tracker.scope_updates().values()) for bound in (0, 5)}
    assert changes[5] < changes[0] / 3


@pytest.mark.parametrize("caught", [False, True])
def test_an_error_in_a_nested_call_says_its_own_vertex_and_time(caught: bool) -> None:
    """Also where the vertex catches what its send_by raises: the nested call was not finished."""

    class Fails(rd.Vertex):
        reentrancy = 3

        def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
            if time.counters == (2,):
                raise ValueError("not twice")
            try:
                self.send_by(0, batch, time)
            except Exception:
                if not caught:
                    raise

    message = r"\(input 0, 1 records from 7\) at \(0, <2>\): ValueError: not twice$"
    with pytest.raises(DataflowError, match=r"^'round'\[0\] \(test_reentrancy.py:\d+\) failed in on_recv " + message) as failed:
        looped(Fails, [[7]], keyed=False).run(runtime="local", seed=1)
    assert isinstance(failed.value.__cause__, ValueError)


@pytest.mark.parametrize("value", [-1, 65, True, 1.0, "2", None])
def test_an_invalid_bound_is_refused_where_the_vertex_is_given(value: Any) -> None:
    with pytest.raises(DataflowError) as refused:
        looped(with_bound(Spreads, value), [[]], keyed=True)
    assert str(refused.value) == (
        f"vertex() was given the class Spreads, which has reentrancy = {value!r}: it is how many calls of on_recv may be nested, an int "
        "from 0 (none) to 64"
    )


def test_a_bound_that_an_instance_sets_is_checked_when_it_starts() -> None:
    class Late(rd.Vertex):
        def __init__(self) -> None:
            self.reentrancy = -3

    with pytest.raises(DataflowError, match=r"^'round' \(test_reentrancy.py:\d+\) has reentrancy = -3: it is how many calls"):
        looped(Late, [[1]], keyed=False).run(runtime="local")


class Saved(Spreads):
    """Fails if its state is asked for during one of its calls."""

    def checkpoint(self) -> Any:
        assert self.running == 0, "a barrier came within a nested call"
        return super().checkpoint()


@examples(each_run=25, soak=100)
@given(seed=st.integers(0, 999), bound=st.sampled_from(BOUNDS), kind=st.sampled_from(["aligned", "unaligned"]))
def test_snapshots_and_crashes_between_activations_keep_the_result(
    tmp_path_factory: pytest.TempPathFactory, seed: int, bound: int, kind: str
) -> None:
    nodes = [[(node, node) for node in epoch] for epoch in ([5, 9, 33], [2], [40, 1], [0, 17])]
    expected = labels(looped(Spreads, nodes, keyed=True).run(runtime="local", seed=seed, parallelism=2))
    folder: Path = tmp_path_factory.mktemp("saved")
    config = rd.RunConfig(
        name="saved",
        storage_path=str(folder),
        snapshots=rd.SnapshotConfig(alignment_timeout_s=0.0 if kind == "unaligned" else None),
        failures=rd.FailureConfig(max_failures=5),
    )
    job = looped(with_bound(Saved, bound), nodes, keyed=True).submit(config, rd.ScalingConfig(parallelism=2), runtime="local", seed=seed)
    assert isinstance(job, LocalJob)
    for step in range(1, 1000):
        if not job.step():
            break
        if step in (12, 40):
            job.savepoint()
        if step in (25, 50):
            job.crash()
    assert labels(job.wait()) == expected


@examples(each_run=25, soak=100)
@given(seed=st.integers(0, 999), bound=st.sampled_from((1, 5)))
def test_key_groups_that_move_meanwhile_take_nothing_before_their_state(seed: int, bound: int) -> None:
    nodes = [[(node, node) for node in range(start, start + 4)] for start in (20, 3, 31, 0)]
    expected = labels(looped(Movable, nodes, keyed=True).run(runtime="local", seed=seed))
    flow, scaling = looped(with_bound(Movable, bound), nodes, keyed=True), rd.ScalingConfig(parallelism=2)
    job = flow.submit(rd.RunConfig(name="moved"), scaling, runtime="local", seed=seed)
    for replicas in (3, 1, 2):
        for _ in range(8):
            job.step()  # type: ignore[attr-defined]
        job.rescale("round", replicas)
    assert labels(job.wait()) == expected


class Movable(Spreads):
    """A vertex whose state can be moved."""

    def give(self, groups: frozenset[int]) -> Any:
        return {node: self.least.pop(node) for node in list(self.least) if rd.key_group(node, self.key_groups) in groups}

    def take(self, state: Any) -> None:
        assert not set(state) & set(self.least), "a key was handled before its state had come"
        self.least.update(state)
