"""Threads and their owners: ended within a bound, logged where they do not end, and never waiting for each other."""

from __future__ import annotations

import logging
import threading
import time as clock
from types import SimpleNamespace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.cluster import last_words
from rayad.actors.coordinator.metrics import STOP_S, Watch
from rayad.actors.process.threads import PREFIX, OwnedThread, Threads
from rayad.integrations.spark.streaming.kept import BlocksKept
from rayad.integrations.spark.streaming.stream import QueryBesideJob
from rayad.progress import DataflowError
from tests.patience import PATIENCE_S


def ours() -> list[str]:
    """The names of our threads in this process."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(PREFIX))


@pytest.fixture
def hanging() -> Any:
    """What a thread hangs in until the test is over."""
    released = threading.Event()
    before = set(threading.enumerate())
    yield lambda: released.wait(PATIENCE_S)
    released.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)


def test_a_thread_that_ends_in_time_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()
    thread = OwnedThread("quick", lambda: over.wait(PATIENCE_S), stop=over.set).start()
    assert thread.is_alive
    assert thread.close(PATIENCE_S)
    assert not thread.is_alive
    assert caplog.messages == []


def test_a_thread_that_hangs_is_waited_for_within_the_bound_and_logged(hanging: Any, caplog: pytest.LogCaptureFixture) -> None:
    thread = OwnedThread("hanging", hanging).start()
    began_s = clock.monotonic()
    assert not thread.close(0.05)
    assert clock.monotonic() - began_s < PATIENCE_S / 2
    assert caplog.messages == ["thread rayad-hanging did not end within 0.05 s"]


def test_a_group_tells_all_its_threads_to_end_before_it_waits_for_one(caplog: pytest.LogCaptureFixture) -> None:
    first, second, threads = threading.Event(), threading.Event(), Threads()
    threads.start("first", lambda: second.wait(PATIENCE_S), stop=first.set)  # each ends when the other one has been told
    threads.start("second", lambda: first.wait(PATIENCE_S), stop=second.set)
    assert threads.close(PATIENCE_S)
    assert caplog.messages == []


def test_a_group_waits_within_one_bound_and_names_who_is_late(hanging: Any, caplog: pytest.LogCaptureFixture) -> None:
    threads = Threads()
    for name in ("one", "two"):
        threads.start(name, hanging)
    threads.start("three", lambda: None)
    assert not threads.close(0.05)
    assert caplog.messages == ["threads rayad-one, rayad-two did not end within 0.05 s"]


def test_two_threads_of_a_group_that_close_it_at_once_do_not_wait_for_each_other(caplog: pytest.LogCaptureFixture) -> None:
    threads, both = Threads(), threading.Barrier(2)

    def work() -> None:
        both.wait(PATIENCE_S)
        threads.close(PATIENCE_S)

    members = [threads.start(name, work) for name in ("one", "two")]
    began_s = clock.monotonic()
    assert all(member.join(PATIENCE_S) for member in members)
    assert clock.monotonic() - began_s < PATIENCE_S / 2
    assert caplog.messages == []


def test_a_thread_that_closes_itself_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    made: list[OwnedThread] = []
    told: list[bool] = []
    ready = threading.Event()

    def work() -> None:
        ready.wait(PATIENCE_S)
        told.append(made[0].close(PATIENCE_S))

    made.append(OwnedThread("itself", work).start())
    ready.set()
    assert made[0].join(PATIENCE_S)
    assert told == [False]
    assert caplog.messages == []


def test_the_end_of_a_job_does_not_wait_for_a_look_that_hangs(hanging: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    looks = threading.Event()

    def look() -> Any:
        looks.set()
        hanging()

    watch = Watch(look, [], every_s=0.0)
    watch.start()
    assert looks.wait(PATIENCE_S)
    began_s = clock.monotonic()
    watch.stop()
    assert clock.monotonic() - began_s < STOP_S + PATIENCE_S / 2
    assert caplog.messages == [f"thread rayad-watch did not end within {STOP_S:g} s"]


def test_the_end_of_a_process_waits_a_moment_for_its_last_words_and_no_longer(hanging: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_internal_kv_put", lambda *_, **__: hanging())
    monkeypatch.setattr(last_words, "_KEPT_S", 0.05)
    began_s = clock.monotonic()
    last_words.leave("an actor", "exit status 3")
    assert clock.monotonic() - began_s < PATIENCE_S / 2


def test_the_end_of_a_job_does_not_wait_for_a_spark_query_that_does_not_stop(hanging: Any) -> None:
    class Stopping:
        """A job whose input never opens, as its query would never stop."""

        def input(self, name: str) -> Any:
            hanging()
            raise DataflowError("the job has ended")

    query = QueryBesideJob(Stopping(), "events", BlocksKept(), SimpleNamespace())  # type: ignore[arg-type]
    query.start()
    began_s = clock.monotonic()
    query.end()
    assert clock.monotonic() - began_s < PATIENCE_S / 2


def test_a_local_job_leaves_no_thread_of_ours_behind() -> None:
    before = ours()
    flow = rd.Dataflow("words")
    flow.from_items(["to be", "or not to be"]).flat_map(str.split).key_by(str).count().collect("counts")
    job = flow.submit(runtime="local", seed=7)
    job.page(port=0)
    assert ours() == sorted([*before, "rayad-page"])
    assert len(job.wait(timeout_s=PATIENCE_S, progress=True)["counts"]) == 4
    assert ours() == before
