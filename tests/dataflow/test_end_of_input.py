"""Output at the end of the input has one time, whatever the order of arrival: the latest epoch that any input before the vertex reached.

Found by `make fuzz` (seed 30042): if the records of the last epochs were all filtered out, windows that were open at the end were emitted
in the last epoch whose frontier their vertex happened to see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd

SEEDS = range(12)
GONE = 20
"""Records from this number on are filtered out before the vertex that emits at the end."""


def windows(stream: rd.Stream) -> rd.Stream:
    kept = stream.filter(lambda n: n < GONE).assign_timestamps(lambda n: n, max_delay=30)
    return kept.key_by(lambda n: 0).window(rd.windows.tumbling(10)).count()


def sessions(stream: rd.Stream) -> rd.Stream:
    kept = stream.filter(lambda n: n < GONE).assign_timestamps(lambda n: n, max_delay=30)
    return kept.key_by(lambda n: 0).window(rd.windows.session(5)).count()


def window_join(stream: rd.Stream) -> rd.Stream:
    kept = stream.filter(lambda n: n < GONE).assign_timestamps(lambda n: n, max_delay=30).key_by(lambda n: 0)
    return kept.window(rd.windows.tumbling(10)).join(kept)


class LastWord(rd.EndVertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        """Nothing to do."""

    def on_end(self, time: rd.Timestamp) -> None:
        self.send_by(0, ["end"], time)


def last_word(stream: rd.Stream) -> rd.Stream:
    return stream.filter(lambda n: n < GONE).single().vertex(LastWord, name="last")


def through_a_loop(stream: rd.Stream) -> rd.Stream:
    return last_word(stream.iterate(lambda inner: (inner.filter(lambda n: False), inner.filter(lambda n: n < GONE))))


def _keyed(stream: rd.Stream) -> rd.KeyedStream:
    return stream.key_by(lambda n: n % 5)


class AtTheEnd(rd.EndVertex):
    """Counts by key, of which it tells at the end; nothing is given of keys that have not come."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        for n in batch:
            self.counts[n % 5] = self.counts.get(n % 5, 0) + 1

    def on_end(self, time: rd.Timestamp) -> None:
        self.send_by(0, list(self.counts.items()), time)

    def give(self, groups: frozenset[int]) -> Any:
        gone = [key for key in self.counts if rd.key_group(key, self.key_groups) in groups]
        return {key: self.counts.pop(key) for key in gone} or None

    def take(self, state: Any) -> None:
        self.counts.update(state)


class Timer(rd.Process):
    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(1000)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(context.state)


SPEAK_AT_THE_END: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "latest": lambda s: _keyed(s).latest(lambda n: n, name="end"),
    "latest of totals": lambda s: _keyed(s).count().latest(name="end"),
    "latest whose keys end": lambda s: _keyed(s.assign_timestamps(lambda n: n)).ttl(100).latest(lambda n: n, name="end"),
    "windows": lambda s: _keyed(s.assign_timestamps(lambda n: n)).window(rd.windows.tumbling(100)).count(name="end"),
    "windows of counts": lambda s: _keyed(s.assign_timestamps(lambda n: n)).window(rd.windows.count(100)).count(name="end"),
    "process": lambda s: _keyed(s.assign_timestamps(lambda n: n)).process(Timer, name="end"),
    "a vertex of one's own": lambda s: _keyed(s).vertex(AtTheEnd, name="end"),
}


@pytest.mark.parametrize("how", SPEAK_AT_THE_END)
def test_replicas_that_come_before_any_record_speak_at_the_end_too(how: str) -> None:
    """They had no right to send, since no state came with their key-groups: what came for these later was lost."""

    def run(seed: int, parallelism: int, to: int | None) -> list[str]:
        flow = rd.Dataflow()
        SPEAK_AT_THE_END[how](flow.from_epochs([list(range(20))], batch_rows=3, parts=2)).collect("out")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        if to is not None:
            job.start_rescale({"end": to})
        return sorted(repr(record) for _, record in job.wait(timeout_s=60)["out"])

    wanted = run(0, 1, None)
    assert len(wanted) == 5
    for seed in (0, 1, 2, 11):
        for parallelism, to in ((1, 2), (1, 4), (2, 3), (2, 5), (3, 1), (4, 2)):
            assert run(seed, parallelism, to) == wanted


def one_source(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_epochs([[11], [], [], [29]])


def many_parts(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_epochs([[11, 12, 13], [30] * 4, [], [29]], parts=3, batch_rows=1)


def two_sources(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_epochs([[11], [], [], [29]], name="long").union(flow.from_epochs([[12], [30]], name="short"))


def beside_a_longer_one(flow: rd.Dataflow) -> rd.Stream:
    flow.from_epochs([[n] for n in range(9)], name="other").collect("other")
    return one_source(flow)


@pytest.mark.parametrize("said", [windows, sessions, window_join, last_word, through_a_loop])
@pytest.mark.parametrize("source", [one_source, many_parts, two_sources, beside_a_longer_one])
def test_output_at_the_end_has_the_last_epoch_of_the_input(
    source: Callable[[rd.Dataflow], rd.Stream], said: Callable[[rd.Stream], rd.Stream]
) -> None:
    for seed in SEEDS:
        flow = rd.Dataflow("ending")
        said(source(flow)).collect("out")
        result = flow.run(runtime="local", parallelism=1 + seed % 3, seed=seed)["out"]
        assert {time for time, _ in result} == {rd.Timestamp(3)}, seed


def two_inputs() -> rd.Dataflow:
    flow = rd.Dataflow("live")
    windows(flow.input("a").union(flow.input("b"))).collect("out")
    return flow


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_output_at_the_end_has_the_latest_epoch_of_the_live_inputs(order: str) -> None:
    for seed in SEEDS:
        job = two_inputs().submit(runtime="local", seed=seed)
        job.input("a").send([11])
        job.input("a").advance_to(4)
        job.input("b").advance_to(2)
        for name in order:
            job.input(name).close()
            for _ in range(seed):
                job.step()
        assert {time for time, _ in job.wait()["out"]} == {rd.Timestamp(4)}, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_job_remembers_where_inputs_ended(seed: int, tmp_path: Path) -> None:
    config = rd.RunConfig(storage_path=str(tmp_path))
    job = two_inputs().submit(config, runtime="local", seed=seed)
    job.input("a").send([11])
    job.input("a").advance_to(4)
    job.input("a").close()
    while job.step():
        pass
    job.savepoint()
    job.cancel()
    job = two_inputs().submit(rd.RunConfig(storage_path=str(tmp_path), resume="latest"), runtime="local", seed=seed + 1)
    job.input("b").advance_to(2)
    job.input("b").close()
    assert {time for time, _ in job.wait()["out"]} == {rd.Timestamp(4)}


@pytest.mark.parametrize("parts_after", [1, 3])
def test_a_source_resumed_with_other_replicas_remembers_where_it_ended(parts_after: int, tmp_path: Path) -> None:
    def flow() -> rd.Dataflow:
        made = rd.Dataflow("shared")
        windows(many_parts(made).union(made.input("b"))).collect("out")
        return made

    job = flow().submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism=2)
    while job.step():
        pass
    job.savepoint()
    job.cancel()
    config = rd.RunConfig(storage_path=str(tmp_path), resume="latest")
    job = flow().submit(config, runtime="local", parallelism=parts_after)
    job.input("b").close()
    assert {time for time, _ in job.wait()["out"]} == {rd.Timestamp(3)}
