"""Windows that give their value early, or again when a late record changes it: against the rule in plain Python."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.progress import DataflowError
from tests.programs.windowed import event_windows
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
RECORD = st.fixed_dictionaries({"k": st.sampled_from("ab"), "t": st.integers(0, 50), "v": st.integers(-3, 9)})
EPOCHS = st.lists(st.lists(RECORD, max_size=5), min_size=1, max_size=8)
KINDS = {"tumbling": rd.windows.tumbling(8), "sliding": rd.windows.sliding(10, 4), "apart": rd.windows.sliding(3, 5)}


@examples(each_run=12, soak=80)
@given(
    epochs=EPOCHS,
    kind=st.sampled_from(sorted(KINDS)),
    delay=st.integers(0, 4),
    how=st.tuples(st.integers(0, 25), st.booleans()).filter(any),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_what_windows_give_follows_the_rule(
    epochs: list[Any], kind: str, delay: int, how: tuple[int, bool], parallelism: int, seed: int, to: int
) -> None:
    """In rows, in columns and in both, while replicas are added and removed: updates, ``.late``, ``.changes()`` and ``.latest()``."""
    lateness, early = how
    windows = KINDS[kind]
    events = [[(record["k"], record["t"], record["v"]) for record in records] for records in epochs]
    updates, late = event_windows(events, windows, sum, delay, windows.assign, lateness=lateness, early=early)
    table = {(key, window): value for _, (key, window, value) in sorted(updates, key=lambda entry: entry[0].epoch)}
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    for source in (batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay)
        sums = stream.key_by("k").window(windows, lateness=lateness, early=early).sum("v", name="sums")
        sums.collect("out")
        sums.late.collect("late")
        if lateness or early:
            sums.changes(name="changes").collect("changes")
            sums.latest(name="latest").collect("latest")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.rescale("sums", to)
        result = job.wait()
        assert Counter((at.epoch, *row) for at, row in result["out"]) == Counter((at.epoch, *row) for at, row in updates)
        found = Counter((at.epoch, key, window, (row["k"], row["t"], row["v"])) for at, (key, window, row) in result["late"])
        assert found == Counter((at.epoch, *row) for at, row in late)
        if lateness or early:
            assert {key: value for _, (key, value) in result["latest"]} == table
            now: dict[Any, int] = {}
            for _, (key, (before, after)) in sorted(result["changes"], key=lambda entry: entry[0].epoch):
                assert now.get(key) == before
                now[key] = after
            assert now == table


def test_a_list_that_was_given_early_is_not_changed_by_what_comes_later() -> None:
    flow = rd.Dataflow()
    stream = flow.from_epochs([[1], [2], [30], [3]]).assign_timestamps(lambda n: n)
    stream.window(rd.windows.tumbling(10), early=True, lateness=100).collect_list().collect("out")
    got = [(at.epoch, window.start, value) for at, (window, value) in flow.run(runtime="local")["out"]]
    assert got == [(0, 0, [1]), (1, 0, [1, 2]), (2, 30, [30]), (3, 0, [1, 2, 3])]


def test_windows_that_records_bring_along_and_moments() -> None:
    """An auction's highest bid so far, and one that came in late by two minutes."""
    noon = dt.datetime(2026, 11, 24, 12)
    bids = [[(0, 10, 5), (1, 10, 7)], [(30, 60, 1)], [(9, 10, 8)], [(55, 60, 2)], [(2, 10, 99)]]
    rows = [[(noon + dt.timedelta(minutes=at), noon + dt.timedelta(minutes=until), bid) for at, until, bid in some] for some in bids]
    flow = rd.Dataflow()
    stream = flow.from_epochs(rows).assign_timestamps(lambda bid: bid[0])
    auctions = rd.windows.given(lambda bid: noon, lambda bid: bid[1])
    best = stream.window(auctions, lateness=dt.timedelta(minutes=40), early=True).max(lambda bid: bid[2])
    best.collect("best")
    best.late.collect("late")
    result = flow.run(runtime="local")
    got = [(at.epoch, (window.end - noon) // dt.timedelta(minutes=1), value) for at, (window, value) in result["best"]]
    assert got == [(0, 10, 7), (1, 60, 1), (2, 10, 8), (3, 60, 2)]
    assert [row[2] for _, (_, row) in result["late"]] == [99]


def test_what_is_not_given_once_is_not_taken_for_records() -> None:
    stream = rd.Dataflow().from_epochs([[1], [2]]).assign_timestamps(lambda n: n)
    sums = stream.key_by(lambda n: n % 2).window(rd.windows.tumbling(4), early=True).sum()
    with pytest.raises(DataflowError, match=r"count at .*test_windows_updates\.py:.* is given running totals"):
        sums.key_by(lambda row: row[1]).count()
    assert sums.as_records().key_by(lambda row: row[1]).count() is not None
    final = stream.key_by(lambda n: n % 2).window(rd.windows.tumbling(4), lateness=0).sum()
    assert final.key_by(lambda row: row[1]).count() is not None, "0 is none"


@pytest.mark.parametrize(
    ("windows", "options", "says"),
    [
        (rd.windows.session(3), {"early": True}, "early with Session.*: sessions grow and merge, and nothing could take back"),
        (rd.windows.count(3), {"lateness": 3}, "lateness with Counted.*: these windows have no end in event time"),
        (rd.windows.per_epoch(), {"early": True}, "these windows have no end in event time"),
        (rd.windows.tumbling(3), {"lateness": -1}, "lateness is -1: it must be a number or timedelta of at least 0"),
        (rd.windows.tumbling(3), {"lateness": dt.timedelta(1)}, "do not go together"),
        (rd.windows.tumbling(3), {"early": "epoch"}, "early"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(windows: Any, options: dict[str, Any], says: str) -> None:
    stream = rd.Dataflow().from_items([1]).assign_timestamps(lambda n: n).key_by(lambda n: n)
    with pytest.raises(DataflowError, match=says):
        stream.window(windows, **options)


def test_operators_that_give_several_records_of_a_window_have_no_updates() -> None:
    stream = rd.Dataflow().from_items([1]).assign_timestamps(lambda n: n).key_by(lambda n: n)
    windowed = stream.window(rd.windows.tumbling(3), early=True)
    with pytest.raises(DataflowError, match=r"join at .*: a pair is given once.*; leave lateness and early out of window\(\.\.\.\)"):
        windowed.join(stream)
    with pytest.raises(DataflowError, match="it may give several records of a window"):
        windowed.max_by(lambda n: n)
