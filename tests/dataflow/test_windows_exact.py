"""Windows over event time are exact, in rows and in columns: every record is in all windows that contain its time, or late, or refused.

The model is plain Python: bounds are exact multiples, rounded once where lengths are floats, and a window holds a time when
``start <= time < end`` does.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.records.event_times import plain_length, shifted
from rayad.progress import DataflowError
from tests.thorough import by_turns, examples

UTC = dt.UTC
OSLO = dt.timezone(dt.timedelta(hours=2))
MICROSECOND = dt.timedelta(microseconds=1)


# -- the model -------------------------------------------------------------------------------------


def number_of(value: Any) -> Fraction:
    """A moment or a length as a fraction; a float as its shortest decimal; of datetimes and timedeltas the microseconds."""
    if isinstance(value, pd.Timestamp):
        zero = pd.Timestamp(0, tz=UTC if value.tzinfo else None)
        return Fraction((value - zero).value, 1_000)
    if isinstance(value, pd.Timedelta):
        return Fraction(value.value, 1_000)
    if isinstance(value, dt.datetime):
        return Fraction((value - dt.datetime(1970, 1, 1, tzinfo=UTC if value.tzinfo else None)) // MICROSECOND)
    if isinstance(value, dt.date):
        return Fraction((value - dt.date(1970, 1, 1)).days * 86_400_000_000)
    if isinstance(value, dt.timedelta):
        return Fraction(value // MICROSECOND)
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


def windows_of(time: Any, size: Any, slide: Any, offset: Any) -> list[tuple[Any, Any]]:
    """Bounds as fractions; as floats if a length is a float."""
    lengths = [size, slide, 0 if offset is None else offset]
    floats = any(isinstance(length, float) for length in lengths)
    size, slide, offset = map(number_of, lengths)

    def shown(bound: Fraction) -> Any:
        return bound.numerator / bound.denominator if floats else bound

    at = time if floats else number_of(time) if not isinstance(time, float) else Fraction(time)
    around = math.floor((number_of(time) - offset) / slide)
    count = math.ceil(size / slide)
    starts = [offset + k * slide for k in range(around - count - 2, around + 3)]
    return [(shown(s), shown(s + size)) for s in starts if shown(s) <= at < shown(s + size)]


def plain(window: rd.Window, floats: bool) -> tuple[Any, Any]:
    return (window.start, window.end) if floats else (number_of(window.start), number_of(window.end))


# -- running it ------------------------------------------------------------------------------------


def counted(epochs: list[Any], windows: Any, delay: Any = None, parallelism: int = 2, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """``(key, window, n)`` and late ``(epoch, key, window, record)``."""
    flow = rd.Dataflow()
    out = flow.from_epochs(epochs, batch_rows=3).assign_timestamps("t", max_delay=delay).key_by("k").window(windows).count()
    out.collect("out")
    out.late.collect("late")
    result = flow.run(runtime="local", parallelism=parallelism, seed=seed)
    late = [(time.epoch, *record) for time, record in result["late"]]
    return [record for _, record in result["out"]], late


def as_rows(epochs: list[list[Any]]) -> list[list[Any]]:
    return [[{"k": i % 2, "t": time, "i": i} for i, time in enumerate(times)] for times in epochs]


def check(epochs: list[list[Any]], size: Any, slide: Any, offset: Any, delay: Any, kind: pa.DataType | None) -> None:
    """Rows and columns against the model, record by record."""
    windows = rd.windows.tumbling(size, offset) if slide is None else rd.windows.sliding(size, slide, offset)
    rows = as_rows(epochs)
    sources = [rows]
    if kind is not None:
        schema = pa.schema([("k", pa.int64()), ("t", kind), ("i", pa.int64())])
        columns = [pa.RecordBatch.from_pylist(some, schema=schema) for some in rows]
        sources = [columns, [batch.to_pylist() for batch in columns], [columns[0], *(batch.to_pylist() for batch in columns[1:])]]
        rows = [batch.to_pylist() for batch in columns]
    lengths = [size, size if slide is None else slide, offset]
    floats = any(isinstance(length, float) for length in lengths)
    expected: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    mark: Any = None
    for epoch, records in enumerate(rows):
        for record in records:
            for window in windows_of(utc(record["t"]), *lengths):
                end = window[1]
                if mark is not None and end <= (mark if floats else number_of(mark) if not isinstance(mark, float) else Fraction(mark)):
                    late[epoch, record["k"], window, record["i"]] += 1
                else:
                    expected[record["k"], window] += 1
        if records:
            newest = max(utc(record["t"]) for record in records)
            newest = newest if delay is None else shifted(newest, plain_length(delay), -1)
            mark = newest if mark is None else max(mark, newest)
    for source in sources:
        out, found = counted(source, windows, delay)
        assert Counter({(k, plain(w, floats)): n for k, w, n in out}) == expected
        assert Counter((e, k, plain(w, floats), record["i"]) for e, k, w, record in found) == late
        assert sum(n for *_, n in out) + len(found) == sum(expected.values()) + sum(late.values())


def utc(time: Any) -> Any:
    time = time.item() if isinstance(time, np.generic) else time
    return time.astimezone(UTC) if isinstance(time, dt.datetime) and time.tzinfo else time


DECIMALS = st.builds(lambda n, q: Decimal(n).scaleb(-q), st.integers(-4000, 4000), st.integers(0, 3))
NICE_FLOATS = st.builds(lambda n, q: n / 10**q, st.integers(-4000, 4000), st.integers(0, 3))
FLOATS = NICE_FLOATS | st.floats(-50, 50) | st.sampled_from([0.1 + 0.2, 0.7999999999999999, -0.0, 5e-324, 0.8, 0.3])
MOMENTS = st.datetimes(dt.datetime(1969, 12, 1), dt.datetime(1970, 2, 1)) | st.sampled_from([dt.datetime(1969, 12, 31, 23, 59, 59, 999999)])
SPANS = st.timedeltas(dt.timedelta(hours=-50), dt.timedelta(hours=50))
POSITIVE_SPANS = st.sampled_from([dt.timedelta(hours=h) for h in (1, 5, 7, 24)] + [MICROSECOND * 86_399_999_999])
DAYS = st.integers(1, 9).map(lambda n: dt.timedelta(days=n))
WHOLE = st.integers(1, 12)
FLOAT_LENGTHS = st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.5, 2.5, 1 / 3])
TIMES: dict[str, tuple[Any, Any, pa.DataType | None]] = {
    # event times, lengths that go with them, and the Arrow type that has both forms
    "int": (st.integers(-100, 100), WHOLE, None),
    "int, float sizes": (st.integers(-9, 9), FLOAT_LENGTHS, None),
    "int, Decimal sizes": (st.integers(-9, 9), st.sampled_from([Decimal("0.5"), Decimal("0.3")]), None),
    "float": (FLOATS, FLOAT_LENGTHS, None),
    "float, whole sizes": (FLOATS, WHOLE, None),
    "Decimal": (DECIMALS, st.sampled_from([Decimal("0.1"), Decimal("2.5"), Decimal(3)]), None),
    "Decimal, whole sizes": (DECIMALS, WHOLE, None),
    "Fraction": (st.fractions(-9, 9, max_denominator=9), st.sampled_from([Fraction(1, 3), Fraction(5, 2)]), None),
    "date": (st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1)), DAYS, None),
    "datetime": (MOMENTS, POSITIVE_SPANS, None),
    "datetime with zone": (MOMENTS.map(lambda t: t.replace(tzinfo=OSLO)), POSITIVE_SPANS, None),
    "timedelta": (SPANS, POSITIVE_SPANS, None),
    "numpy int": (st.integers(-100, 100).map(np.int32), WHOLE.map(np.int64), None),
    "numpy float": (FLOATS.map(np.float64), FLOAT_LENGTHS.map(np.float64), None),
    "pandas": (st.integers(-(10**15), 10**15).map(pd.Timestamp), POSITIVE_SPANS, None),
    **{f"{kind}": (st.integers(-100, 100), WHOLE, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{f"{kind}": (st.integers(0, 200), WHOLE, kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "int64, float sizes": (st.integers(-9, 9), FLOAT_LENGTHS, pa.int64()),
    "float16": (st.integers(-64, 64).map(lambda n: n / 8), WHOLE, pa.float16()),
    "float16, float sizes": (st.floats(-9, 9, width=16), FLOAT_LENGTHS, pa.float16()),
    "float32": (st.floats(-9, 9, width=32), FLOAT_LENGTHS, pa.float32()),
    "float64": (FLOATS, FLOAT_LENGTHS, pa.float64()),
    "float64, whole sizes": (FLOATS, WHOLE, pa.float64()),
    "decimal128": (DECIMALS, WHOLE, pa.decimal128(20, 4)),
    "decimal256": (DECIMALS, st.sampled_from([Decimal("0.1"), Decimal("2.5")]), pa.decimal256(40, 4)),
    "date32": (st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1)), DAYS, pa.date32()),
    "date64": (st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1)), DAYS, pa.date64()),
    **{f"timestamp {u}": (MOMENTS.map(lambda t: t.replace(microsecond=0)), POSITIVE_SPANS, pa.timestamp(u)) for u in ("s", "ms", "ns")},
    "timestamp us": (MOMENTS, POSITIVE_SPANS, pa.timestamp("us")),
    "timestamp ns, nanoseconds": (st.integers(-(10**15), 10**15).map(pd.Timestamp), POSITIVE_SPANS, pa.timestamp("ns")),
    "timestamp us with zone": (MOMENTS.map(lambda t: t.replace(tzinfo=OSLO)), POSITIVE_SPANS, pa.timestamp("us", "Europe/Oslo")),
    **{f"duration {u}": (SPANS.map(lambda t: dt.timedelta(t.days, t.seconds)), POSITIVE_SPANS, pa.duration(u)) for u in ("s", "ms", "ns")},
    "duration us": (SPANS, POSITIVE_SPANS, pa.duration("us")),
}


@by_turns(3)
@pytest.mark.parametrize("name", TIMES)
@examples(each_run=3, soak=5)
@given(data=st.data())
def test_every_time_is_in_exactly_the_windows_that_hold_it(name: str, data: st.DataObject) -> None:
    """tumbling(0.1) counted 40 of 100 records; sliding(0.3, 0.1) put times into 2 or 3 windows, and negative Decimals into two."""
    times, lengths, kind = TIMES[name]
    size, slide = data.draw(lengths), data.draw(st.none() | lengths)
    assume(slide is None or size / slide < 30)
    epochs = data.draw(st.lists(st.lists(times, min_size=1, max_size=7), min_size=1, max_size=3))
    check(epochs, size, slide, data.draw(st.none() | lengths), data.draw(st.none() | lengths), kind)


def test_a_hundred_times_of_a_tenth_are_in_a_hundred_windows() -> None:
    times = [i / 10 for i in range(100)]
    for source in ([as_rows([times])[0]], [pa.record_batch({"k": [0] * 100, "t": times})]):
        out, late = counted(source, rd.windows.tumbling(0.1))
        assert sorted({window for _, window, _ in out}) == [rd.Window(i / 10, (i + 1) / 10) for i in range(100)]
        assert (sum(n for *_, n in out), late) == (100, [])
        out, _ = counted(source, rd.windows.sliding(0.3, 0.1))
        assert sum(n for *_, n in out) == 300


# -- sessions --------------------------------------------------------------------------------------

SESSION_TIMES: dict[str, tuple[Any, Any, pa.DataType | None]] = {
    "int": (st.integers(-30, 30), WHOLE, pa.int64()),
    "float": (NICE_FLOATS, FLOAT_LENGTHS, pa.float64()),
    "float, whole gap": (NICE_FLOATS, WHOLE, pa.float64()),
    "int, float gap": (st.integers(-9, 9), FLOAT_LENGTHS, pa.int32()),
    "Decimal": (DECIMALS, st.sampled_from([Decimal("0.1"), Decimal(3)]), pa.decimal128(20, 4)),
    "date": (st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1)), DAYS, pa.date32()),
    "ns": (st.integers(-9000, 9000).map(pd.Timestamp), st.sampled_from([MICROSECOND, 3 * MICROSECOND]), pa.timestamp("ns")),
    "us": (st.integers(-9, 9).map(lambda n: dt.datetime(1970, 1, 1) + n * MICROSECOND), st.just(2 * MICROSECOND), pa.timestamp("us")),
    "duration ns": (st.integers(-9000, 9000).map(pd.Timedelta), st.just(MICROSECOND), pa.duration("ns")),
}


@pytest.mark.parametrize("name", SESSION_TIMES)
@settings(max_examples=8)
@given(data=st.data())
def test_sessions_merge_records_within_the_gap_and_no_others(name: str, data: st.DataObject) -> None:
    """Sessions with a gap of 1 us over timestamp[ns] columns merged records that were separate sessions in rows."""
    some, gaps, kind = SESSION_TIMES[name]
    gap = data.draw(gaps)
    times = data.draw(st.lists(some, min_size=1, max_size=12))
    expected: Counter[Any] = Counter()
    for key in (0, 1):
        mine = sorted(number_of(t) for t in times[key::2])
        while mine:
            run = [mine.pop(0)]
            while mine and mine[0] - run[-1] <= number_of(gap):
                run.append(mine.pop(0))
            end = run[-1] + number_of(gap)
            floats = isinstance(times[0], float) or isinstance(gap, float)
            expected[key, run[0], number_of(float(end)) if floats else end] = len(run)
    schema = pa.schema([("k", pa.int64()), ("t", kind), ("i", pa.int64())])
    batch = pa.RecordBatch.from_pylist(as_rows([times])[0], schema=schema)
    for source in ([batch], [batch.to_pylist()]):
        out, late = counted(source, rd.windows.session(gap))
        assert Counter({(k, number_of(w.start), number_of(w.end)): n for k, w, n in out}) == expected
        assert late == []


# -- refused ---------------------------------------------------------------------------------------

ODD: dict[str, tuple[Any, Any, str]] = {
    "NaN": (float("nan"), 1, "is nan: every record needs one; filter such records out first"),
    "null": (None, 1, "is None: every record needs one; filter such records out first"),
    "infinite": (-math.inf, 0.1, "is -inf: that is in no window; filter such records out first"),
    "infinite Decimal": (Decimal("inf"), 1, "is Decimal('Infinity'): that is in no window"),
    "signalling NaN": (Decimal("sNaN"), 1, "is Decimal('sNaN'): that is in no window"),
    "NaT": (pd.NaT, dt.timedelta(1), "is NaT: every record needs one"),
    "NaT of numpy": (np.datetime64("NaT"), dt.timedelta(1), "is None: every record needs one"),
    "text": ("12", 1, "is '12' (str): it must be a number, a date, a datetime or a timedelta; convert it first"),
    "bool": (True, 1, "is True (bool): it must be a number"),
    "list": ([1], 1, "is [1] (list): it must be a number"),
    "time of day": (dt.time(9), dt.timedelta(1), "a time of day is no moment: put it together with its date"),
    "date, hours": (dt.date(2024, 5, 1), dt.timedelta(hours=5), "is a date, and the windows are not of whole days"),
    "date, number": (dt.date(2024, 5, 1), 7, "does not go with windows whose lengths are ints: such windows are for"),
    "number, hours": (7, dt.timedelta(hours=5), "does not go with windows whose lengths are timedeltas"),
    "Decimal, float": (Decimal(1), 0.1, "(Decimal) does not go with windows whose lengths are floats"),
    "beyond year 9999": (dt.datetime.max, dt.timedelta(1), "begins or ends beyond the moments that there are"),
    "before year 1": (dt.date.min, dt.timedelta(7), "begins or ends beyond the moments that there are"),
    "int beyond floats": (2**60, 0.1, "is beyond what floats tell apart"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_time_that_no_window_can_hold_is_refused(name: str) -> None:
    """Records with infinite times were lost, and date32 columns crashed."""
    time, size, message = ODD[name]
    for windows in (rd.windows.tumbling(size), rd.windows.session(size)):
        if "begins" in message and windows != rd.windows.tumbling(size):
            continue
        if "beyond what floats" in message and windows != rd.windows.tumbling(size):
            message = "no later in floats"
            continue
        with pytest.raises(DataflowError) as error:
            counted([[{"k": 1, "t": time}]], windows)
        assert message in str(error.value)


COLUMNS: dict[str, tuple[pa.Array, Any, str]] = {
    "null": (pa.array([1, None]), 3, "1 event times are null: every record needs one; filter such records out first"),
    "NaN": (pa.array([1.0, math.nan]), 3, "1 event times are NaN or infinite: they are in no window; filter such records out first"),
    "infinite": (pa.array([1.0, math.inf, -math.inf]), 0.5, "2 event times are NaN or infinite"),
    "half infinite": (pa.array([np.float16("inf")], pa.float16()), 3, "1 event times are NaN or infinite"),
    "time32": (pa.array([dt.time(1)], pa.time32("s")), dt.timedelta(1), "a time of day is no moment"),
    "time64": (pa.array([dt.time(1)], pa.time64("ns")), dt.timedelta(1), "a time of day is no moment"),
    "text": (pa.array(["1"]), 3, "is '1' (str): it must be a number"),
    "seconds beyond int64 microseconds": (pa.array([1 << 62]).view(pa.timestamp("s")), dt.timedelta(1), "beyond the years 1 to 9999"),
    "before year 1": (pa.array([-(1 << 55)]).view(pa.timestamp("ms")), dt.timedelta(1), "beyond the years 1 to 9999"),
    "date, hours": (pa.array([dt.date(2024, 5, 1)]), dt.timedelta(hours=5), "is a date, and the windows are not of whole days"),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_times_that_no_window_can_hold_is_refused(name: str) -> None:
    times, size, message = COLUMNS[name]
    for windows in (rd.windows.tumbling(size), rd.windows.session(size)):
        with pytest.raises(DataflowError) as error:
            counted([pa.record_batch({"k": [1] * len(times), "t": times})], windows)
        by_row = {"NaN": "is nan: every record needs one", "infinite": "that is in no window", "half infinite": "that is in no window"}
        row = by_row.get(name, message)
        assert message in str(error.value) or row in str(error.value)


def test_sliding_windows_that_floats_cannot_tell_apart_are_refused() -> None:
    for source in ([[{"k": 0, "t": 1e17}]], [pa.record_batch({"k": [0], "t": [1e17]})]):
        with pytest.raises(DataflowError, match="are too close for floats: give times and sizes as ints or Decimals"):
            counted(source, rd.windows.sliding(30.0, 0.5))
        out, _ = counted(source, rd.windows.tumbling(0.1))
        assert [(w.start <= 1e17 < w.end, n) for _, w, n in out] == [(True, 1)]


def test_times_at_the_limits_of_64_bits_are_exact() -> None:
    times = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**61, -(2**61), 0]
    for batch in (pa.record_batch({"k": [0] * 6, "t": times}), pa.record_batch({"k": [0, 0], "t": pa.array([2**64 - 1, 5], pa.uint64())})):
        for source in ([batch], [batch.to_pylist()]):
            out, _ = counted(source, rd.windows.tumbling(10))
            expected = Counter(rd.Window(t // 10 * 10, t // 10 * 10 + 10) for t in batch.column("t").to_pylist())
            assert Counter({window: n for _, window, n in out}) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rd.windows.tumbling(float("inf")), "window size is inf: it must be a positive number or timedelta"),
        (lambda: rd.windows.session(float("nan")), "session gap is nan: it must be a positive number or timedelta"),
        (lambda: rd.windows.tumbling(pd.Timedelta(1500)), "window size is Timedelta('0 days 00:00:00.000001500'): it must be a positive"),
        (
            lambda: rd.windows.sliding(0.5, Decimal("0.1")),
            "the lengths 0.5, Decimal('0.1') of windows do not go together: give sizes, slides, offsets and max_delay as numbers of one "
            "kind (ints go with all), or all as timedeltas",
        ),
        (
            lambda: rd.Dataflow().from_items([]).assign_timestamps("t", max_delay=5).window(rd.windows.session(dt.timedelta(1))),
            "the lengths datetime.timedelta(days=1), 5 of windows do not go together",
        ),
    ],
)  # fmt: skip
def test_lengths_that_do_not_go_together_are_refused_when_the_program_is_written(make: Any, message: str) -> None:
    with pytest.raises(DataflowError) as error:
        make()
    assert message in str(error.value)


def test_lengths_may_be_scalars_of_numpy_and_pandas() -> None:
    """tumbling(np.int64(10)) was refused."""
    assert rd.windows.tumbling(np.int64(10)) == rd.windows.tumbling(10)
    assert rd.windows.sliding(np.float32(0.5), np.float64(0.25)) == rd.windows.sliding(0.5, 0.25)
    hours = rd.windows.session(dt.timedelta(hours=2))
    assert rd.windows.session(np.timedelta64(2, "h")) == rd.windows.session(pd.Timedelta(hours=2)) == hours


def test_event_times_that_do_not_compare_are_refused() -> None:
    size = dt.timedelta(1)
    for times in ([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC)], [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)]):
        with pytest.raises(DataflowError, match=r"do not compare: .*; bring event times that meet to one kind"):
            counted(as_rows([times]), rd.windows.tumbling(size))
        with pytest.raises(DataflowError, match=r"do not compare: .*; bring event times that meet to one kind"):
            counted(as_rows([[times[0]], [times[1]]]), rd.windows.tumbling(size))
