"""Records that end one by one: the join and distinct against the rule in plain Python, in rows and columns, while replicas come and go."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins.intervals import JoinOfRecordsThatEnd
from rayad.dataflow.operators.values_that_end import DistinctOfRecords
from rayad.progress import DataflowError, SnapshotError
from tests.dataflow.test_time_to_live import EPOCHS, forms_of, numbered
from tests.thorough import examples

LENGTHS = st.integers(0, 20)


class Watermark:
    """The largest event time of each side less the delay, and of these the least."""

    def __init__(self, delay: int, sides: int = 1) -> None:
        self.delay = delay
        self.largest: list[int | None] = [None] * sides

    def complete(self, side: int, records: list[dict[str, Any]]) -> None:
        known = self.largest[side]
        self.largest[side] = max([*([] if known is None else [known]), *(record["t"] for record in records)], default=None)

    @property
    def now(self) -> int | None:
        known = [each for each in self.largest if each is not None]
        return None if len(known) < len(self.largest) else min(known) - self.delay


def joined(left: list[Any], right: list[Any], delay: int, lives: tuple[int, int]) -> Counter[str]:
    mark, kept, out = Watermark(delay, 2), ([], []), Counter[str]()
    for epoch in range(max(len(left), len(right))):
        for side, records in enumerate(some[epoch] if epoch < len(some) else [] for some in (left, right)):
            for record in records:
                for other in kept[1 - side]:
                    a, b = (record, other) if side == 0 else (other, record)
                    if a["k"] == b["k"] and a["k"] is not None and -lives[1] <= b["t"] - a["t"] <= lives[0]:
                        out[repr((epoch, a["k"], (a["i"], b["i"])))] += 1
                kept[side].append(record)
            mark.complete(side, records)
        if mark.now is not None:
            for side, some in enumerate(kept):
                some[:] = [record for record in some if record["t"] >= mark.now - lives[side]]
    return out


def given_values(epochs: list[Any], delay: int, after: int) -> Counter[str]:
    mark, kept, out = Watermark(delay), dict[Any, int](), Counter[str]()
    for epoch, records in enumerate(epochs):
        latest: dict[Any, int] = {}
        for record in records:
            pair = record["k"], record["v"]
            latest[pair] = max(record["t"], latest.get(pair, record["t"]))
        for pair, moment in latest.items():
            if pair not in kept or kept[pair] < moment - after:
                kept[pair] = moment
                out[repr((epoch, *pair))] += 1
        mark.complete(0, records)
        if mark.now is not None:
            kept = {pair: moment for pair, moment in kept.items() if moment >= mark.now - after}
    return out


def run_with_a_rescale(flow: rd.Dataflow, vertex: str, seed: int, parallelism: int, to: int) -> Any:
    job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
    for _ in range(seed):
        job.step()
    job.start_rescale({vertex: to})
    return job.wait(timeout_s=100)["out"]


@examples(each_run=10, soak=30)
@given(
    left=EPOCHS.map(numbered), right=EPOCHS.map(numbered), delay=st.integers(0, 9), lives=st.tuples(LENGTHS, LENGTHS),
    parallelism=st.integers(1, 3), seed=st.integers(0, 99), to=st.integers(1, 4),
)  # fmt: skip
def test_a_join_forgets_records_by_the_rule(
    left: list[Any], right: list[Any], delay: int, lives: tuple[int, int], parallelism: int, seed: int, to: int
) -> None:
    wanted = joined(left, right, delay, lives)
    for sources in zip(forms_of(left), forms_of(right), strict=True):
        flow = rd.Dataflow()
        keyed = [
            flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay).key_by("k").ttl(after, of="records")
            for source, after in zip(sources, lives, strict=True)
        ]
        keyed[0].join(keyed[1], name="joined").collect("out")
        found = run_with_a_rescale(flow, "joined", seed, parallelism, to)
        assert Counter(repr((at.epoch, key, (a["i"], b["i"]))) for at, (key, (a, b)) in found) == wanted


@examples(each_run=10, soak=30)
@given(
    epochs=EPOCHS.map(numbered), delay=st.integers(0, 9), after=LENGTHS, parallelism=st.integers(1, 3), seed=st.integers(0, 99),
    to=st.integers(1, 4),
)  # fmt: skip
def test_distinct_forgets_values_by_the_rule(epochs: list[Any], delay: int, after: int, parallelism: int, seed: int, to: int) -> None:
    wanted = given_values(epochs, delay, after)
    for source in forms_of(epochs):
        flow = rd.Dataflow()
        timed = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay)
        timed.key_by("k").ttl(rd.Ttl(after, of="records")).distinct("v", name="fresh").collect("out")
        found = run_with_a_rescale(flow, "fresh", seed, parallelism, to)
        assert Counter(repr((at.epoch, key, value)) for at, (key, value) in found) == wanted


@examples(each_run=14, soak=40)
@given(records=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 60)), max_size=15), after=LENGTHS, data=st.data())
def test_pairs_of_records_that_are_not_late_do_not_depend_on_epochs(records: list[Any], after: int, data: st.DataObject) -> None:
    """They are those whose event times are at most the time-to-live apart."""
    records = [(*record, i) for i, record in enumerate(sorted(records, key=lambda record: record[2]))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=6)))
    parts = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    flow = rd.Dataflow()
    sides = [
        flow.from_epochs([[record for record in part if record[0] == side] for part in parts])
        .assign_timestamps(lambda record: record[2])
        .key_by(lambda record: record[1])
        .ttl(after, of="records")
        for side in (0, 1)
    ]
    sides[0].join(sides[1]).collect("out")
    found = Counter((a[3], b[3]) for _, (_, (a, b)) in flow.run(runtime="local")["out"])
    lefts, rights = ([record for record in records if record[0] == side] for side in (0, 1))
    assert found == Counter((a[3], b[3]) for a in lefts for b in rights if a[1] == b[1] and abs(a[2] - b[2]) <= after)


def active(count: int) -> list[list[dict[str, Any]]]:
    """A key that has a record each ten seconds."""
    return [[{"k": "a", "t": 10 * n, "v": n % 2, "i": n}] for n in range(count)]


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_records_of_a_key_that_stays_active_end(columnar: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By key the first record is met for ever, a thousand seconds later too, and all are kept."""
    most = Counter[str]()

    def counted(vertex: Any) -> int:
        if isinstance(vertex, DistinctOfRecords):
            return sum(map(len, vertex.seen.kept.values()))
        rows = sum(len(entries) for sides in vertex.open.rows.kept.values() for entries in sides)
        assert (vertex.open.columns.rows > 0) is columnar
        return rows + vertex.open.columns.rows

    for kind in (JoinOfRecordsThatEnd, DistinctOfRecords):

        def on_notify(self: Any, time: Any, usual: Any = kind.on_notify) -> None:
            usual(self, time)
            most[type(self).__name__] = max(most[type(self).__name__], counted(self))

        monkeypatch.setattr(kind, "on_notify", on_notify)
    for of, furthest in (("keys", 1000), ("records", 20)):
        flow = rd.Dataflow()
        epochs = [pa.RecordBatch.from_pylist(rows) for rows in active(101)] if columnar else active(101)
        sides = [flow.from_epochs(epochs).assign_timestamps("t").key_by("k").ttl(20, of=of) for _ in range(2)]
        sides[0].join(sides[1]).collect("pairs")
        sides[0].distinct("i").collect("values")
        sides[0].distinct("v").collect("again")
        result = flow.run(runtime="local")
        assert max(abs(a["t"] - b["t"]) for _, (_, (a, b)) in result["pairs"]) == furthest
        assert len(result["values"]) == 101
        again = [at.epoch for at, _ in result["again"]]
        assert again == ([0, 1] if of == "keys" else sorted([*range(0, 101, 4), *range(1, 101, 4)]))
    assert most["DistinctOfRecords"] == 3
    assert most["JoinOfRecordsThatEnd"] == (10 if columnar else 6)  # columns keep some rows that are over


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_a_late_record_meets_what_lives(columnar: bool) -> None:
    """Of the left records the one of 0 has ended at the watermark 10, though columns still have its row; 8 has not."""
    left = [[{"k": 1, "t": t} for t in (0, 8, 9, 10)], [], []]
    right = [[{"k": 1, "t": 10}], [{"k": 1, "t": 4}], [{"k": 1, "t": 3}]]
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    flow = rd.Dataflow()
    sides = []
    for epochs in (left, right):
        source = [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in epochs] if columnar else epochs
        sides.append(flow.from_epochs(source).assign_timestamps("t").key_by("k").ttl(5, of="records"))
    sides[0].join(sides[1]).collect("out")
    found = Counter((at.epoch, a["t"], b["t"]) for at, (_, (a, b)) in flow.run(runtime="local")["out"])
    assert found == Counter([(0, 8, 10), (0, 9, 10), (0, 10, 10), (1, 8, 4), (1, 9, 4), (2, 8, 3)])


