"""What the actor of a page does, without Ray: it looks at a job's handle until that has ended, however it ends, and then ends itself."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from rayad.actors.driver import page
from rayad.actors.job import JobEvent, JobState, JobStatus
from rayad.actors.status.frames import STILL_S, Story
from rayad.progress import ConfigError, DataflowError, RayadError
from tests.actors.test_page_frames import RUNNING, at
from tests.actors.test_page_server import next_frame
from tests.patience import PATIENCE_S


class Handle:
    """A job's handle; notes how often each thing is asked, and raises what is in ``fails`` once."""

    def __init__(self) -> None:
        self.now: JobStatus | None = at(100.0)
        self.end = JobState.COMPLETE
        self.asked: list[str] = []
        self.fails: list[Exception] = []

    def status(self) -> JobStatus:
        self.asked.append("status")
        if self.fails:
            raise self.fails.pop()
        return self.now if self.now is not None else JobStatus("words", JobState.STARTING, 200.0)

    @property
    def state(self) -> JobState:
        self.asked.append("state")
        if self.now is None:
            self.now = JobStatus("words", self.end, 201.0)
        return self.now.state

    def journal(self) -> tuple[JobEvent, ...]:
        self.asked.append("journal")
        return (RUNNING,)

    def explain_stuck(self) -> str:
        self.asked.append("explain_stuck")
        return "it waits"


def test_a_look_asks_for_no_more_than_has_changed() -> None:
    job, story = Handle(), Story("words")
    looked: list[tuple[bool, list[str]]] = []
    for now_s in (100.0, 101.0, 100.0 + STILL_S, 100.5 + STILL_S):
        job.now, job.asked = at(now_s), []
        looked.append((asyncio.run(page.look(job, story)), job.asked))  # type: ignore[arg-type]
    assert looked == [(True, ["status", "journal"]), (False, ["status"]), (True, ["status", "explain_stuck"]), (False, ["status"])]
    job.now, job.asked = None, []
    assert asyncio.run(page.look(job, story))  # type: ignore[arg-type]
    assert (story.is_over, job.asked) == (True, ["status", "state", "status", "journal"])


@pytest.mark.parametrize("end", [JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED, None])
def test_the_actor_ends_itself_however_the_job_ends_and_when_a_look_raises_what_nobody_expects(
    monkeypatch: pytest.MonkeyPatch, end: JobState | None
) -> None:
    job, ended = Handle(), list[Any]()
    monkeypatch.setattr(page, "attach", lambda name: job)
    monkeypatch.setattr(page, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(page, "GLANCE_EVERY_S", 0.01)
    monkeypatch.setattr(page.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="me"))
    monkeypatch.setattr(page.ray_calls, "kill", ended.append)

    async def run() -> None:
        listens: Future[int | str] = Future()
        served = asyncio.create_task(page.serve(page.PageAsked("words", "127.0.0.1", 0, None), listens))
        port = await asyncio.wrap_future(listens)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/events") as stream:
            assert (await next_frame(stream))["state"] == "running"
            assert ended == []
            job.fails = [RayadError("a look that fails is no reason to end"), TimeoutError("neither is this")]
            if end is None:
                job.fails.insert(0, ZeroDivisionError("not foreseen"))
                with pytest.raises(ZeroDivisionError):
                    await served
            else:
                job.end, job.now = end, None
                assert (await next_frame(stream))["state"] == end.value
                await served
        assert ended == ["me"]

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_it_looks_at_most_once_in_its_interval_however_many_browsers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    job, began_s = Handle(), time.monotonic()
    monkeypatch.setattr(page, "attach", lambda name: job)
    monkeypatch.setattr(page, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(page, "GLANCE_EVERY_S", 0.05)
    monkeypatch.setattr(page.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="me"))
    monkeypatch.setattr(page.ray_calls, "kill", lambda actor: None)

    async def run() -> None:
        listens: Future[int | str] = Future()
        served = asyncio.create_task(page.serve(page.PageAsked("words", "127.0.0.1", 0, None), listens))
        port = await asyncio.wrap_future(listens)
        async with aiohttp.ClientSession() as session:
            streams = [await session.get(f"http://127.0.0.1:{port}/events") for _ in range(10)]
            for epoch in range(4, 9):
                job.now = at(100.0 + epoch, epoch)
                for stream in streams:
                    while (await next_frame(stream))["vertices"][1]["cells"][9] != f"({epoch})":
                        pass
            job.now = None
            await served

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert job.asked.count("status") <= (time.monotonic() - began_s) / 0.05 + 2


@pytest.mark.parametrize(("host", "port"), [("", 0), (None, 0), ("127.0.0.1", -1), ("127.0.0.1", 70000), ("127.0.0.1", "80")])
def test_what_cannot_be_listened_on_is_refused_before_an_actor_is_started(host: Any, port: Any) -> None:
    with pytest.raises((ConfigError, DataflowError), match=r"page\((host|port)\)"):
        page.open_page("words", host, port)
