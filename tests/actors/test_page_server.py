"""The server of a job's page, in this process, with aiohttp's client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from rayad.actors.job import JobState, JobStatus
from rayad.actors.page import server
from rayad.actors.page.assembled import SCRIPTS, page
from rayad.actors.page.doors import CONNECTIONS_MOST
from rayad.actors.page.server import PageServer
from rayad.actors.status.frames import Story
from rayad.actors.status.journal import JobEvent
from tests.actors.test_page_frames import RUNNING, at, told
from tests.checkout import ROOT
from tests.patience import PATIENCE_S

Served = tuple[Story, PageServer, aiohttp.ClientSession, str]


@asynccontextmanager
async def serving(token: str | None = None) -> AsyncIterator[Served]:
    story = Story("words")
    page = PageServer(story, token)
    port = await page.open("127.0.0.1", 0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
        yield story, page, session, f"http://127.0.0.1:{port}"
    await page.close()


def served(test: Callable[[Served], Awaitable[None]], token: str | None = None) -> None:
    async def run() -> None:
        async with serving(token) as all_of_it:
            await test(all_of_it)

    asyncio.run(run())


async def next_frame(response: aiohttp.ClientResponse) -> dict[str, Any]:
    while True:
        line = await response.content.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            return dict(json.loads(line[6:]))


def test_a_browser_gets_the_page_then_the_frames_and_the_last_one_when_the_job_has_ended() -> None:
    async def test(parts: Served) -> None:
        story, page, session, url = parts
        told(story, at(100.0))
        async with session.get(url) as response:
            assert (response.status, response.content_type) == (200, "text/html")
            assert response.headers["Cache-Control"] == "no-store"
            policy, text = response.headers["Content-Security-Policy"], await response.text()
            (nonce,) = set(re.findall(r'nonce="([^"]+)"', text))
            assert policy == (
                f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
            )
        async with session.get(f"{url}/events") as response:
            assert response.content_type == "text/event-stream"
            assert (await next_frame(response))["is_whole"]
            assert not told(story, at(101.0))
            assert told(story, at(102.0, epoch=4))
            page.publish()
            frame = await next_frame(response)
            assert (frame["number"], frame["is_whole"], len(frame["points"]), frame["events"]) == (2, False, 1, None)
            end = (RUNNING, JobEvent(103.0, "end", "complete", {}))
            assert told(story, JobStatus("words", JobState.COMPLETE, 103.0), end)
            closing = asyncio.create_task(page.close())
            frame = await next_frame(response)
            assert (frame["state"], frame["is_over"]) == ("complete", True)
            assert await response.content.read() == b"\n", "nothing but the end of that frame, then the end of the stream"
            await closing
        assert page.viewers == 0
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)

    served(test)


def test_browsers_share_what_is_seen_and_one_that_leaves_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BEAT_S", 0.01)
    monkeypatch.setattr(server, "VIEWERS_MOST", 3)

    async def test(parts: Served) -> None:
        story, page, session, url = parts
        told(story, at(100.0))
        streams = [await session.get(f"{url}/events") for _ in range(3)]
        assert [(await next_frame(stream))["number"] for stream in streams] == [1, 1, 1]
        assert page.viewers == 3
        streams.append(await session.get(f"{url}/events"))  # one that is silent keeps nobody out
        assert (await next_frame(streams[-1]))["number"] == 1
        assert page.viewers == 3
        with pytest.raises(aiohttp.ClientError):
            await streams[0].content.read()
        for stream in streams:
            stream.close()
        await asyncio.wait_for(page.left(), PATIENCE_S)
        assert page.viewers == 0

    served(test)


def test_connections_that_say_nothing_keep_no_browser_out() -> None:
    """Regression: 1,100 of them did."""

    async def test(parts: Served) -> None:
        story, page, session, url = parts
        told(story, at(100.0))
        looking = await session.get(f"{url}/events")
        assert (await next_frame(looking))["number"] == 1
        address = urlsplit(url)
        silent = [await asyncio.open_connection(address.hostname, address.port) for _ in range(CONNECTIONS_MOST + 100)]
        async with session.get(url) as response:
            assert response.status == 200
        assert told(story, at(102.0, epoch=4))
        page.publish()
        assert (await next_frame(looking))["number"] == 2, "who looks is not closed for them"
        assert sum(not reader.at_eof() and not writer.transport.is_closing() for reader, writer in silent) >= CONNECTIONS_MOST - 5
        for _, writer in silent:
            writer.close()
        looking.close()

    served(test)


@pytest.mark.parametrize("path", ["/", "/events"])
def test_on_loopback_only_local_names_are_served(path: str) -> None:
    async def test(parts: Served) -> None:
        story, _, session, url = parts
        told(story, at(100.0))
        found = {}
        for host in (
            "127.0.0.1",
            "localhost:9000",
            "[::1]:80",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost@evil.example",
            "[",
            "",
        ):
            async with session.get(url + path, headers={"Host": host}) as response:
                found[host] = response.status
                if response.status == 403:
                    assert "open it as http://127.0.0.1" in await response.text()
        assert [host for host, status in found.items() if status == 200] == ["127.0.0.1", "localhost:9000", "[::1]:80"]
        assert {status for status in found.values() if status != 200} <= {400, 403}

    served(test)


@pytest.mark.parametrize("path", ["/", "/events"])
def test_with_a_token_every_request_needs_it_and_any_name_does(path: str) -> None:
    async def test(parts: Served) -> None:
        story, _, session, url = parts
        told(story, at(100.0))
        for query, status in (("", 403), ("?token=", 403), ("?token=secre", 403), ("?token=secret%C3%A9", 403), ("?token=secret", 200)):
            async with session.get(url + path + query, headers={"Host": "head-node:8080"}) as response:
                assert response.status == status, query

    served(test, "secret")


def test_the_page_is_one_text_that_asks_nobody_but_its_server_and_puts_in_no_html() -> None:
    own = "".join((ROOT / "actors/page" / name).read_text(encoding="utf-8") for name in ("page.html", *SCRIPTS, "parts/page.css"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\bimport\b|url\((?!#tip)|src=|XMLHttp|WebSocket|sendBeacon", own)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", own)
    assert re.findall(r'href="([^"]*)"', own) == ["data:,"]
    assert re.findall(r"new EventSource\((.*)\)", own) == ["`events${location.search}`"]
    assert re.findall(r"fetch\(([^,]*),", own) == ["path"]
    assert re.findall(r"asked\((`[^`]*`)", own) == ["`steps${location.search}`", "`state?${query}`"]
    text, mark = page(("steps",))
    assert text.count(mark) == 3
    assert "sourceMappingURL" not in text
    assert text.count("</script>") == 2


def test_the_libraries_are_as_their_makers_published_them_with_their_licences() -> None:
    """npm pack uplot@1.6.32 @dagrejs/dagre@3.1.3"""
    vendored = ROOT / "actors/page/vendored"
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendored.iterdir()}
    assert found == {
        "dagre.LICENSE": "6a349742a6cb219d5a2fc8d0844f6d89a6efc62e20c664450d884fc7ff2d6015",
        "dagre.min.js": "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578",
        "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    }
