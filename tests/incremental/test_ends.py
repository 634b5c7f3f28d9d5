"""What collections are given to: callbacks, files that hold a table, and sinks of one's own; what is refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.incremental.outputs.subscribing import Subscriber
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import Form, InFields
from tests.incremental.programs import PROGRAMS, Kept, Shape, history, tables
from tests.snapshots import attempts
from tests.thorough import amount


def counted(edges: rd.Collection) -> rd.Collection:
    """A table with a key: how many edges a node has."""
    return edges.key_by(lambda edge: edge[0]).count().map(lambda pair: {"node": pair[0], "n": pair[1]})


def degrees_of(there: Counter[Any]) -> dict[int, int]:
    """The same, computed from scratch."""
    out: Counter[int] = Counter()
    for (source, _), weight in there.items():
        out[source] += weight
    return dict(out)


def test_a_callback_is_told_each_epoch_once_and_in_order() -> None:
    for seed in range(6):
        changes = history(Shape(5, 9, 8), seed)
        told: list[tuple[int, Any]] = []
        flow = rd.Dataflow("subscribed")
        counted(rd.Collection(flow.from_epochs(changes, batch_rows=2))).subscribe(lambda epoch, some, told=told: told.append((epoch, some)))  # type: ignore[misc]
        flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)
        epochs = [epoch for epoch, _ in told]
        assert epochs == sorted(set(epochs))
        table: Counter[Any] = Counter()
        by_epoch = dict(told)
        for epoch, there in enumerate(tables(changes)):
            some = by_epoch.get(epoch, [])
            assert len(some) == len({record for record, _ in some})
            for record, weight in some:
                table[record] += weight
            assert {row["node"]: row["n"] for row in +table} == degrees_of(there)


@pytest.mark.parametrize("seed", range(amount(each_run=8, soak=200)))
def test_after_a_failure_a_callback_is_told_the_epochs_since_the_last_snapshot_again(seed: int, tmp_path: Path) -> None:
    """All of them, in order, as they were told before, and none before the snapshot: neither loss nor another repetition."""
    changes = history(Shape(5, 9, 10), seed)
    chance = random.Random(seed)
    told: list[tuple[int, list[Any]]] = []
    flow = rd.Dataflow("subscribed")
    edges = flow.collection("edges")
    edges.subscribe(lambda epoch, some: told.append((epoch, sorted(some))))
    edges.changes().probe("seen")
    snapshots = rd.SnapshotConfig(interval_s=None)
    failures = rd.FailureConfig(max_failures=50, delay_s=0.0, survive_errors=False)
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=snapshots, failures=failures)
    job = flow.submit(config, runtime="local", seed=seed, parallelism=1 + seed % 3)
    sent = job.collection("edges")
    expected: list[int] = []
    """The epochs that are told, one after another."""
    since: list[int] = []
    """Those since the last snapshot, which come again."""
    for epoch, some in enumerate(changes):
        sent.insert([record for record, weight in some if weight > 0])
        sent.remove([record for record, weight in some if weight < 0])
        sent.advance_to(epoch + 1)
        assert job.probe("seen").wait(epoch)
        if net(some):
            expected.append(epoch)
            since.append(epoch)
        settled(job, told, expected)
        what = chance.random()
        if what < 0.3:
            job.savepoint()
            since = []
        elif what < 0.6:
            job.crash()
            expected += since
            settled(job, told, expected)
    sent.close()
    job.wait()
    assert [epoch for epoch, _ in told] == expected
    assert all(some == sorted(net(changes[epoch]).items()) for epoch, some in told)


def net(some: list[tuple[Any, int]]) -> dict[Any, int]:
    """What an epoch changes, each record once."""
    out: Counter[Any] = Counter()
    for record, weight in some:
        out[record] += weight
    return {record: weight for record, weight in out.items() if weight}


def settled(job: rd.Job, told: list[tuple[int, Any]], expected: list[int]) -> None:
    """The job goes on until so many epochs are told; none is told that should not be."""
    for _ in range(3000):
        if len(told) >= len(expected):
            break
        job.step()  # type: ignore[attr-defined]
    assert [epoch for epoch, _ in told] == expected


def told_with_failures(seed: int, folder: Path) -> None:
    """Snapshots and failures between any two steps, also while an epoch waits to be told. Raises AssertionError where an epoch is lost,
    told out of order, or told again though it was told before the snapshot that the job resumed from was begun."""
    changes, chance = history(Shape(5, 9, 12), seed), random.Random(seed)
    told: list[tuple[int, list[Any]]] = []
    flow = rd.Dataflow("subscribed")
    rd.Collection(flow.from_epochs(changes, batch_rows=2)).subscribe(lambda epoch, some: told.append((epoch, sorted(some))))
    failures = rd.FailureConfig(max_failures=100, delay_s=0.0, survive_errors=False)
    config = rd.RunConfig(storage_path=str(folder), failures=failures, snapshots=rd.SnapshotConfig(interval_s=None))
    job: Any = flow.submit(config, runtime="local", seed=seed, parallelism=1 + seed % 3)
    epochs = [epoch for epoch, some in enumerate(changes) if net(some)]
    begins, floor, begun, taken = [(0, 0)], 0, 0, 0
    """Of each start: how many were told before it, and the first that may be told again."""
    while job.step():
        if len(job.snapshots.taken) > taken:
            taken, floor = len(job.snapshots.taken), begun
        what = chance.random()
        if what < 0.02:
            job.crash()
            begins.append((len(told), floor))
        elif what < 0.15 and attempts.may_begin(job):
            attempts.begin(job, unaligned=chance.random() < 0.5)
            begun = epochs.index(told[-1][0]) + 1 if len(told) > begins[-1][0] else begins[-1][1]
    job.wait()
    newest = 0
    for (begin, least), (end, _) in zip(begins, [*begins[1:], (len(told), 0)], strict=True):
        places = [epochs.index(epoch) for epoch, _ in told[begin:end]]
        assert places == list(range(places[0], places[0] + len(places))) if places else True, f"out of order: {told[begin:end]}"
        assert not places or places[0] <= newest, f"lost: epoch {epochs[newest]}"
        assert not places or places[0] >= least, f"told again: epoch {epochs[places[0]]}"
        newest = max([newest, *(place + 1 for place in places)])
    assert newest == len(epochs), f"lost: epochs {epochs[newest:]}"
    assert all(some == sorted(net(changes[epoch]).items()) for epoch, some in told)


@pytest.mark.parametrize("seed", range(amount(each_run=8, soak=200)))
def test_a_callback_loses_nothing_and_repeats_no_more_than_it_must_whatever_happens(seed: int, tmp_path: Path) -> None:
    told_with_failures(seed, tmp_path)


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("restore", lambda self, state: setattr(self, "waiting", {})),
        ("on_notify", lambda self, time: [self._callback(time.epoch, self.waiting[time]) for _ in range(2)] and self.waiting.pop(time)),
        ("checkpoint", lambda self: {}),
    ],
)
def test_a_subscriber_that_loses_or_repeats_is_found(what: str, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscriber, what, wrong)
    for seed in range(100):
        try:
            told_with_failures(seed, tmp_path / f"{seed}")
        except Exception:
            return
    pytest.fail("100 seeds find nothing")


@pytest.mark.parametrize("seed", range(amount(each_run=6, soak=100)))
def test_updates_are_one_change_a_key_whatever_happens_meanwhile(seed: int, tmp_path: Path) -> None:
    """Applied one after another, epoch by epoch, they make the table."""
    found: dict[int, dict[int, dict[str, int] | None]] = {}

    def kept(there: Counter[Any]) -> dict[Any, int]:
        return dict.fromkeys(degrees_of(there).items(), 1)

    def as_changes(edges: rd.Collection) -> rd.Collection:
        """Back to a collection: what a sink would have."""
        rows = counted(edges).updates("node").map(lambda change: {**change[0], "gone": change[1] < 0})
        return rows.as_collection(key="node", deleted="gone").map(lambda row: (row["node"], row["n"]))

    assert not found
    run_disturbed(Kept("updates", as_changes, kept, Shape(6, 9, 8)), history(Shape(6, 9, 8), seed), seed, tmp_path)


def test_a_key_with_two_records_is_named_with_both() -> None:
    flow = rd.Dataflow("two")
    pairs = rd.Collection(flow.from_epochs([[(("a", 1), 1)], [(("a", 2), 1)]]))
    pairs.updates(lambda pair: pair[0]).collect("out")
    with pytest.raises(rd.DataflowError, match=r"key 'a' has two records after epoch 1, \('a', 1\) and \('a', 2\).*changes\(\)"):
        flow.run(runtime="local")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([((None, 1), 1)], r"\(None, 1\) has the key None in epoch 0: a record without a key can be neither replaced nor deleted"),
        ([(("a", 1), -1)], r"\('a', 1\) was removed in epoch 0 and was not there"),
        ([(("a", 1), 2)], r"key 'a' has two records after epoch 0, \('a', 1\) and \('a', 1\)"),
    ],
)
def test_what_a_table_with_a_key_cannot_hold_is_refused(changes: Any, told: str) -> None:
    flow = rd.Dataflow("refused")
    rd.Collection(flow.from_epochs([changes]), checked=False).updates(lambda pair: pair[0]).collect("out")
    with pytest.raises(rd.DataflowError, match=told):
        flow.run(runtime="local")


@pytest.mark.parametrize("epoch", [None, 0, 4])
def test_files_hold_the_table_of_an_epoch(epoch: int | None, tmp_path: Path) -> None:
    for seed in range(4):
        changes = history(Shape(5, 9, 8), seed)
        flow = rd.Dataflow("written")
        rows = rd.Collection(flow.from_epochs(changes)).map(lambda edge: {"from": edge[0], "to": edge[1]})
        rows.write_parquet(str(tmp_path / f"out-{seed}"), epoch=epoch, name="out")
        flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)
        got = Counter((row["from"], row["to"]) for row in rd.read_committed(str(tmp_path / f"out-{seed}")).to_table().to_pylist())
        assert got == tables(changes)[-1 if epoch is None else epoch]


@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=50)))
def test_the_table_at_the_end_is_right_whatever_happens_meanwhile(seed: int, tmp_path: Path) -> None:
    changes = history(PROGRAMS[0].shape, seed)
    chance = random.Random(seed)
    flow = rd.Dataflow("table")
    rd.Collection(flow.from_epochs(changes, batch_rows=2)).table().collect("out")
    job: Any = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", seed=seed, parallelism=2)
    while job.step():
        if chance.random() < 0.02:
            job.crash()
    assert Counter(record for _, record in job.wait()["out"]) == tables(changes)[-1]


def _subscribed(edges: rd.Collection, told: list[Any], folder: Path) -> None:
    edges.subscribe(lambda epoch, some: told.extend(some))


def _updates(edges: rd.Collection, told: list[Any], folder: Path) -> None:
    edges.updates(["src", "dst"]).inspect(told.append).collect("ended")


def _final(edges: rd.Collection, told: list[Any], folder: Path) -> None:
    edges.table().inspect(lambda record: told.append((record, 1))).collect("ended")


def _changed(edges: rd.Collection, told: list[Any], folder: Path) -> None:
    edges.changes().inspect(told.append).collect("ended")


@pytest.mark.parametrize("form", ["rows", "columns", "both"])
@pytest.mark.parametrize("end", [_subscribed, _updates, _final, _changed])
def test_what_an_end_is_given_are_records_in_whatever_form_they_come(end: Any, form: Form, tmp_path: Path) -> None:
    changes, told = history(PROGRAMS[0].shape, 2), list[Any]()

    def build(edges: rd.Collection) -> rd.Collection:
        end(edges.distinct(), told, tmp_path)
        return edges

    InFields("edges", build, dict, PROGRAMS[0].shape, form).flow(changes).run(runtime="local", parallelism=2)
    there: Counter[Any] = Counter()
    for record, weight in told:
        assert isinstance(record, dict)
        there[record["src"], record["dst"]] += weight
    assert +there == Counter(dict.fromkeys(tables(changes)[-1], 1))


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_what_is_collected_has_a_table_after_each_epoch(form: Form) -> None:
    changes = history(PROGRAMS[0].shape, 1)
    edges = InFields("edges", lambda edges: edges, dict, PROGRAMS[0].shape, form)
    found = dict(rd.Collection.tables(edges.flow(changes).run(runtime="local")["out"]))
    assert [{(row["src"], row["dst"]): count for row, count in found[epoch].items()} for epoch in range(len(changes))] == tables(changes)


@pytest.mark.parametrize("what", ["write_csv", "write_json", "to_ray_dataset", "to_spark"])
def test_sinks_that_cannot_update_are_refused_with_what_to_do(what: str) -> None:
    flow = rd.Dataflow("refused")
    rows = flow.from_items([1]).as_collection()
    with pytest.raises(rd.DataflowError, match=rf"^{what}\(\) of a collection: .*changes\(\)\.{what}\(\.\.\.\).*table\(\)\.{what}"):
        getattr(rows, what)("somewhere")


def test_ends_are_outside_of_loops_and_take_what_they_say() -> None:
    flow = rd.Dataflow("refused")
    rows = flow.from_items([1]).as_collection()
    with pytest.raises(rd.DataflowError, match=r"changes\(\): the collection is inside a loop; let it leave"):
        rows.iterate(lambda inner: inner.subscribe(lambda epoch, some: None))
    with pytest.raises(rd.DataflowError, match="updates: key is \\[\\]: give a field, a list of fields, or a function"):
        rows.updates([])
    with pytest.raises(rd.DataflowError, match="subscribe"):
        rows.subscribe(3)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="table: epoch"):
        rows.table(epoch=-1)
