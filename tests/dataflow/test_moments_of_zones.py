"""Hours that come twice, or not at all, where clocks change: what zone a datetime is in does not change any result.

The model is the same program over the same moments in UTC, where Python's comparisons are those of moments. Beside it come rows in a zone,
where a moment of spring may be told by an hour that does not exist, and columns of that zone.
"""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.state.tables import Entries, entries_of, table_of
from rayad.dataflow.records.exact import array_of
from rayad.dataflow.records.key_hashing import hash_array, stable_hash
from rayad.dataflow.records.moments import moment, moments
from tests.thorough import by_turns, examples

BERLIN, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")
TWICE = dt.datetime(2023, 10, 29, 2, 30, tzinfo=BERLIN)
AGAIN = TWICE.replace(fold=1)
NEVER = dt.datetime(2023, 3, 26, 2, 30, tzinfo=BERLIN)
HOUR, QUARTER = dt.timedelta(hours=1), dt.timedelta(minutes=15)
CHANGES = {
    BERLIN: [dt.datetime(2023, 10, 29, 1, tzinfo=dt.UTC), dt.datetime(2023, 3, 26, 1, tzinfo=dt.UTC)],
    LORD_HOWE: [dt.datetime(2024, 4, 6, 15, tzinfo=dt.UTC), dt.datetime(2023, 9, 30, 15, 30, tzinfo=dt.UTC)],
}
"""When the clocks of a zone were set back, and forward; Lord Howe sets them by half an hour."""


