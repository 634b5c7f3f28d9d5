"""Every operator with keyed state: how it is made, and steps that drive it. Add a new operator here: then
``test_laws_of_keyed_vertices.py`` covers it."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rayad.dataflow.operators.aggregates.aggregators import Sum
from rayad.dataflow.operators.distinct import Distinct, OnceInBatch
from rayad.dataflow.operators.head import Head
from rayad.dataflow.operators.joins.asof import AsOfJoin
from rayad.dataflow.operators.joins.broadcast import BroadcastJoin
from rayad.dataflow.operators.joins.intervals import IntervalJoin, JoinOfRecordsThatEnd
from rayad.dataflow.operators.joins.join import Join
from rayad.dataflow.operators.joins.windowed import WindowJoin
from rayad.dataflow.operators.lag import Lag
from rayad.dataflow.operators.latest import Latest
from rayad.dataflow.operators.process import KeyedProcess, Process, ProcessContext
from rayad.dataflow.operators.processing_time import StampRecords, TagBatches
from rayad.dataflow.operators.state.contents import originals
from rayad.dataflow.operators.state.vertex_tables import tables_in
from rayad.dataflow.operators.stateful_map import StatefulMap
from rayad.dataflow.operators.time_to_live import KeysEnd, KeysEndSendingAtEnd, Ttl
from rayad.dataflow.operators.totals.epochs import EpochWindows
from rayad.dataflow.operators.totals.tables import TableAtEnd, TableChanges, TableEvery
from rayad.dataflow.operators.totals.totals import EpochTotals, Fold, Totals
from rayad.dataflow.operators.values_that_end import DistinctOfRecords, TimedValues
from rayad.dataflow.operators.windows.best import BestOfBatch, BestRecords, EpochBest
from rayad.dataflow.operators.windows.counted import CountedWindows
from rayad.dataflow.operators.windows.firing import EventWindows
from rayad.dataflow.operators.windows.late_records import LateRecords, LateSessionRecords, PlaceRecords, PlaceRows
from rayad.dataflow.operators.windows.told_times import TellTimes
from rayad.dataflow.operators.windows.updating import UpdatingWindows
from rayad.dataflow.operators.windows.watermark_rules import WatermarkRule
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, whole_record
from rayad.dataflow.vertex import Vertex
from rayad.dataflow.windows import AsOf, Counted
from tests.dataflow import broadcast_joins
from tests.dataflow import test_state_of_keyed_operators as keyed_operators
from tests.dataflow import test_state_of_totals as totals
from tests.dataflow import test_state_of_windows as windows
from tests.dataflow.driven import Step, plain, plain_state, steps_with

Steps = st.SearchStrategy[list[Step]]
FORMS = {"columns": (True, False), "rows": (False, True), "both": (True, True)}


@dataclass(frozen=True)
class Keyed:
    """One operator with arguments of its own.

    Args:
        steps: what to drive it with.
        view: the part of its state that must be equal in all runs of the same steps.
        broadcast: the ports whose batches go to all replicas.
        all_in_tables: whether tables tell all of it; that an input has ended they do not.
    """

    name: str
    make: Callable[[], Vertex]
    steps: Callable[[], Steps]
    view: Callable[[Any], Any] = plain_state
    broadcast: frozenset[int] = frozenset()
    all_in_tables: bool = True


def _pairs(first: int) -> Steps:
    return steps_with(keyed_operators.PAIRS, first=[(0, [(key, first) for key in keyed_operators.KEYS])])


def _distinct_batches(columns: bool, rows: bool, whole: bool) -> st.SearchStrategy[tuple[int, Any]]:
    """What senders make of records with text, NaN and null, or of whole such records."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
    value = ValueSelector(function=whole_record) if whole else ValueSelector(column="v")
    keys, values, texts = [*range(8), None], [0.0, 1.5, float("nan"), None], ["", "xyz", None]
    record = st.fixed_dictionaries({"k": st.sampled_from(keys), "v": st.sampled_from(values), "s": st.sampled_from(texts)})

    def sent(some: list[Any], columnar: bool) -> tuple[int, Any]:
        batch = pa.RecordBatch.from_pylist(some, schema=schema) if columnar else some
        return 0, OnceInBatch(KeySelector(columns=("k",)), value).apply(batch)

    kinds = st.sampled_from([True] * 5 * columns + [False] * rows)
    return st.builds(sent, st.lists(record, min_size=1, max_size=5), kinds)