def test_values_of_every_kind_are_new_again() -> None:
    """Dicts and NaN are compared by what they hold."""
    values: list[Any] = [{"a": [1]}, float("nan"), (1, 2), None]
    flow = rd.Dataflow()
    timed = flow.from_epochs([[(value, t) for value in values] for t in (0, 20, 21, 30, 42)]).assign_timestamps(lambda pair: pair[1])
    timed.key_by(lambda pair: "k").ttl(20, of="records").distinct(lambda pair: pair[0]).collect("out")
    found = Counter((at.epoch, repr(value)) for at, (_, value) in flow.run(runtime="local")["out"])
    assert found == Counter((epoch, repr(value)) for epoch in (0, 2, 4) for value in values)


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_a_resumed_job_goes_on_with_its_records_and_may_have_another_time_to_live(tmp_path: Path, columnar: bool) -> None:
    epochs: list[Any] = [pa.RecordBatch.from_pylist(rows) for rows in active(12)] if columnar else active(12)

    def flow(after: Any, of: Any = "records") -> rd.Dataflow:
        made = rd.Dataflow("resumed")
        sides = [made.from_epochs(epochs).assign_timestamps("t").key_by("k").ttl(after, of=of) for _ in range(2)]
        sides[0].join(sides[1], name="joined").collect("pairs")
        sides[0].distinct("v", name="fresh").collect("fresh")
        return made

    def results(result: Any) -> list[str]:
        return sorted(repr((name, at, record)) for name in ("pairs", "fresh") for at, record in result[name])

    straight = results(flow(20).run(runtime="local"))
    for steps in (20, 60, 100):
        run = rd.RunConfig(storage_path=str(tmp_path / str(steps)), snapshots=rd.SnapshotConfig(interval_s=None))
        job = flow(20).submit(run, runtime="local", parallelism=2)
        for _ in range(steps):
            job.step()
        job.savepoint()
        assert results(flow(20).run(run, runtime="local", resume="latest", parallelism=3)) == straight
        longer = results(flow(50).run(run, runtime="local", resume="latest"))
        assert Counter(line for line in longer if "pairs" in line) >= Counter(line for line in straight if "pairs" in line)
        assert Counter(longer) <= Counter(results(flow(50).run(runtime="local")) + straight)
    run = rd.RunConfig(storage_path=str(tmp_path / "changed"))
    flow(20).submit(run, runtime="local").savepoint()
    with pytest.raises(SnapshotError, match="joined"):
        flow(20, of="keys").run(run, runtime="local", resume="latest")