class Rings(rd.Process):
    """Tells each record's time, whether it is late, and an hour later what time it is."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.emit(("record", record["i"], context.time, context.is_late))
        context.set_timer(record["t"])

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(("timer", context.time))


def timed(stream: rd.Stream, **settings_: Any) -> rd.Stream:
    return stream.assign_timestamps("t", **settings_)


def windowed(stream: rd.Stream, windows: Any, **settings_: Any) -> Any:
    return timed(stream, **settings_).key_by("k").window(windows)


TUMBLING, SLIDING, SESSION = rd.windows.tumbling(HOUR), rd.windows.sliding(HOUR, QUARTER), rd.windows.session(QUARTER)
STEPS: dict[str, Callable[[rd.Stream], Any]] = {
    "tumbling": lambda s: windowed(s, TUMBLING).count(),
    "late": lambda s: windowed(s, TUMBLING).sum("i").late,
    "of a function": lambda s: s.assign_timestamps(lambda r: r["t"]).key_by(lambda r: r["k"]).window(TUMBLING).sum(lambda r: r["i"]),
    "sliding": lambda s: windowed(s, SLIDING, max_delay=QUARTER).sum("i"),
    "sessions": lambda s: windowed(s, SESSION).sum("i"),
    "late of sessions": lambda s: windowed(s, SESSION).count().late,
    "given windows": lambda s: windowed(s, rd.windows.given("t", "until")).count(),
    "windows of two": lambda s: windowed(s, rd.windows.count(2)).sum("i"),
    "windows that are updated": lambda s: timed(s).key_by("k").window(TUMBLING, lateness=HOUR).count(),
    "first in windows": lambda s: windowed(s, TUMBLING).first("i"),
    "latest time in windows": lambda s: windowed(s, SLIDING).max("t"),
    "best in windows": lambda s: windowed(s, TUMBLING).min_by("t"),
    "key in windows": lambda s: timed(s).key_by("t").window(SESSION).count(),
    "max_ahead": lambda s: windowed(s, TUMBLING, max_ahead=QUARTER).count().late,
    "per": lambda s: windowed(s, TUMBLING, per="t").count().late,
    "first": lambda s: s.key_by("k").first("i", by="t"),
    "last": lambda s: s.key_by("k").last("i", by=lambda r: (r["t"], r["i"])),
    "lag": lambda s: s.key_by("k").lag("t"),
    "head": lambda s: s.key_by("k").head(2, "t"),
    "latest": lambda s: s.key_by("k").latest("t"),
    "min": lambda s: s.key_by("k").min("t"),
    "max": lambda s: s.key_by("k").max("t"),
    "reduce": lambda s: s.key_by("k").reduce(max, "t"),
    "changes of max": lambda s: s.key_by("k").max("t").changes(),
    "best of epochs": lambda s: s.key_by("k").per_epoch().max_by("t"),
    "top": lambda s: s.key_by("k").top_k(2, "t"),
    "top by time": lambda s: s.key_by("k").top_k(2, by="t"),
    "count_distinct": lambda s: s.key_by("k").count_distinct("t"),
    "approx_count_distinct": lambda s: s.key_by("k").approx_count_distinct("t"),
    "distinct": lambda s: s.key_by("k").distinct("t"),
    "distinct lists": lambda s: s.map(lambda r: {"k": r["k"], "of": [r["t"]]}).key_by("k").distinct("of"),
    "key": lambda s: s.key_by("t").count(),
    "key of a function": lambda s: s.key_by(lambda r: r["t"]).sum(lambda r: r["i"]),
    "key of two columns": lambda s: s.key_by(["k", "t"]).sum("i"),
    "key within a key": lambda s: s.key_by(lambda r: (r["k"], (r["t"],))).count(),
    "key of a stateful_map": lambda s: s.key_by("t").stateful_map(lambda n, i: (n + 1, n), 0, lambda r: 0),
    "best by such a key": lambda s: s.key_by("t").per_epoch().max_by("i"),
    "join by such a key": lambda s: s.key_by("t").join(s.map(lambda r: r).key_by("t")),
    "broadcast join": lambda s: s.key_by("t").join(s.key_by("t"), broadcast=True),
    "join in windows": lambda s: windowed(s, TUMBLING).join(timed(s).key_by("k")),
    "join within": lambda s: timed(s).key_by("k").join(timed(s).key_by("k"), within=rd.between(-QUARTER, QUARTER)),
    "as-of join": lambda s: timed(s).key_by("k").join_asof(timed(s).key_by("k"), tolerance=HOUR, allow_exact_matches=False),
    "time-to-live": lambda s: timed(s).key_by("k").ttl(QUARTER).sum("i"),
    "time-to-live of such a key": lambda s: timed(s).key_by("t").ttl(QUARTER).count(),
    "join of records that end": lambda s: (keyed := timed(s).key_by("k").ttl(QUARTER, of="records")).join(keyed),
    "distinct of records that end": lambda s: timed(s).key_by("k").ttl(QUARTER, of="records").distinct("t"),
    "process": lambda s: timed(s).key_by("k").process(Rings),
    "vertex": lambda s: s.key_by("t").vertex(KeysOfReplica).key_by(lambda r: r[0]).count_distinct(lambda r: r[1]),
}


class KeysOfReplica(rd.Vertex):
    """Tells which moments have come to this replica."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        rows = batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
        self.send_by(0, [(record["t"].astimezone(dt.UTC), self.replica) for record in rows], time)


def told_in(zone: ZoneInfo, at: dt.datetime) -> list[dt.datetime]:
    """All datetimes of a zone that mean a moment."""
    around = [at + n * QUARTER for n in range(-6, 7)]
    walls = {one.astimezone(zone).replace(tzinfo=None, fold=0) + n * QUARTER for one in around for n in range(-4, 5)}
    told = [wall.replace(tzinfo=zone, fold=fold) for wall in sorted(walls) for fold in (0, 1)]
    return [one for one in told if one.astimezone(dt.UTC) == at]