def _distinct(form: str, *, whole: bool) -> Keyed:
    batches = _distinct_batches(*FORMS[form], whole)

    def view(vertex: Any) -> Any:
        copy = Distinct()
        copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
        copy.seen.to_rows()
        return sorted(map(repr, originals(copy.seen.rows.kept))), plain(vertex.checkpoint()["pending"])

    what = "records" if whole else "values"
    return Keyed(f"Distinct, {what} in {form}", Distinct, lambda: batches.flatmap(lambda one: steps_with(batches, first=[one])), view)


def _distinct_that_ends(form: str) -> Keyed:
    batches = _distinct_batches(*FORMS[form], False)
    element = OnceInBatch(KeySelector(columns=("k",)), ValueSelector(column="v"))
    some = [{"k": k, "v": 1.5, "s": None} for k in range(8)]
    first = element.apply(pa.RecordBatch.from_pylist(some) if FORMS[form][0] else some)
    return _keys_end(f"Distinct in {form}", Distinct, batches, [(0, first)], [*range(8), None])


def _best(columnar: bool) -> Keyed:
    value = windows.VALUE if columnar else ValueSelector(function=lambda row: row["v"])
    best = BestRecords(value, largest=False)
    batches = windows.RECORDS.map(lambda some: (0, windows.sent(BestOfBatch(windows.KEY, best), some, columnar)))
    return Keyed(f"EpochBest in {'columns' if columnar else 'rows'}", lambda: EpochBest(best), lambda: steps_with(batches))


def _late(how: str) -> Keyed:
    element = PlaceRecords(windows.KEY, windows.TIMES, windows.WINDOWS[how])
    batches = st.tuples(st.just(0), st.builds(lambda some, columnar: windows.sent(element, some, columnar), windows.RECORDS, st.booleans()))
    times = st.tuples(st.just(1), windows.RECORDS.map(TellTimes(windows.TIMES).apply))
    steps = steps_with(st.one_of(batches, times).filter(lambda pair: len(pair[1]) > 0), first=[(1, [10])])

    def view(vertex: Any) -> Any:
        return sorted(vertex.pending), vertex.marks.checkpoint()

    return Keyed(f"LateRecords, {how}", lambda: LateRecords(windows.WINDOWS[how], (2,)), lambda: steps, view, frozenset({1}))


def _late_of_sessions() -> Keyed:
    element = PlaceRecords(windows.KEY, windows.TIMES, windows.WINDOWS["session"])
    batches = st.tuples(st.just(0), st.builds(lambda some, columnar: windows.sent(element, some, columnar), windows.RECORDS, st.booleans()))
    times = st.tuples(st.just(1), windows.RECORDS.map(TellTimes(windows.TIMES).apply))
    first = [(0, windows.sent(element, windows.FIRST, columnar=True)), (1, [25])]
    steps = steps_with(st.one_of(batches, times).filter(lambda pair: len(pair[1]) > 0), first=first)

    def make() -> LateSessionRecords:
        return LateSessionRecords(windows.WINDOWS["session"], (2,))

    def view(vertex: Any) -> Any:
        copy = make()
        copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
        copy.open.to_rows()
        sessions = {key: sorted(some) for key, some in copy.open.rows.sessions.items()}
        return sessions, copy.marks.checkpoint(), {time: windows.waiting(some) for time, some in copy.pending.items()}

    return Keyed("LateSessionRecords", make, lambda: steps, view, frozenset({1}))


def _late_of_parts() -> Keyed:
    element = PlaceRecords(windows.KEY, windows.TIMES, windows.WINDOWS["tumbling"])
    of_part = TellTimes(windows.TIMES, windows.VALUE)
    batches = windows.RECORDS.map(lambda some: (0, windows.sent(element, some, True)))
    times = st.tuples(st.just(1), windows.RECORDS.map(of_part.apply))
    steps = steps_with(st.one_of(batches, times).filter(lambda pair: len(pair[1]) > 0), first=[(1, [(0, 10)])])
    rule = WatermarkRule(2, per_part=True, idle_epochs=2)

    def view(vertex: Any) -> Any:
        return sorted(vertex.pending), vertex.marks.checkpoint()

    return Keyed("LateRecords, per part", lambda: LateRecords(windows.WINDOWS["tumbling"], (rule,)), lambda: steps, view, frozenset({1}))


