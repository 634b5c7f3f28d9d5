"""The law of reads for operators of collections: whatever moves meanwhile, an epoch is read as the sum of all that had been given when it
was over, in rows, in columns, and where columns become rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.state import group_index, touched_keys
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.windows import AsOf
from rayad.incremental import aggregating, functions, ranking, reads
from rayad.incremental.columns import grouped, linear, ordered
from rayad.incremental.columns.thresholds import Threshold
from rayad.incremental.event_time import columns
from rayad.incremental.event_time.functions import Latest
from rayad.incremental.inputs.sources import Present, Upsert
from rayad.incremental.joins.arranging import SharedJoin
from rayad.incremental.joins.join import Join
from rayad.incremental.joins.kinds import HOWS, KINDS, Side
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.outputs.unique import Unique
from rayad.incremental.reads import CollectionAtEpochs
from rayad.incremental.records import Row, as_record
from rayad.incremental.reducing import Reduce, distinct
from rayad.incremental.steps import Field
from tests.dataflow.driven import Driven, Step, steps_with
from tests.dataflow.moving import KEY_GROUPS
from tests.dataflow.reading import History, check_reads, rows_of
from tests.incremental.moments_driven import columns_of
from tests.thorough import amount, by_turns

Change = tuple[Any, Any, int]
FORMS = ("rows", "columns", "both")
QUICK = {"phases": (Phase.explicit, Phase.reuse, Phase.generate)}
"""A failure is told as it is: making it smaller takes minutes."""


@dataclass(frozen=True)
class Law:
    """An operator, what comes to it, and what its tables are.

    Args:
        value: of a key and a number, a value of an input.
        counts: whether its table has keys and counts alone.
        inputs: the tables of its inputs, with their numbers.
        once: the inputs that have a key once at most.
        table: the name of that of its results.
        has_columns: whether it has a form in columns.
        gives: whether what it sends is its table; else it is its first input.
        of_records: whether it sends records alone, whose keys are their firsts.
        replaces: whether a record replaces the one before it: one of a key comes in an epoch, and none goes.
    """

    make: Callable[[], MomentVertex]
    value: Callable[[int, int], Any] = lambda key, number: number
    counts: bool = False
    inputs: tuple[tuple[str, int], ...] = ()
    once: frozenset[int] = frozenset()
    table: str = "results"
    has_columns: bool = True
    gives: bool = True
    of_records: bool = False
    replaces: bool = False


def _of_fields(key: int, number: int) -> Any:
    return as_record({"v": number, "w": key})


def _of_floats(key: int, number: int) -> Any:
    """Floats whose sums depend on the order in which they are added."""
    return as_record({"v": (0.1, -1e17, 7.0, 1e17)[number], "w": key})


def _of_sides(key: int, number: int) -> Any:
    """Records of the left and of the right side."""
    record = as_record({"v": number // 2, "w": key})
    return (None, record) if number % 2 else (record, None)


def _nothing(key: int, number: int) -> Any:
    return None


def _joined(how: Any) -> Law:
    inputs = KINDS[how].inputs
    read = tuple((name, number) for number, name in enumerate(inputs) if name in ("left", "right"))
    once = frozenset(number for number, name in enumerate(inputs) if name.startswith("keys"))
    return Law(partial(Join, how), inputs=read, once=once)


def _pair(key: int, number: int) -> Any:
    return key, number


def _row(key: int, number: int) -> Any:
    return as_record({"w": key, "v": number, "gone": number == 2})


AS_OF = AsOf(None, True), Field("v"), Field("v")
TWICE = Threshold(rd.col("1") * 2)
RANK = ranking.ranked("v", False, "rank", dense=False)
SUMS = aggregating.forms_of({"n": "count", "total": ("sum", "v"), "mean": ("mean", "v")}, None)
SEVERAL = aggregating.forms_of({"most": ("max", "v"), "n": "count", "total": ("sum", "v")}, None)
LAWS = {
    "count": Law(partial(Reduce, functions.count, functions.one, linear.Counted())),
    "sum": Law(partial(Reduce, functions.total, functions.Added(Field("v")), linear.Summed("v")), _of_fields),
    "sum of a function": Law(partial(Reduce, functions.total, functions.Added(float)), has_columns=False),
    "mean": Law(partial(Reduce, functions.mean, functions.Added(Field("v")), linear.Summed("v", mean=True)), _of_fields),
    "sum of floats": Law(partial(Reduce, functions.total, functions.Added(Field("v")), linear.Summed("v")), _of_floats),
    "mean of floats": Law(partial(Reduce, functions.mean, functions.Added(Field("v")), linear.Summed("v", mean=True)), _of_floats),
    "several sums": Law(partial(Reduce, *SUMS), _of_fields),
    "several": Law(partial(Reduce, *SEVERAL), _of_fields),
    "threshold by an expression": Law(partial(Reduce, functions.Threshold(TWICE), None, TWICE), _nothing, counts=True),
    "distinct": Law(partial(Reduce, distinct, None, linear.Present()), _nothing, counts=True),
    "threshold": Law(partial(Reduce, functions.Threshold(lambda key, count: 2 * count)), _nothing, counts=True, has_columns=False),
    "in both": Law(partial(Reduce, functions.in_both, None, grouped.OfSides(True)), lambda key, number: number % 2, counts=True),
    "min": Law(partial(Reduce, functions.Best(min, None), None, ordered.Best(False, None))),
    "as-of join": Law(partial(Reduce, Latest(*AS_OF, True), None, columns.Latest(AS_OF[0], ("v", "v"), True)), _of_sides),
    "top 2": Law(partial(Reduce, functions.Top(2, None), None, ordered.Top(2, None))),
    "rank": Law(partial(Reduce, RANK[0], None, RANK[1]), _of_fields),
    "values": Law(partial(Reduce, functions.OfValues(lambda key, values: values)), has_columns=False),
    **{f"join, {how}": _joined(how) for how in HOWS},
    "arrangement": Law(SharedJoin, gives=False),
    "arrangement with joins": Law(partial(SharedJoin, Side(True), Side(False, True)), gives=False),
    "what is there": Law(Present, _nothing, counts=True),
    "newest": Law(partial(Upsert, Field("v"), Field("gone")), _row, of_records=True, replaces=True),
    "newest without an order": Law(partial(Upsert, None, Field("gone")), _row, of_records=True, replaces=True),
    "of a sink": Law(partial(Unique, "a sink"), _pair, once=frozenset({0}), table="rows", has_columns=False, of_records=True),
}
CASES = [(name, form) for name, law in LAWS.items() for form in FORMS if law.has_columns or form == "rows"]


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(group_index, "SLICE_KEYS", 4)


def drawn(law: Law, form: str, data: st.DataObject, chance: random.Random) -> list[Step]:
    """Steps in which records come and go; what goes is there."""
    inputs = law.make().inputs
    pairs = st.tuples(st.integers(0, 9), st.integers(0, 3))
    batches = st.tuples(st.integers(0, inputs - 1), st.lists(pairs, min_size=1, max_size=4))
    steps: list[Step] = []
    there: list[tuple[int, int, Change]] = []
    seen: set[tuple[int, Any]] = set()
    newest: dict[tuple[int, int], Any] = {}
    for step in data.draw(steps_with(batches)):
        if step[0] != "recv":
            steps.append(step)
            continue
        _, edge, some, time = step
        changes: list[Change] = []
        for key, number in some:
            if law.replaces and (key, time.epoch) in newest:
                continue
            newest[key, time.epoch] = number
            if edge in law.once and (edge, key) in seen:
                continue
            seen.add((edge, key))
            change = key, law.value(key, number), 1
            changes.append(change)
            there.append((time.epoch, edge, change))
        for at, (epoch, port, (key, value, _)) in enumerate(there):
            if not law.replaces and port == edge and epoch <= time.epoch and chance.random() < 0.3:
                changes.append((key, value, -1))
                del there[at]
                break
        if changes:
            in_columns = form == "columns" or (form == "both" and chance.random() < 0.9)
            steps.append(("recv", edge, columns_of(changes) if in_columns else changes, time))
    return steps


def history_of(law: Law, steps: Sequence[Step]) -> History:
    """By epoch what had been given, and what had come, when it was over."""
    alone = Driven(law.make)
    alone.context.key_groups = KEY_GROUPS
    received = [step for step in steps if step[0] == "recv"]
    came: list[Counter[Any]] = [Counter() for _ in range(law.make().inputs)]
    out: History = []
    for epoch in range(1 + max((step[3].epoch for step in received), default=0)):
        for step in received:
            if step[3].epoch == epoch:
                alone.step(step)
                for key, value, weight in to_rows(step[2]):
                    came[step[1]][as_record(key), as_record(value)] += weight
        while any(time.epoch <= epoch for time in alone.context.waiting):
            alone.notify()
        given: Counter[Any] = Counter()
        for port, _, batch in alone.context.sent:
            for record, weight in to_rows(batch) if port == 0 else ():
                given[as_record(record)] += weight
        tables = {law.table: _table(law, given if law.gives else came[0])}
        tables |= {name: _table(law, came[number]) for name, number in law.inputs}
        out.append(tables)
    return out


def _table(law: Law, weights: Counter[Any]) -> Counter[str]:
    there = [(record, weight) for record, weight in weights.items() if weight]
    if law.counts:
        pairs = [(record[0] if type(record) is tuple else record, weight) for record, weight in there]
        return rows_of(Entries([key for key, _ in pairs], {"count": [weight for _, weight in pairs]}))
    rows = [
        (record["w"] if type(record) is Row else record[0], record if law.of_records else record[1])
        for record, weight in there
        for _ in range(weight)
    ]
    return rows_of(Entries([key for key, _ in rows], {"value": [value for _, value in rows]}))


def check(name: str, form: str, data: st.DataObject, chance: random.Random) -> int:
    """The law, for one history; gives how many reads there were."""
    law = LAWS[name]
    steps = drawn(law, form, data, chance)
    return check_reads(law.make, steps, chance, history=history_of(law, steps)) if any(step[0] == "recv" for step in steps) else 0


@by_turns(3)
@pytest.mark.parametrize(("name", "form"), CASES)
@settings(max_examples=amount(each_run=4, soak=200), deadline=None, **QUICK)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_an_epoch_is_read_as_it_was_when_it_was_over(name: str, form: str, data: st.DataObject, chance: random.Random) -> None:
    check(name, form, data, chance)


@settings(max_examples=amount(each_run=60, soak=200), deadline=None, **QUICK)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_floats_that_need_more_numbers_than_those_before(data: st.DataObject, chance: random.Random) -> None:
    """What an epoch has changed is told by the numbers that there were then."""
    check("sum of floats", "columns", data, chance)


def test_which_operators_can_be_read() -> None:
    assert {type(law.make()) for law in LAWS.values()} == {
        each for each in _all_below(MomentVertex) if not each.why_unreadable and each.__module__.startswith("rayad.")
    }


def _all_below(of: type[MomentVertex]) -> set[type[MomentVertex]]:
    return {each for direct in of.__subclasses__() for each in (direct, *_all_below(direct))}


def _nothing_noted(*_: Any) -> None:
    """Do nothing."""


PLANTED = {
    "changes are not noted, in rows": ("count", "rows", CollectionAtEpochs, "note", _nothing_noted),
    "changes are not noted, in columns": ("join, left", "columns", CollectionAtEpochs, "note", _nothing_noted),
    "changes stay where they were": ("sum", "both", CollectionAtEpochs, "give", lambda self, *_: ([], self.since)),
    "changes in columns stay where they were": ("min", "columns", reads, "_parted", lambda part, changes, leave, key_groups: ([], changes)),
    "what is gone is shown": ("newest", "rows", Upsert, "results_of", lambda self, key, there: (there[0] or {}).items()),
    "all that came is noted": ("newest", "columns", Upsert, "noted", lambda self, come: come),
}  # fmt: skip


@by_turns(3)
@pytest.mark.parametrize("planted", PLANTED)
def test_the_law_finds_what_is_planted(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, form, where, what, instead = PLANTED[planted]
    monkeypatch.setattr(where, what, instead)

    @settings(max_examples=300, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(data=st.data(), chance=st.randoms(use_true_random=False))
    def run(data: st.DataObject, chance: random.Random) -> None:
        check(name, form, data, chance)

    with pytest.raises((AssertionError, KeyError)):
        run()


def test_histories_are_read_at_many_epochs() -> None:
    counted: Counter[str] = Counter()

    @settings(max_examples=40, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(data=st.data(), chance=st.randoms(use_true_random=False))
    def run(data: st.DataObject, chance: random.Random) -> None:
        counted["reads"] += check("join, inner", "both", data, chance)

    run()
    assert counted["reads"] >= 100, counted