def plain(value: Any) -> Any:
    """Moments in UTC, whatever zone or class they have."""
    if isinstance(value, dict):
        return tuple((name, plain(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%m-%d %H:%M}"
    return value


def results(epochs: list[Any], step: Callable[[rd.Stream], Any], parallelism: int, seed: int) -> Counter[Any]:
    flow = rd.Dataflow()
    step(flow.from_epochs(epochs, batch_rows=3)).collect("out")
    found = flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]
    return Counter((time.epoch, plain(record)) for time, record in found)


def epochs_of(told: list[list[tuple[int, dt.datetime]]]) -> list[list[dict[str, Any]]]:
    numbers = iter(range(100))
    return [
        [{"i": next(numbers), "k": k, "t": t, "until": (t.astimezone(dt.UTC) + HOUR).astimezone(t.tzinfo)} for k, t in some]
        for some in told
    ]


@st.composite
def told_moments(draw: st.DrawFn) -> tuple[ZoneInfo, list[list[tuple[int, dt.datetime]]]]:
    """Moments around a change of the clock of a zone, as it may tell them, in epochs."""
    zone = draw(st.sampled_from([*CHANGES]))
    change = draw(st.sampled_from(CHANGES[zone]))
    at = st.integers(-5, 5).map(lambda n: change + n * QUARTER).flatmap(lambda at: st.sampled_from(told_in(zone, at)))
    return zone, draw(st.lists(st.lists(st.tuples(st.integers(0, 1), at), min_size=1, max_size=6), min_size=1, max_size=3))


@by_turns(3)
@pytest.mark.parametrize("name", STEPS)
@examples(each_run=3, soak=25)
@given(told=told_moments(), unit=st.sampled_from(["us", "ns"]), parallelism=st.integers(1, 2), seed=st.integers(0, 99))
def test_results_in_a_zone_are_those_in_utc(name: str, told: Any, unit: str, parallelism: int, seed: int) -> None:
    zone, moments_told = told
    rows = epochs_of(moments_told)
    in_utc = [[{n: v.astimezone(dt.UTC) if isinstance(v, dt.datetime) else v for n, v in r.items()} for r in some] for some in rows]
    at = pa.timestamp(unit, str(zone))
    schema = pa.schema([("i", pa.int64()), ("k", pa.int64()), ("t", at), ("until", at)])
    columns = [pa.RecordBatch.from_pylist(some, schema) for some in rows]
    expected = results(in_utc, STEPS[name], parallelism, seed)
    assert results(rows, STEPS[name], parallelism, seed) == expected
    assert results(columns, STEPS[name], parallelism, seed) == expected
    mixed = [some if n % 2 else batch for n, (some, batch) in enumerate(zip(rows, columns, strict=True))]
    assert results(mixed, STEPS[name], parallelism, seed) == expected


def test_two_hours_are_two_windows() -> None:
    flow = rd.Dataflow()
    items = flow.from_items([{"k": 1, "t": at} for at in (TWICE, AGAIN)])
    items.assign_timestamps("t").key_by("k").window(TUMBLING).count().collect("out")
    starts = [dt.datetime(2023, 10, 29, hour, tzinfo=dt.UTC) for hour in (0, 1)]
    found = [record for _, record in flow.run(runtime="local")["out"]]
    assert found == [(1, rd.Window(start, start + HOUR), 1) for start in starts]


# -- keys ------------------------------------------------------------------------------------------
def test_keys_of_two_hours_are_two_and_tell_their_zone() -> None:
    flow = rd.Dataflow()
    flow.from_items([{"t": at} for at in (TWICE, AGAIN, NEVER)]).key_by("t").count().collect("out")
    found = {key: count for _, (key, count) in flow.run(runtime="local")["out"]}
    assert {key.astimezone(dt.UTC): count for key, count in found.items()} == {at.astimezone(dt.UTC): 1 for at in (TWICE, AGAIN, NEVER)}
    assert found == {at.astimezone(dt.UTC): 1 for at in (TWICE, AGAIN, NEVER)}, "equal to the moment in any other zone"
    assert [(str(key.tzinfo), key.fold, key.isoformat()) for key in found] == [
        ("Europe/Berlin", at.fold, at.isoformat()) for at in (TWICE, AGAIN, NEVER)
    ]
    assert array_of([*found]).type == pa.timestamp("us", "Europe/Berlin")


class Visit(NamedTuple):
    at: dt.datetime
    page: str


@dataclass(frozen=True)
class Stay:
    begin: dt.datetime
    nights: int = 1


@pytest.mark.parametrize("wrap", [lambda at: at, lambda at: (1, (at,)), lambda at: Visit(at, "x"), Stay, lambda at: frozenset([at])])
def test_a_moment_is_one_key_wherever_it_is_told(wrap: Callable[[Any], Any]) -> None:
    first, second = moment(wrap(TWICE)), moment(wrap(AGAIN))
    assert first != second
    assert type(first) is type(wrap(TWICE))
    for at, one in ((TWICE, first), (AGAIN, second)):
        in_utc = wrap(at.astimezone(dt.UTC))
        assert one == in_utc == moment(one)
        assert hash(one) == hash(in_utc)
        assert stable_hash(one) == stable_hash(in_utc)
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
    assert pickle.loads(pickle.dumps(first)) != second


@pytest.mark.parametrize("wrap", [lambda at: at, lambda at: (1, at)])
def test_keys_are_the_same_two_after_a_table_of_their_state(wrap: Callable[[Any], Any]) -> None:
    entries = Entries([moment(wrap(at)) for at in (TWICE, AGAIN)], {"value": [1, 2]})
    back = entries_of(table_of(entries), entries, "totals")
    assert dict(zip(back.keys, back.columns["value"], strict=True)) == dict(zip(entries.keys, [1, 2], strict=True))
    assert len(set(back.keys)) == 2


def test_moments_in_order() -> None:
    told = [TWICE - HOUR, TWICE, TWICE + QUARTER, AGAIN, (TWICE + QUARTER).replace(fold=1), TWICE + HOUR]
    assert sorted(moments(told[::-1])) == moments(told)
    assert [one.astimezone(dt.UTC) for one in moments(told)] == [one.astimezone(dt.UTC) for one in told]


@pytest.mark.parametrize("value", [1, "a", None, dt.date(2024, 1, 1), (1, "a"), [TWICE], TWICE - 3 * HOUR, TWICE.replace(tzinfo=dt.UTC)])
def test_all_else_stays_itself(value: Any) -> None:
    assert moment(value) is value
    assert moments([value])[0] is value


def test_a_zone_without_a_name_becomes_its_offset() -> None:
    class Summer(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(hours=2 if when is not None and not when.fold else 1)

    found = moment(TWICE.replace(tzinfo=Summer()))
    assert (found, found.tzinfo) == (TWICE.astimezone(dt.UTC), dt.timezone(2 * HOUR))


def test_a_column_of_a_zone_has_the_hashes_of_its_moments() -> None:
    moments_ = [TWICE, AGAIN, None]
    in_zone, in_utc = (pa.array(moments_, pa.timestamp("us", zone)) for zone in ("Europe/Berlin", "UTC"))
    assert hash_array(in_zone).tolist() == hash_array(in_utc).tolist() == [stable_hash(moment(at)) for at in moments_]


def test_moments_of_pandas_are_the_same_keys() -> None:
    told = [TWICE, AGAIN, NEVER]
    of_pandas = [pa.array([at], pa.timestamp("ns", "Europe/Berlin"))[0].as_py() for at in told]
    zoned = [pd.Timestamp(at) for at in told]
    assert len({*moments(of_pandas), *moments(zoned), *moments(told)}) == len(told)


@pytest.mark.parametrize("kind", [pa.timestamp("s", "UTC"), pa.timestamp("ms", "Europe/Berlin"), pa.list_(pa.timestamp("s", "UTC"))])
def test_a_column_of_another_zone_holds_the_moments(kind: pa.DataType) -> None:
    values: list[Any] = [[at] for at in (TWICE, AGAIN, NEVER)] if pa.types.is_list(kind) else [TWICE, AGAIN, NEVER]
    assert plain(array_of(values, kind).to_pylist()) == plain(values)
