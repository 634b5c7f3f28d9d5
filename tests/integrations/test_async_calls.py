"""``map_async``: calls side by side, within their bounds, with the results and errors of the records."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations import async_calls
from tests.thorough import examples


async def turn() -> None:
    """Let others run first."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(done.set_result, None)
    await done


class Calls:
    """An async function that keeps count of its calls; each gives way to others as often as it is told to."""

    def __init__(self, turns: int = 3, failures: int = 0) -> None:
        self.turns, self.failures = turns, failures
        self.called: Counter[int] = Counter()
        self.now = self.most = 0

    async def __call__(self, n: int) -> int:
        self.called[n] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(self.turns + n % 5):
                await turn()
            if self.called[n] <= self.failures:
                raise ConnectionError(f"{n} was not reached")
            return 10 * n
        finally:
            self.now -= 1


def run(stream: rd.Stream, **options: Any) -> list[Any]:
    stream.collect("out")
    return [record for _, record in stream.flow.run(runtime="local", **options)["out"]]


@examples(each_run=10, soak=30)
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 8))
def test_results_are_in_order_and_no_more_calls_than_allowed_run_at_once(values: list[int], concurrency: int) -> None:
    calls = Calls()
    assert run(rd.Dataflow("calls").from_items(values).map_async(calls, concurrency=concurrency)) == [10 * n for n in values]
    assert calls.most == min(concurrency, len(values))
    assert calls.called == Counter(values)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_call_that_fails_is_repeated_so_often(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.async_calls.PAUSE_S", 0.001)
    calls = Calls(failures=failures)
    assert run(rd.Dataflow("again").from_items([1, 2]).map_async(calls, retries=2)) == [10, 20]
    assert calls.called == {1: failures + 1, 2: failures + 1}


def test_the_error_of_the_last_try_ends_the_job_and_names_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.async_calls.PAUSE_S", 0.001)
    calls = Calls(failures=9)
    with pytest.raises(rd.DataflowError, match=r"^'ask'\[0\] \(.*\) failed at \(0\) on record 7: ConnectionError: 7 was not reached$"):
        run(rd.Dataflow("failing").from_items([7]).map_async(calls, retries=1, name="ask"))
    assert calls.called == {7: 2}


@pytest.mark.parametrize(("kinds", "calls_made"), [(OSError, 3), ((KeyError, ConnectionError), 3), (KeyError, 1)])
def test_only_errors_that_may_pass_are_tried_again(kinds: Any, calls_made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.async_calls.PAUSE_S", 0.001)
    calls = Calls(failures=9)
    out = rd.Dataflow("kinds").from_items([7]).map_async(calls, retries=2, retry_on=kinds, on_error="skip")
    assert run(out) == []
    assert calls.called == {7: calls_made}


def test_bad_records_are_set_aside() -> None:
    async def halved(n: int) -> float:
        await turn()
        return 10 / n

    flow = rd.Dataflow("skipping")
    out = flow.from_items([1, 0, 2]).map_async(halved, on_error="skip", max_errors=1)
    out.collect("out")
    out.errors.map(lambda bad: (bad["record"], bad["error"], bad["operator"])).collect("bad")
    result = flow.run(runtime="local")
    assert [n for _, n in result["out"]] == [10.0, 5.0]
    assert [bad for _, bad in result["bad"]] == [(0, "ZeroDivisionError: division by zero", "map_async")]


def test_a_call_without_an_answer_fails_in_time() -> None:
    async def never(n: int) -> None:
        await asyncio.Event().wait()

    with pytest.raises(rd.DataflowError, match=r"on record 3: TimeoutError: no answer within timeout_s=0\.05$"):
        run(rd.Dataflow("silent").from_items([3]).map_async(never, timeout_s=0.05))


MADE: list[Any] = []


class Session:
    """Made and closed in the thread of its calls."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.kept: dict[int, int] = {}
        self.closed = False
        MADE.append(self)

    async def __call__(self, n: int) -> tuple[int, int]:
        assert asyncio.get_running_loop() is self.loop
        self.kept[n] = self.kept.get(n, 0) + 1
        return n, self.kept[n]

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed = True


def answered(record: Any, answer: Any) -> Any:
    return answer


@examples(each_run=10, soak=30)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8), st.integers(1, 4))
def test_a_cache_asks_once_for_what_is_used_often(epochs: list[list[int]], room: int) -> None:
    """Against a cache in plain Python that forgets what was not used for the longest time; n and n + 5 have the same answer."""
    calls = Calls()
    out = run(rd.Dataflow("cached").from_epochs(epochs).map_async(calls, cache=room, cache_by=lambda n: n % 5, combine=answered))
    asked: Counter[int] = Counter()
    kept: dict[int, int] = {}
    expected = []
    for batch in epochs:
        answers = {}
        for n in batch:
            if n % 5 in kept:
                answers[n % 5] = kept[n % 5] = kept.pop(n % 5)
        for n in batch:
            if n % 5 not in answers:
                asked[n] += 1
                answers[n % 5] = kept[n % 5] = 10 * n
                while len(kept) > room:
                    del kept[next(iter(kept))]
        expected += [answers[n % 5] for n in batch]
    assert (out, calls.called) == (expected, asked)


ORDERS = [{"user": user, "item": item} for user, item in zip("aabaab", "uvwxyz", strict=True)]
COUNTRIES = {"a": "NO", "b": "SE"}


class Countries:
    """Answers by user, and keeps count of its calls."""

    def __init__(self) -> None:
        self.called: Counter[str] = Counter()

    async def __call__(self, order: dict[str, Any]) -> str:
        self.called[order["user"]] += 1
        return COUNTRIES[order["user"]]


def user_of(order: dict[str, Any]) -> Any:
    return order["user"]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_an_answer_is_put_into_each_record_or_combined_with_it(form: str, cached: bool) -> None:
    """Also one that comes from the cache, or from the call for another record: ann's orders a, b, c came out as a, a, a."""
    table = pa.Table.from_pylist(ORDERS)
    options: dict[str, Any] = {"cache": 9, "cache_by": user_of} if cached else {}

    def orders() -> rd.Stream:
        flow = rd.Dataflow("orders")
        return flow.from_arrow(table, batch_rows=4) if form == "columns" else flow.from_epochs([ORDERS[:4], ORDERS[4:]])

    countries = Countries()
    assert run(orders().map_async(countries, into="country", **options)) == [{**o, "country": COUNTRIES[o["user"]]} for o in ORDERS]
    assert countries.called == ({"a": 1, "b": 1} if cached else {"a": 4, "b": 2})
    assert run(orders().map_async(Countries(), into="user", **options)) == [{**o, "user": COUNTRIES[o["user"]]} for o in ORDERS]
    both = run(orders().map_async(Countries(), combine=lambda order, country: (order["item"], country), **options))
    assert both == [(order["item"], COUNTRIES[order["user"]]) for order in ORDERS]


def test_what_is_put_into_a_record_fits_the_schema_that_is_said() -> None:
    schema = pa.schema([("user", pa.string()), ("item", pa.string()), ("country", pa.string())])
    out = rd.Dataflow("typed").from_items(ORDERS).map_async(Countries(), cache=9, cache_by=user_of, into="country", schema=schema)
    assert out.schema == schema
    out.key_by("country").count().collect("counts")
    assert sorted(record for _, record in out.flow.run(runtime="local")["counts"]) == [("NO", 4), ("SE", 2)]


def test_a_record_that_cannot_be_combined_with_its_answer_fails_alone() -> None:
    stream = (
        rd.Dataflow("failing")
        .from_items([1, 2, 0, 2])
        .map_async(Calls(), cache=9, cache_by=lambda n: 0, combine=lambda n, answer: answer // n, on_error="skip")
    )
    stream.errors.map(lambda bad: (bad["record"], bad["error"].split(":")[0])).collect("errors")
    stream.collect("out")
    result = stream.flow.run(runtime="local")
    assert [record for _, record in result["out"]] == [10, 5, 5]
    assert [record for _, record in result["errors"]] == [(0, "ZeroDivisionError")]


def test_a_record_without_fields_into_which_an_answer_is_to_be_put() -> None:
    with pytest.raises(rd.DataflowError) as error:
        run(rd.Dataflow("numbers").from_items([3]).map_async(Calls(), into="country"))
    told = "map_async(into='country'): the record 3 is a int, which has no fields: give combine=, a function of record and answer"
    assert told in str(error.value)


def test_a_key_of_the_cache_that_cannot_be_one() -> None:
    with pytest.raises(rd.DataflowError, match=r"which cannot be a key of a cache: give cache_by=.* and into= or combine="):
        run(rd.Dataflow("keys").from_items([{"n": 1}]).map_async(Calls(), cache=3))


def test_errors_are_not_remembered_and_answers_only_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 6))
    monkeypatch.setattr(async_calls, "clock", SimpleNamespace(monotonic=lambda: float(next(now))))
    calls = Calls(failures=1)
    stream = rd.Dataflow("failing").from_epochs([[1, 1], [1], [1]]).map_async(calls, cache=5, on_error="skip")
    stream.errors.collect("errors")
    assert run(stream) == [10, 10]
    assert calls.called == {1: 2}
    calls = Calls()
    assert run(rd.Dataflow("old").from_epochs([[1], [1], [1]]).map_async(calls, cache=5, cache_s=7.0)) == [10] * 3
    assert calls.called == {1: 2}, "the clock moves by 6 s with each look at it"


def test_a_class_is_made_once_in_each_replica_and_closed() -> None:
    MADE.clear()
    flow = rd.Dataflow("sessions")
    asked = flow.from_epochs([[1, 1], [1]]).rebalance(name="ask").map_async(Session)
    assert sorted(run(asked, parallelism={"ask": 1})) == [(1, 1), (1, 2), (1, 3)]
    assert len(MADE) == 1
    assert MADE[0].closed
    assert not [thread for thread in threading.enumerate() if thread.name == "rayad-map-async"]


def test_where_a_loop_runs_already_as_in_a_notebook() -> None:
    async def cell() -> list[Any]:
        return run(rd.Dataflow("notebook").from_items([1, 2]).map_async(Calls()))

    assert asyncio.run(cell()) == [10, 20]


def test_order_is_restored_behind_it() -> None:
    flow = rd.Dataflow("ordered")
    out = flow.from_items(list(range(50))).rebalance(name="ask").map_async(Calls()).ordered()
    assert run(out, parallelism={"ask": 3}) == [10 * n for n in range(50)]


async def added(n: int, more: int) -> int:
    return n + more


def test_what_counts_as_an_async_function() -> None:
    assert run(rd.Dataflow("partial").from_items([1]).map_async(functools.partial(added, more=2))) == [3]


class Plain:
    def __call__(self, record: Any) -> Any:
        return record


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (str, {}, "map_async was given 'str', which is no async function: write async def, or use map"),
        (lambda record: record, {}, "map_async was given '<lambda>', which is no async function"),
        (Plain, {}, "map_async was given 'Plain', which is no async function"),
        (3, {}, "map_async was given 3: it takes an async function"),
        (added, {}, "map_async was given added(n, more) and calls it as added(record): give a function that takes 1 argument"),
        (Calls(), {"concurrency": 0}, "map_async: concurrency, a number of calls, is 0"),
        (Calls(), {"timeout_s": 0}, "map_async: timeout_s is 0"),
        (Calls(), {"retries": -1}, "map_async: retries is -1"),
        (Calls(), {"retry_on": 503}, "map_async: retry_on is 503: give a class of exceptions, or a tuple of such"),
        (Calls(), {"tries": 1}, "map_async"),
        (Calls(), {"cache": -1}, "map_async: cache, a number of answers, is -1"),
        (Calls(), {"into": "a", "combine": answered}, "map_async: into and combine both say what becomes of an answer: give one of them"),
        (Calls(), {"into": 3}, "map_async: into is 3: give the name of the field that the answer is put into"),
        (Calls(), {"combine": Plain}, "map_async: combine was given Plain() and calls it as Plain(record, answer)"),
        (
            Calls(),
            {"cache": 9, "cache_by": user_of},
            "map_async: with cache_by records that differ share an answer, so the function is not to give the record back with it: let it "
            "give the answer alone, and say what becomes of both: into='country' puts the answer into that field of each record, "
            "combine=lambda record, answer: ... gives the result, which may be the answer alone",
        ),
        (Calls(), {"cache_s": 5.0}, "map_async: cache_s and cache_by are for a cache: say how many answers it keeps"),
    ],
)
def test_what_cannot_be_meant_is_refused(function: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(rd.DataflowError) as error:
        rd.Dataflow("refused").from_items([1]).map_async(function, **options)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_ends_a_program_comes_out_as_of_map(raised: BaseException, on_error: Any) -> None:
    """It ended the event loop, for whose answer the replica then waited for ever."""

    async def ends(record: Any) -> Any:
        raise raised

    flow = rd.Dataflow("ends")
    flow.from_items([1]).map_async(ends, on_error=on_error).collect("out")
    with pytest.raises(type(raised)):
        flow.run(runtime="local")


def test_a_class_that_exits_as_it_is_made_comes_out() -> None:
    class Exits:
        def __init__(self) -> None:
            raise SystemExit(4)

        async def __call__(self, record: Any) -> Any:
            return record

    flow = rd.Dataflow("ends")
    flow.from_items([1]).map_async(Exits).collect("out")
    with pytest.raises(SystemExit):
        flow.run(runtime="local")


def test_a_loop_that_a_task_of_the_users_ends_is_an_error() -> None:
    async def exits() -> None:
        raise SystemExit(5)

    async def begins_one(record: Any) -> Any:
        task = asyncio.ensure_future(exits())
        await asyncio.get_running_loop().create_future()
        return task

    flow = rd.Dataflow("ends")
    flow.from_items([1]).map_async(begins_one).collect("out")
    with pytest.raises(rd.DataflowError, match=r"the event loop in which the function is called has ended: SystemExit\(5\); a task that"):
        flow.run(runtime="local")


def test_a_call_that_is_cancelled_from_within_is_an_error_of_its_record() -> None:
    async def cancelled(record: Any) -> Any:
        if record == 2:
            raise asyncio.CancelledError
        return record

    flow = rd.Dataflow("cancelled")
    answers = flow.from_items([1, 2, 3]).map_async(cancelled, on_error="skip")
    answers.collect("out")
    answers.errors.collect("errors")
    result = flow.run(runtime="local")
    assert [record for _, record in result["out"]] == [1, 3]
    assert [bad["error"] for _, bad in result["errors"]] == ["RuntimeError: the call was cancelled by what it calls: CancelledError()"]
