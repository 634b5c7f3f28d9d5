"""Keys that end: every operator against the rule in plain Python, in rows and columns, while replicas come and go; nothing live is lost."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.time_to_live import KeysEnd
from rayad.dataflow.operators.totals.totals import Totals
from rayad.progress import DataflowError, SnapshotError
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64()), ("i", pa.int64())])
RECORD = st.fixed_dictionaries({"k": st.none() | st.integers(0, 3), "t": st.integers(0, 60), "v": st.integers(0, 3)})
EPOCHS = st.lists(st.lists(RECORD, max_size=5), min_size=1, max_size=9)
Life = list[list[dict[str, Any]]]
"""The records of a key in the epochs of its life, of which the last one is now."""


def numbered(epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    number = iter(range(10_000))
    return [[{**record, "i": next(number)} for record in records] for records in epochs]


def every(life: Life) -> list[dict[str, Any]]:
    return [record for records in life for record in records]


def lagged(life: Life) -> list[Any]:
    ordered = [record["i"] for records in life for record in sorted(records, key=lambda r: r["i"])]
    return list(zip([None, *ordered], ordered, strict=False))[-len(life[-1]) :]


def fresh(life: Life) -> list[int]:
    known = {record["v"] for records in life[:-1] for record in records}
    return sorted({record["v"] for record in life[-1]} - known)


OPERATORS: dict[str, tuple[Callable[[Any], rd.Stream], Callable[[Life], list[Any]]]] = {
    "count": (lambda keyed: keyed.count(), lambda life: [len(every(life))]),
    "sum": (lambda keyed: keyed.sum("v"), lambda life: [sum(r["v"] for r in every(life))]),
    "max": (lambda keyed: keyed.max("i"), lambda life: [max(r["i"] for r in every(life))]),
    "aggregate": (
        lambda keyed: keyed.aggregate({"n": "count", "low": ("min", "v")}),
        lambda life: [{"n": len(every(life)), "low": min(r["v"] for r in every(life))}],
    ),
    "last": (lambda keyed: keyed.last("i", by="i"), lambda life: [max(r["i"] for r in every(life))]),
    "fold": (lambda keyed: keyed.fold(0, lambda so_far, row: so_far + row["v"]), lambda life: [sum(r["v"] for r in every(life))]),
    "reduce": (lambda keyed: keyed.reduce(min, "i"), lambda life: [min(r["i"] for r in every(life))]),
    "top_k": (lambda keyed: keyed.top_k(2, "i"), lambda life: [sorted((r["i"] for r in every(life)), reverse=True)[:2]]),
    "distinct": (lambda keyed: keyed.distinct("v"), fresh),
    "lag": (lambda keyed: keyed.lag(lambda i: i, "i"), lagged),
    "head": (
        lambda keyed: keyed.head(2, lambda i: i, "i"),
        lambda life: [r["i"] for records in life for r in sorted(records, key=lambda r: r["i"])][:2][max(len(every(life[:-1])), 0) :],
    ),
    "stateful_map": (
        lambda keyed: keyed.stateful_map(lambda seen, row: (seen + 1, seen), 0),
        lambda life: [len(every(life[:-1])) + i for i in range(len(life[-1]))],
    ),
}


class Rule:
    """Which keys live, as the page of operators says it."""

    def __init__(self, delay: int, after: int) -> None:
        self.delay, self.after = delay, after
        self.largest: int | None = None
        self.last: dict[Any, int] = {}

    def complete(self, records: list[dict[str, Any]]) -> list[Any]:
        """These were the records of an epoch; gives the keys that end with it."""
        for record in records:
            self.last[record["k"]] = max(record["t"], self.last.get(record["k"], record["t"]))
            self.largest = record["t"] if self.largest is None else max(self.largest, record["t"])
        if self.largest is None:
            return []
        ended = [key for key, moment in self.last.items() if moment < self.largest - self.delay - self.after]
        for key in ended:
            del self.last[key]
        return ended


def expected(epochs: list[Any], delay: int, after: int, model: Callable[[Life], list[Any]]) -> Counter[str]:
    rule, lives, out = Rule(delay, after), defaultdict[Any, Life](list), Counter[str]()
    for epoch, records in enumerate(epochs):
        of_key: dict[Any, list[Any]] = {}
        for record in records:
            of_key.setdefault(record["k"], []).append(record)
        for key, some in of_key.items():
            lives[key].append(some)
            out.update(repr((epoch, key, answer)) for answer in model(lives[key]))
        for key in rule.complete(records):
            del lives[key]
    return out


def forms_of(epochs: list[Any]) -> list[list[Any]]:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    return [batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]]


@pytest.mark.parametrize("name", OPERATORS)
@examples(each_run=4, soak=12)
@given(
    epochs=EPOCHS.map(numbered),
    delay=st.integers(0, 9),
    after=st.integers(0, 20),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_each_operator_forgets_by_the_rule(
    name: str, epochs: list[Any], delay: int, after: int, parallelism: int, seed: int, to: int
) -> None:
    build, model = OPERATORS[name]
    wanted = expected(epochs, delay, after, model)
    for source in forms_of(epochs):
        flow = rd.Dataflow()
        keyed = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay).key_by("k").ttl(after)
        result = build(keyed)
        result.collect("out")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.start_rescale({flow.graph.nodes[result.node].name: to})
        found = job.wait(timeout_s=100)["out"]
        assert Counter(repr((at.epoch, key, value)) for at, (key, value) in found) == wanted


@examples(each_run=14, soak=40)
@given(epochs=EPOCHS.map(numbered), delay=st.integers(0, 9), after=st.integers(0, 20))
def test_nothing_live_is_lost(epochs: list[Any], delay: int, after: int) -> None:
    """A record that is not late, and no further than ``after`` behind the last one of its key, finds what the key had."""
    flow = rd.Dataflow()
    flow.from_epochs(epochs).assign_timestamps("t", max_delay=delay).key_by("k").ttl(rd.Ttl(after)).fold(
        (), lambda seen, row: (*seen, row["i"])
    ).collect("seen")
    seen = {(at.epoch, key): value for at, (key, value) in flow.run(runtime="local")["seen"]}
    last: dict[Any, tuple[int, int]] = {}
    mark: int | None = None
    for epoch, records in enumerate(epochs):
        for record in records:
            before = last.get(record["k"])
            in_time = mark is None or record["t"] >= mark
            if before is not None and in_time and record["t"] - before[0] <= after:
                assert before[1] in seen[epoch, record["k"]]
        for record in records:
            moment = max(record["t"], last[record["k"]][0]) if record["k"] in last else record["t"]
            last[record["k"]] = moment, record["i"]
        mark = max([*([] if mark is None else [mark]), *(record["t"] - delay for record in records)], default=None)


def tables(epochs: list[Any], delay: int, after: int) -> tuple[list[dict[Any, int]], Counter[str]]:
    """After each epoch how many records each key has had that lives, and what the epochs changed of that."""
    rule, table, out, changes = Rule(delay, after), dict[Any, int](), [], Counter[str]()
    for epoch, records in enumerate(epochs):
        before = dict(table)
        for record in records:
            table[record["k"]] = table.get(record["k"], 0) + 1
        for key in rule.complete(records):
            del table[key]
        touched = {record["k"] for record in records if record["k"] in table} | before.keys() - table.keys()
        changes.update(repr((epoch, key, (before.get(key), table.get(key)))) for key in touched)
        out.append(dict(table))
    return out, changes


@examples(each_run=10, soak=60)
@given(
    epochs=EPOCHS.map(numbered),
    delay=st.integers(0, 9),
    after=st.integers(0, 20),
    every=st.integers(1, 4),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_changes_and_tables_of_totals_whose_keys_end(
    epochs: list[Any], delay: int, after: int, every: int, parallelism: int, seed: int, to: int
) -> None:
    after_each, changes = tables(epochs, delay, after)
    after_each += [after_each[-1]] * every
    shown = sorted({epoch - epoch % every + every - 1 for epoch, records in enumerate(epochs) if records})
    for source in forms_of(epochs):
        flow = rd.Dataflow()
        keyed = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay).key_by("k").ttl(after)
        totals = keyed.count(name="totals")
        totals.changes(name="changes").collect("changes")
        totals.latest(name="table").collect("table")
        totals.latest(every=every, name="tables").collect("tables")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.start_rescale(dict.fromkeys(("totals", "changes", "table", "tables"), to))
        result = job.wait(timeout_s=100)
        assert Counter(repr((at.epoch, key, change)) for at, (key, change) in result["changes"]) == changes
        assert sorted(map(repr, (pair for _, pair in result["table"]))) == sorted(map(repr, after_each[-1].items()))
        found = Counter((at.epoch, *pair) for at, pair in result["tables"])
        assert found == Counter((epoch, *pair) for epoch in shown for pair in after_each[epoch].items())


@examples(each_run=5, soak=25)
@given(left=EPOCHS.map(numbered), right=EPOCHS.map(numbered), after=st.integers(0, 20), seed=st.integers(0, 99), to=st.integers(1, 4))
def test_a_join_forgets_a_key_on_both_sides(left: list[Any], right: list[Any], after: int, seed: int, to: int) -> None:
    count = max(len(left), len(right))
    sides = [[*side, *([[]] * (count - len(side)))] for side in (left, right)]
    wanted: Counter[str] = Counter()
    kept: list[dict[Any, list[int]]] = [defaultdict(list), defaultdict(list)]
    last: dict[Any, int] = {}
    largest: list[int | None] = [None, None]
    for epoch in range(count):
        for side in (0, 1):
            for record in sides[side][epoch]:
                if record["k"] is not None:
                    pairs = [(record["i"], other) if side == 0 else (other, record["i"]) for other in kept[1 - side][record["k"]]]
                    wanted.update(repr((epoch, record["k"], pair)) for pair in pairs)
                    kept[side][record["k"]].append(record["i"])
                last[record["k"]] = max(record["t"], last.get(record["k"], record["t"]))
                known = largest[side]
                largest[side] = record["t"] if known is None else max(known, record["t"])
        if None not in largest:
            limit = min(each for each in largest if each is not None) - after
            for key in [key for key, moment in last.items() if moment < limit]:
                del last[key]
                for one in kept:
                    one.pop(key, None)
    for lefts, rights in zip(forms_of(left), forms_of(right), strict=True):
        flow = rd.Dataflow()
        keyed = [flow.from_epochs(source).assign_timestamps("t").key_by("k").ttl(after) for source in (lefts, rights)]
        keyed[0].join(keyed[1], name="joined").collect("out")
        job = flow.submit(runtime="local", seed=seed, parallelism=2)
        for _ in range(seed):
            job.step()
        job.start_rescale({"joined": to})
        found = job.wait(timeout_s=100)["out"]
        assert Counter(repr((at.epoch, key, (a["i"], b["i"]))) for at, (key, (a, b)) in found) == wanted


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_what_has_ended_takes_no_room(columnar: bool) -> None:
    """A hundred thousand keys go by; a few are kept at any time, also of the slots of columns."""
    size, epochs = 1000, 100
    batches = [pa.record_batch({"k": range(n * size, (n + 1) * size), "t": [n] * size}) for n in range(epochs)]
    flow = rd.Dataflow()
    source = flow.from_epochs(batches if columnar else [batch.to_pylist() for batch in batches])
    source.assign_timestamps("t").key_by("k").ttl(2).count(name="counted").collect("out", columnar=columnar)
    seen: list[KeysEnd] = []
    made = KeysEnd.setup

    def setup(vertex: KeysEnd) -> None:
        seen.append(vertex)
        made(vertex)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeysEnd, "setup", setup)
        flow.run(runtime="local")
    (vertex,) = seen
    inside = vertex.inside
    assert isinstance(inside, Totals)
    assert inside.totals.columns.is_used is columnar
    assert isinstance(inside.totals.rows, KeyedDict)
    assert len(vertex.lives.kept) == 3 * size
    assert len(inside.totals.rows.kept) == (0 if columnar else 3 * size)
    assert len(pickle.dumps(inside.totals.checkpoint())) < 20 * 8 * size  # of all keys it would be ten times as much


def test_moments_and_lengths_of_time() -> None:
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    days = [0, 1, 40, 41]
    flow = rd.Dataflow()
    stream = flow.from_epochs([[("a", start + dt.timedelta(days=day))] for day in days]).assign_timestamps(lambda row: row[1])
    stream.key_by(lambda row: row[0]).ttl(dt.timedelta(days=30)).count().collect("out")
    # The record of day 40 keeps its key alive: its own epoch is over when the watermark is told.
    assert [record for _, record in flow.run(runtime="local")["out"]] == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, o: s.key_by("k").ttl(3), r"ttl at .*: the stream 'epochs' has no event time; call assign_timestamps"),
        (lambda s, o: s.assign_timestamps("t").key_by("k").ttl(-1), "Ttl: after is -1: it must be a number or timedelta of at least 0"),
        (lambda s, o: s.assign_timestamps("t").key_by("k").ttl(None), "Ttl: after is None: give a number or timedelta"),
        (
            lambda s, o: s.assign_timestamps("t", max_delay=3).key_by("k").ttl(dt.timedelta(1)),
            "the lengths .* do not go together: give sizes, slides, offsets and max_delay as numbers of one kind",
        ),
        (
            lambda s, o: s.assign_timestamps("t").key_by("k").ttl(3).window(rd.windows.tumbling(3)),
            "window at .* windows end when they fire",
        ),
        (
            lambda s, o: s.assign_timestamps("t").key_by("k").ttl(3).join(o.assign_timestamps("t").key_by("k")),
            "join at .*: one side has the time-to-live 3 of keys, the other None: a key of a join ends on both sides at once, give both "
            "the same",
        ),
        (
            lambda s, o: o.assign_timestamps("t").key_by("k").join_asof(s.assign_timestamps("t").key_by("k").ttl(3)),
            "join_asof at .* is given a stream with a time-to-live .*: its tolerance= says how long",
        ),
        (
            lambda s, o: s.assign_timestamps("t").key_by("k").ttl(3).vertex(rd.Vertex),
            "is given a stream with a time-to-live .*: a vertex of yours forgets by a rule of its own",
        ),
        (
            lambda s, o: s.assign_timestamps("t").key_by("k").ttl(3).count(name="n").filter(bool, name="f").changes(),
            r"changes at .*: the keys of 'n' .* have a time-to-live, and 'f' does not pass on which .* call changes\(\) right behind 'n'",
        ),
        (
            lambda s, o: s.assign_timestamps("t").key_by("k").ttl(3).count(name="n").union(o.key_by("k").count(), name="u").latest(),
            r"latest at .*: the keys of 'n' .* have a time-to-live, and 'u' does not pass on which .* call latest\(\) right behind 'n'",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(build: Any, message: str) -> None:
    flow = rd.Dataflow()
    streams = [flow.from_epochs([[{"k": 1, "t": 2}]], name=name) for name in ("epochs", "others")]
    with pytest.raises(DataflowError, match=message):
        build(*streams)


def test_a_resumed_job_goes_on_with_its_keys_and_may_have_another_time_to_live(tmp_path: Path) -> None:
    epochs = [[{"k": key, "t": 10 * n + at} for at, key in enumerate("abc"[: 1 + n % 3])] for n in range(8)]

    def flow(ttl: Any, by: str = "k") -> rd.Dataflow:
        made = rd.Dataflow("resumed")
        keyed = made.from_epochs(epochs).assign_timestamps("t").key_by(by)
        (keyed if ttl is None else keyed.ttl(ttl)).count(name="counted").collect("out")
        return made

    straight = sorted(flow(15).run(runtime="local")["out"], key=repr)
    for steps in (10, 40, 70):
        run = rd.RunConfig(storage_path=str(tmp_path / str(steps)))
        job = flow(15).submit(run, runtime="local", parallelism=2)
        for _ in range(steps):
            job.step()
        job.savepoint()
        assert sorted(flow(15).run(run, runtime="local", resume="latest", parallelism=3)["out"], key=repr) == straight
    run = rd.RunConfig(storage_path=str(tmp_path / "changed"))
    flow(15).submit(run, runtime="local").savepoint()
    for changed in (flow(None), flow(15, by="t")):
        with pytest.raises(SnapshotError, match="counted"):
            changed.run(run, runtime="local", resume="latest")
    assert max(count for _, (key, count) in straight if key == "c") == 1
    assert max(count for _, (key, count) in flow(1000).run(run, runtime="local", resume="latest")["out"] if key == "c") == 2