def _late_ahead() -> Keyed:
    element = PlaceRecords(windows.KEY, windows.TIMES, windows.WINDOWS["tumbling"])
    batches = windows.RECORDS.map(lambda some: (0, windows.sent(element, some, True)))
    times = st.tuples(st.just(1), windows.RECORDS.map(TellTimes(windows.TIMES, max_ahead=3).apply))
    steps = steps_with(st.one_of(batches, times).filter(lambda pair: len(pair[1]) > 0), first=[(1, [(0, 3)])])
    rule = WatermarkRule(1, max_ahead=3)

    def view(vertex: Any) -> Any:
        return sorted(vertex.pending), vertex.marks.checkpoint()

    return Keyed("LateRecords, max_ahead", lambda: LateRecords(windows.WINDOWS["tumbling"], (rule,)), lambda: steps, view, frozenset({1}))


def _windows(how: str, aggregator: str, form: str) -> Keyed:
    made = windows.AGGREGATORS[aggregator]

    def make() -> EventWindows:
        return EventWindows(made(), windows.WINDOWS[how], (4,))

    steps = partial(windows.window_steps, windows.element_of(how, made()), *FORMS[form])
    return Keyed(f"EventWindows, {how}, {aggregator}, {form}", make, steps, windows.view_of(make), frozenset({1}))


def _updating(lateness: int | None, early: bool, how: str, aggregator: str, form: str) -> Keyed:
    made = windows.AGGREGATORS[aggregator]

    def make() -> UpdatingWindows:
        return UpdatingWindows(made(), windows.WINDOWS[how], (2,), lateness, early)

    def view(vertex: UpdatingWindows) -> Any:
        kept = [(window, key, a) for windows in (vertex.open, vertex.fired) for window, of in windows.open.items() for key, a in of.items()]
        results = [(window, key, vertex.aggregator.emitted(a)) for window, key, a in kept]
        plain = sorted(repr((w, key, sorted(map(repr, value)) if isinstance(value, list) else value)) for w, key, value in results)
        return plain, vertex.marks.checkpoint(), {time: windows.waiting(rows) for time, (rows, _) in vertex.pending.items()}

    steps = partial(windows.window_steps, windows.element_of(how, made()), *FORMS[form])
    return Keyed(f"UpdatingWindows, {lateness}, {early}, {how}, {aggregator}, {form}", make, steps, view, frozenset({1}))


def _asof_join(direction: Any, tolerance: int | None, exact: bool, form: str) -> Keyed:
    steps = partial(windows.join_steps, *FORMS[form], windows.TIMED)
    make = partial(AsOfJoin, AsOf(tolerance, exact, direction), (2, 6), "left")
    return Keyed(f"AsOfJoin, {direction}, {tolerance}, {exact}, {form}", make, steps, windows.view_of_asof_join, frozenset({2, 3}))


def _totals(name: str, keys: str, form: str) -> Keyed:
    steps = partial(totals.steps, name, keys, *FORMS[form])
    return Keyed(f"Totals, {name} of {keys}, {form}", lambda: Totals(totals.AGGREGATORS[name]()), steps)


def _keys_end(
    name: str, made: Callable[[], Any], data: st.SearchStrategy[Any], first: list[Any], keys: Any, inputs: int = 1, kind: Any = KeysEnd
) -> Keyed:
    """Around an operator with the keys of which there are event times."""
    of_keys = st.lists(st.tuples(st.sampled_from(keys), st.integers(0, 40)), min_size=1, max_size=6)
    moments = st.tuples(st.integers(inputs, 2 * inputs - 1), of_keys)
    largest = st.tuples(st.just(2 * inputs), st.lists(st.integers(0, 40), min_size=1, max_size=1))
    begin = [*first, (inputs, [(key, 3) for key in keys]), (2 * inputs, [4])]

    def steps() -> Steps:
        return steps_with(st.one_of(data, data, moments, moments, largest), first=begin)

    def make() -> KeysEnd:
        return kind(made, Ttl(5), (2,), inputs)  # type: ignore[no-any-return]

    def view(vertex: Any) -> Any:
        """As tables, whatever form the state has."""
        copy = make()
        copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
        tables = {name: table.entries for name, table in tables_in(copy).items()}
        rows = {name: sorted(map(repr, zip(each.keys, *each.columns.values(), strict=True))) for name, each in tables.items()}
        return rows, copy.marks.checkpoint()

    return Keyed(f"KeysEnd, {name}", make, steps, view, frozenset({2 * inputs}))