KEEPS_NONE = r"ttl\(3\) ends keys; window\(\.\.\.\), say rd.windows.sliding\(\.\.\.\), gives .* records end in distinct, and in join"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        *(
            (build, rf"{name} at .* is given a stream with a time-to-live \(3 of records\): it keeps what .* {KEEPS_NONE}")
            for name, build in {
                "count": lambda s, o: s.count().changes(),
                "sum": lambda s, o: s.sum("t"),
                "first": lambda s, o: s.first("t"),
                "last": lambda s, o: s.last("t"),
                "top_k": lambda s, o: s.top_k(2, "t"),
                "collect_list": lambda s, o: s.collect_list("t"),
                "fold": lambda s, o: s.fold(0, lambda so_far, row: so_far),
                "lag": lambda s, o: s.lag("t"),
                "head": lambda s, o: s.head(2, "t"),
                "latest": lambda s, o: s.latest("t"),
                "stateful_map": lambda s, o: s.stateful_map(lambda state, row: (state, row)),
            }.items()
        ),
        (
            lambda s, o: s.join(o.ttl(3)),
            "join at .*: one side has the time-to-live 3 of records, the other 3 of keys: .* records end each by that of its side, give "
            "both one with of='records'",
        ),
        (lambda s, o: s.join(o.ttl(0.5, of="records"), how="left"), "a join over all time is an inner one"),
        (lambda s, o: s.join(o.ttl(dt.timedelta(1), of="records")), r"the lengths 3, datetime.timedelta\(days=1\) .* do not go together"),
        (lambda s, o: s.join(o), "one side has the time-to-live 3 of records, the other None"),
        (lambda s, o: s.join(o.ttl(3, of="records"), broadcast=True), r"join \(broadcast\) at .* with a time-to-live \(3 of records\)"),
        (lambda s, o: s.window(rd.windows.tumbling(3)), r"with a time-to-live \(3 of records\): windows end when they fire"),
        (lambda s, o: o.ttl(rd.Ttl(3), of="records"), r"ttl at .* was given Ttl\(after=3, of='keys'\) and of='records': say it"),
        (lambda s, o: o.ttl(3, of="rows"), "Ttl: of is 'rows'.*'keys'.*'records'"),
    ],
)
def test_what_keeps_no_records_is_refused_where_it_is_written(build: Any, message: str) -> None:
    flow = rd.Dataflow()
    streams = [flow.from_epochs([[{"k": 1, "t": 2}]]).assign_timestamps("t").key_by("k") for _ in range(2)]
    with pytest.raises(DataflowError, match=message):
        build(streams[0].ttl(3, of="records"), streams[1])
