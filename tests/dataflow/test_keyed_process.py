"""Keyed processes against plain Python: order by event time, timers, two inputs, in rows and columns, while replicas come and go."""

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
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("i", pa.int64())])
RECORD = st.fixed_dictionaries({"k": st.none() | st.integers(0, 3), "t": st.integers(0, 60)})
EPOCHS = st.lists(st.lists(RECORD, max_size=6), min_size=1, max_size=8)
CLOSE = st.lists(st.lists(st.fixed_dictionaries({"k": st.integers(0, 1), "t": st.integers(0, 4)}), max_size=3), min_size=2, max_size=6)
"""Epochs whose event times are often those of others."""
GAP = 7


def numbered(epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    number = iter(range(10_000))
    return [[{"k": record["k"], "t": record["t"], "i": next(number)} for record in records] for records in epochs]


class Silence(rd.Process):
    """Tells what came, whether late, and when a key has been silent for ``GAP``, with all that it had until then."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        self.seen(record["i"], context)

    def on_other(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        self.seen(-1 - record["i"], context)

    def seen(self, number: int, context: rd.ProcessContext) -> None:
        if context.state is None:
            context.state = [context.time, []]
        else:
            context.clear_timer(context.state[0] + GAP)
        context.state[0] = max(context.state[0], context.time)
        context.state[1].append(number)
        context.set_timer(context.state[0] + GAP)
        if context.is_late:
            context.emit(("late", number))

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(("silent", context.time, context.is_end, *context.state[1]))
        context.state = None


def in_plain_python(sides: list[list[Any]], delays: list[int]) -> Counter[str]:
    """The rule: epoch after epoch, key by key, records and the timers that the watermark has passed by their moments."""
    out: Counter[str] = Counter()
    state: dict[Any, tuple[int, list[int]]] = {}
    largest: list[int | None] = [None] * len(sides)
    mark: int | None = None
    last_epoch = 0
    for epoch in range(max(map(len, sides))):
        events: dict[Any, list[Any]] = {}
        for port, side in enumerate(sides):
            for record in side[epoch] if epoch < len(side) else []:
                number = record["i"] if port == 0 else -1 - record["i"]
                events.setdefault(record["k"], []).append((record["t"], port, repr(record), number))
                known = largest[port]
                largest[port] = record["t"] if known is None else max(known, record["t"])
                last_epoch = epoch
        before = mark
        known_marks = [moment - delay for moment, delay in zip(largest, delays, strict=True) if moment is not None]
        if len(known_marks) == len(sides):
            mark = min(known_marks) if mark is None else max(mark, min(known_marks))
        for key in [*events, *(key for key in state if key not in events)]:
            for moment, _, _, number in [*sorted(events.get(key, [])), (None, 0, "", 0)]:
                while key in state and mark is not None and state[key][0] + GAP < mark and (moment is None or state[key][0] + GAP < moment):
                    last, numbers = state.pop(key)
                    out[repr((epoch, key, ("silent", last + GAP, False, *numbers)))] += 1
                if moment is not None:
                    if before is not None and moment < before:
                        out[repr((epoch, key, ("late", number)))] += 1
                    last, numbers = state.get(key, (moment, []))
                    state[key] = max(last, moment), [*numbers, number]
    for key, (last, numbers) in state.items():
        out[repr((last_epoch, key, ("silent", last + GAP, True, *numbers)))] += 1
    return out


def forms_of(epochs: list[Any]) -> list[list[Any]]:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    return [batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]]


def found_in(flow: rd.Dataflow, name: str, parallelism: int, seed: int, to: int) -> Counter[str]:
    job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
    for _ in range(seed):
        job.step()
    job.start_rescale({name: to})
    # In which epoch the end of the input is told is the runtime's to say: the last one that an input has reached.
    return Counter(repr((at.epoch, key, value)) for at, (key, value) in job.wait(timeout_s=100)["out"])


def without_the_epoch_of_the_end(found: Counter[str]) -> Counter[str]:
    return Counter({text.split(", ", 1)[1] if ", True, " in text else text: count for text, count in found.items()})


@examples(each_run=21, soak=60)
@given(epochs=EPOCHS.map(numbered), delay=st.integers(0, 9), parallelism=st.integers(1, 3), seed=st.integers(0, 99), to=st.integers(1, 4))
def test_records_and_timers_come_in_the_order_of_event_time(epochs: list[Any], delay: int, parallelism: int, seed: int, to: int) -> None:
    wanted = without_the_epoch_of_the_end(in_plain_python([epochs], [delay]))
    for source in forms_of(epochs):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay)
        stream.key_by("k").process(Silence, name="silence").collect("out")
        assert without_the_epoch_of_the_end(found_in(flow, "silence", parallelism, seed, to)) == wanted


@examples(each_run=14, soak=40)
@given(
    left=EPOCHS.map(numbered),
    right=EPOCHS.map(numbered),
    delays=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_two_streams(left: list[Any], right: list[Any], delays: tuple[int, int], seed: int, to: int) -> None:
    wanted = without_the_epoch_of_the_end(in_plain_python([left, right], list(delays)))
    for lefts, rights in zip(forms_of(left), forms_of(right), strict=True):
        flow = rd.Dataflow()
        keyed = [
            flow.from_epochs(source, batch_rows=2).assign_timestamps("t", max_delay=delay).key_by("k")
            for source, delay in zip((lefts, rights), delays, strict=True)
        ]
        keyed[0].process(Silence, other=keyed[1], name="silence").collect("out")
        assert without_the_epoch_of_the_end(found_in(flow, "silence", 2, seed, to)) == wanted


def test_a_process_resumes_with_its_state_and_timers(tmp_path: Any) -> None:
    epochs = numbered([[{"k": key, "t": 5 * n + key} for key in range(3) if n % (key + 2)] for n in range(12)])

    def flow() -> rd.Dataflow:
        made = rd.Dataflow("resumed")
        made.from_epochs(epochs).assign_timestamps("t").key_by("k").process(Silence, name="silence").collect("out")
        return made

    straight = sorted(flow().run(runtime="local")["out"], key=repr)
    assert len(straight) > 5
    for steps in (10, 40, 70):
        run = rd.RunConfig(storage_path=str(tmp_path / str(steps)))
        job = flow().submit(run, runtime="local", parallelism=2)
        for _ in range(steps):
            job.step()
        job.savepoint()
        assert sorted(flow().run(run, runtime="local", resume="latest", parallelism=3)["out"], key=repr) == straight


class EveryTen(rd.Process):
    """A timer that sets the next one, until it has fired three times."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = 0
        context.set_timer(context.time + dt.timedelta(minutes=10))
        context.set_timer(context.time + dt.timedelta(minutes=10))

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.state += 1
        context.emit((context.state, context.time.minute))
        if context.state < 3:
            context.set_timer(context.time + dt.timedelta(minutes=10))


def test_a_timer_may_set_the_next_one_and_all_that_is_passed_fires() -> None:
    start = dt.datetime(2024, 5, 1)
    epochs = [[("a", start)], [("b", start + dt.timedelta(minutes=25))], [("b", start + dt.timedelta(minutes=50))]]
    flow = rd.Dataflow()
    flow.from_epochs(epochs).assign_timestamps(lambda row: row[1]).key_by(lambda row: row[0]).process(EveryTen).collect("out")
    found = [(at.epoch, *record) for at, record in flow.run(runtime="local")["out"] if record[0] == "a"]
    assert found == [(1, "a", (1, 10)), (1, "a", (2, 20)), (2, "a", (3, 30))]


class Fired(rd.Process):
    """Tells each record in time whose moment a timer has been told of already."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        if not context.is_late and context.state is not None and context.state >= context.time:
            context.emit((record["t"], context.state))
        context.set_timer(context.time)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.state = context.time


@examples(each_run=21, soak=60)
@given(epochs=CLOSE, delay=st.integers(0, 2), seed=st.integers(0, 99))
def test_no_record_in_time_comes_after_a_timer_of_its_moment(epochs: list[Any], delay: int, seed: int) -> None:
    flow = rd.Dataflow()
    flow.from_epochs(epochs).assign_timestamps("t", max_delay=delay).key_by("k").process(Fired).collect("out")
    assert flow.run(runtime="local", seed=seed, parallelism=2)["out"] == []


def test_a_record_of_the_next_epoch_at_the_watermark_comes_before_the_timer() -> None:
    epochs = [[{"k": 0, "t": 0, "i": 0}], [{"k": 1, "t": GAP, "i": 1}], [{"k": 0, "t": GAP, "i": 2}], [{"k": 1, "t": GAP + 1, "i": 3}]]
    flow = rd.Dataflow()
    flow.from_epochs(epochs).assign_timestamps("t").key_by("k").process(Silence).collect("out")
    found = [value for _, (key, value) in flow.run(runtime="local")["out"] if key == 0]
    assert found == [("silent", 2 * GAP, True, 0, 2)], "the key was not silent"


class ForEver(rd.Process):
    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.set_timer(context.time)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.set_timer(context.time)


class Untimed(rd.Process):
    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.set_timer("noon")


class NoTimer(rd.Process):
    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.set_timer(context.time)


class Misread(rd.Process):
    def on_record(self, key: Any, record: Any) -> None:  # type: ignore[override]
        """Takes too little."""


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, o: s.key_by("k").process(Silence), "process at .*: the stream 'left' has no event time; call assign_timestamps"),
        (
            lambda s, o: timed(s).process(Silence()),
            "was given <.*Silence object .*: give a subclass of rd.Process, or a function that makes one",
        ),
        (lambda s, o: timed(s).process(int), "was given <class 'int'>: give a subclass of rd.Process"),
        (lambda s, o: timed(s).process(Misread), r"the job calls it as on_record\(key, record, context\): give it these arguments"),
        (lambda s, o: timed(s).process(EveryTen, other=timed(o)), r"EveryTen is given another stream but has no on_other\(self, key"),
        (lambda s, o: timed(s).process(Silence, other=o), "was given other=.*: the other stream must be keyed with key_by, too"),
        (lambda s, o: timed(s).ttl(3).process(Silence), "a process forgets a key where it sets context.state to None"),
        (lambda s, o: timed(s).process(lambda: 3), "which makes 3: that is no rd.Process"),
        (
            lambda s, o: timed(s).process(ForEver),
            "on_timer at 2 of key 1 has set a timer at 2, which is not later: it would fire without end",
        ),
        (lambda s, o: timed(s).process(Untimed), r"'noon' \(str\): it must be a number, a date, a datetime or a timedelta"),
        (lambda s, o: timed(s).process(NoTimer), r"NoTimer sets timers but has no on_timer\(self, key, context\)"),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    flow = rd.Dataflow()
    streams = [flow.from_epochs([[{"k": 1, "t": 2}], [{"k": 1, "t": 3}]], name=name) for name in ("left", "right")]

    def run() -> None:
        build(*streams).collect("out")
        flow.run(runtime="local")

    with pytest.raises(DataflowError, match=message):
        run()


def timed(stream: rd.Stream) -> rd.KeyedStream:
    return stream.assign_timestamps("t").key_by("k")