def _totals_that_end(name: str, keys: str, form: str) -> Keyed:
    columns, rows = FORMS[form]
    records = st.lists(st.tuples(st.sampled_from(totals.KEYS[keys]), totals.VALUES), min_size=1, max_size=6)
    schema = pa.schema([("k", pa.int64() if keys == "numbers" else pa.string()), ("v", pa.int64())])
    aggregator = totals.AGGREGATORS[name]()
    schemas = [schema] * (columns and bool(aggregator.partials)) + [None] * (rows or not aggregator.partials)
    data = st.builds(lambda some, kind: totals.combined(aggregator, some, kind, name), records, st.sampled_from(schemas))
    first = totals.combined(aggregator, [(key, 1) for key in totals.KEYS[keys][:16]], schemas[0], name)
    return _keys_end(
        f"{name} of {keys}, {form}", lambda: Totals(totals.AGGREGATORS[name]()), data.filter(lambda batch: len(batch[1]) > 0), [first],
        totals.KEYS[keys][:18],
    )  # fmt: skip


def _pairs_that_end(name: str, made: Callable[[], Any]) -> Keyed:
    first = (0, [(key, 1) for key in keyed_operators.KEYS])
    return _keys_end(name, made, keyed_operators.PAIRS.filter(lambda batch: len(batch[1]) > 0), [first], keyed_operators.KEYS)


def _join_that_ends() -> Keyed:
    data = st.tuples(st.integers(0, 1), keyed_operators.PAIRS).map(lambda pair: (pair[0], pair[1][1])).filter(lambda pair: len(pair[1]) > 0)
    first = [(edge, [(key, 1) for key in keyed_operators.KEYS]) for edge in (0, 1)]
    return _keys_end("Join", Join, data, first, keyed_operators.KEYS, 2)


class Counts(Process):
    """How many records a key had until it was silent."""

    def on_record(self, key: Any, record: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(context.time + 4)

    def on_timer(self, key: Any, context: ProcessContext) -> None:
        context.emit((context.time, context.state))
        if not context.timers:
            context.state = None


def _table(kind: Any, keys_end: bool, every: int = 0) -> Keyed:
    """Updates, each key once in a batch, and keys that have ended; where the table is shown every few epochs, that there is something."""
    pairs = st.dictionaries(st.sampled_from(keyed_operators.KEYS), st.integers(-3, 3), min_size=1, max_size=4)
    updates = pairs.map(lambda some: (0, list(some.items())))
    ended = pairs.map(lambda some: (1, [(key, None) for key in some]))
    batches = st.one_of(updates, updates, ended) if keys_end else updates
    first = [(0, [(key, 0) for key in keyed_operators.KEYS])]
    told, arguments = 1 + keys_end, {"keys_end": keys_end} | ({"every": every} if every else {})

    def with_told(steps: list[Step]) -> list[Step]:
        out: list[Step] = []
        for step in steps:
            out.append(step)
            if step[0] == "recv" and every:
                out.append(("recv", told + step[1], [0], step[3]))
        return out

    def at_its_end(epoch: int) -> int:
        return epoch - epoch % every + every - 1

    steps = steps_with(batches, first=first, later=at_its_end if every else None).map(with_told)

    def view(vertex: Any) -> Any:
        """As tables, whatever the marks of its keys come from."""
        rows = {name: sorted(map(repr, zip(t.keys, *t.columns.values(), strict=True))) for name, t in vertex.last.entries().items()}
        return rows, {time: [sorted(map(repr, some)) for some in both] for time, both in vertex.pending.items()}

    name = f"{kind.__name__}{f' {every}' * bool(every)}{' whose keys end' * keys_end}"
    return Keyed(name, partial(kind, **arguments), lambda: steps, view, frozenset({told, told + 1}) if every else frozenset())


def _process() -> Keyed:
    element = PlaceRows(windows.KEY, windows.TIMES, None)
    batches = windows.RECORDS.map(lambda some: (0, element.apply(some)))
    times = st.tuples(st.just(1), windows.RECORDS.map(TellTimes(windows.TIMES).apply))
    first = [(0, element.apply(windows.FIRST)), (1, [22])]
    steps = partial(steps_with, st.one_of(batches, batches, times), first=first)
    return Keyed("KeyedProcess", lambda: KeyedProcess(Counts, (2,)), steps, _process_view, frozenset({1}))


def _stamped(form: str) -> Keyed:
    """Batches have a few tags; readings come to all replicas, those of later epochs perhaps smaller."""
    element = TagBatches("at")

    def batch(numbers: list[int], tag: int, columns: bool) -> tuple[int, Any]:
        rows = [{"v": number} for number in numbers]
        element.turn = tag
        return 0, element.apply(pa.RecordBatch.from_pylist(rows) if columns else rows)

    kinds = st.sampled_from([True] * FORMS[form][0] + [False] * FORMS[form][1])
    batches = st.builds(batch, st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(0, 30), kinds)
    moments = st.integers(0, 90).map(lambda second: EPOCH_UTC + dt.timedelta(seconds=second))
    readings = st.tuples(st.just(1), st.lists(moments, min_size=1, max_size=2))
    first = [batch([7, 8], 5, FORMS[form][0]), (1, [EPOCH_UTC + dt.timedelta(seconds=9)])]
    steps = partial(steps_with, st.one_of(batches, batches, readings), first=first)
    return Keyed(f"StampRecords, {form}", lambda: StampRecords("at"), steps, lambda vertex: vertex.readings.latest, frozenset({1}))


def _counted(aggregator: str) -> Keyed:
    made = windows.AGGREGATORS[aggregator]
    element = PlaceRows(windows.KEY, windows.TIMES, None)
    whole = ValueSelector(function=(lambda row: (row["v"],) * 2) if aggregator == "several" else (lambda row: row["v"]))
    value = ValueSelector(function=whole_record) if aggregator in ("max_by", "top_k by t") else whole

    def make() -> CountedWindows:
        return CountedWindows(made(), Counted(3), value, ())

    def view(vertex: Any) -> Any:
        kept = {
            key: (count, sorted(map(repr, some)) if isinstance(some, list) else some) for key, (count, some) in vertex.open.kept.items()
        }
        return kept, {time: windows.waiting(some) for time, some in vertex.pending.items()}

    steps = partial(steps_with, windows.RECORDS.map(lambda some: (0, element.apply(some))), first=[(0, element.apply(windows.FIRST))])
    return Keyed(f"CountedWindows, {aggregator}", make, steps, view)


def _process_view(vertex: Any) -> Any:
    waiting = {time: [windows.waiting(some) for some in both] for time, both in vertex.pending.items()}
    return sorted((key, state, list(timers)) for key, (state, timers) in vertex.state.kept.items()), vertex.marks.checkpoint(), waiting


def _epochs(kind: Any) -> Keyed:
    return Keyed(kind.__name__, lambda: kind(Sum()), partial(totals.steps, "sum", "names", True, True))


def _join(how: str, form: str) -> Keyed:
    return Keyed(f"Join, {how}, {form}", Join, partial(keyed_operators.join_steps, how, *FORMS[form]), keyed_operators.kept)


def _broadcast_join(form: str) -> Keyed:
    steps = partial(broadcast_joins.steps, *FORMS[form])
    return Keyed(f"BroadcastJoin, {form}", BroadcastJoin, steps, broadcast_joins.view, broadcast_joins.BROADCAST)


def _broadcast_join_that_ends(form: str) -> Keyed:
    steps = partial(broadcast_joins.steps_to_the_end, *FORMS[form])
    return Keyed(f"BroadcastJoin that ends, {form}", BroadcastJoin, steps, broadcast_joins.small_side, broadcast_joins.BROADCAST, False)


def _window_join(window: str, how: Any, form: str) -> Keyed:
    steps = partial(windows.join_steps, *FORMS[form])
    make = partial(WindowJoin, windows.WINDOWS[window], (2, 6), how)
    return Keyed(f"WindowJoin, {how}, {window}, {form}", make, steps, windows.view_of_join, frozenset({2, 3}))


def _join_of_records(form: str) -> Keyed:
    steps = partial(windows.join_steps, *FORMS[form], windows.TIMED)
    make = partial(JoinOfRecordsThatEnd, windows.INTERVAL, (2, 6))
    return Keyed(f"JoinOfRecordsThatEnd, {form}", make, steps, windows.view_of_interval_join, frozenset({2, 3}))


def _distinct_of_records() -> Keyed:
    element = TimedValues(windows.KEY, windows.VALUE, windows.TIMES)
    batches = windows.RECORDS.map(lambda some: (0, element.apply(some)))
    times = st.tuples(st.just(1), windows.RECORDS.map(TellTimes(windows.TIMES).apply))
    steps = partial(steps_with, st.one_of(batches, batches, times), first=[(0, element.apply(windows.FIRST)), (1, [22])])

    def view(vertex: Any) -> Any:
        seen = {key: sorted(map(repr, some.items())) for key, some in vertex.seen.kept.items()}
        return seen, vertex.marks.checkpoint(), {time: windows.waiting(some) for time, some in vertex.pending.items()}

    return Keyed("DistinctOfRecords", lambda: DistinctOfRecords(5, (2,)), steps, view, frozenset({1}))


def _interval_join(how: Any, form: str) -> Keyed:
    steps = partial(windows.join_steps, *FORMS[form], windows.TIMED)
    make = partial(IntervalJoin, windows.INTERVAL, (2, 6), how)
    return Keyed(f"IntervalJoin, {how}, {form}", make, steps, windows.view_of_interval_join, frozenset({2, 3}))


ALL = [
    Keyed("Distinct", Distinct, partial(_pairs, 0)),
    *(_distinct(form, whole=whole) for form in FORMS for whole in (False, True)),
    Keyed(
        "StatefulMap",  # forgets keys
        lambda: StatefulMap(lambda kept, value: ([*kept, value] if value else None, len(kept)), list),
        partial(_pairs, 1),
    ),
    Keyed(
        "Fold",
        lambda: Fold(list, lambda kept, value: [*kept, value]),
        lambda: steps_with(totals.FOLDED, first=[(0, [(key, 0) for key in "abcdefg"])]),
    ),
    Keyed("Lag", lambda: Lag(abs), partial(_pairs, 0)),
    Keyed("Latest", lambda: Latest(abs), partial(_pairs, 0)),
    Keyed("Head", lambda: Head(2, abs), partial(_pairs, 0)),
    *(_totals(name, keys, form) for name in totals.AGGREGATORS for keys in totals.KEYS for form in FORMS),
    *(_totals_that_end(name, keys, form) for name in ("count", "sum", "several", "last") for keys in totals.KEYS for form in FORMS),
    _pairs_that_end("Distinct", Distinct),
    *(_distinct_that_ends(form) for form in FORMS),
    _pairs_that_end("Lag", lambda: Lag(abs)),
    _pairs_that_end("Head", lambda: Head(2, abs)),
    _pairs_that_end("StatefulMap", lambda: StatefulMap(lambda kept, value: (kept + value or None, kept), int)),
    *(_table(kind, keys_end) for kind in (TableChanges, TableAtEnd) for keys_end in (False, True)),
    *(_table(TableEvery, keys_end, every) for keys_end in (False, True) for every in (1, 3)),
    _process(),
    *(_stamped(form) for form in FORMS),
    *(_counted(aggregator) for aggregator in windows.AGGREGATORS),
    _join_that_ends(),
    _keys_end(
        "Latest",
        lambda: Latest(abs),
        keyed_operators.PAIRS.filter(lambda batch: len(batch[1]) > 0),
        [(0, [(key, 1) for key in keyed_operators.KEYS])],
        keyed_operators.KEYS,
        kind=KeysEndSendingAtEnd,
    ),
    _epochs(EpochTotals),
    _epochs(EpochWindows),
    *(_join(how, form) for how in keyed_operators.JOINS for form in FORMS),
    *(_windows(how, aggregator, form) for how in windows.WINDOWS for aggregator in windows.AGGREGATORS for form in FORMS),
    *(
        _window_join(window, how, form)
        for window, how in (("tumbling", "inner"), ("sliding", "inner"), ("sliding", "full"))
        for form in FORMS
    ),
    *(_broadcast_join(form) for form in FORMS),
    *(_broadcast_join_that_ends(form) for form in FORMS),
    *(_join_of_records(form) for form in FORMS),
    _distinct_of_records(),
    *(_interval_join(how, form) for how in ("inner", "full", "semi") for form in FORMS),
    *(
        _asof_join(*rule, form)
        for rule in (("backward", 7, True), ("forward", None, True), ("nearest", None, False), ("nearest", 7, True))
        for form in FORMS
    ),
    *(
        _updating(lateness, early, how, aggregator, form)
        for lateness, early in ((9, False), (None, True), (9, True))
        for how, aggregator in (("tumbling", "sum"), ("sliding", "several"), ("given", "sum"))
        for form in FORMS
    ),
    _best(True),
    _best(False),
    *(_late(how) for how in ("tumbling", "given")),
    _late_of_sessions(),
    _late_of_parts(),
    _late_ahead(),
]
