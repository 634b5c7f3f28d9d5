"""Steps and looks at state that are asked of a page's server: only its own page may ask, with the token, and one at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rayad.actors.page.server import PageServer
from rayad.actors.page.steps import BODY_BYTES_MAX, Answer, Kind, Step, step_in
from rayad.actors.status.frames import Story
from rayad.progress import ConfigError, InternalError, SnapshotError
from tests.patience import PATIENCE_S

TOKEN = "secret-of-the-page"
SAVEPOINT = {"job": "words", "step": "savepoint"}


class Asked:
    """What has been asked, and may be held up before it is answered."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.looks: list[str] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_at_it = asyncio.Event()

    async def carry_out(self, step: Step) -> Answer:
        self.steps.append(step)
        self.is_at_it.set()
        await asyncio.wait_for(self.may_go_on.wait(), PATIENCE_S)
        return Answer(True, f"did {step}")

    async def look(self, vertex: str) -> dict[str, Any]:
        self.looks.append(vertex)
        if vertex == "<none>":
            raise SnapshotError("there is no such <state>")
        return {"told": "snapshot 3", "tables": []}


Steered = tuple[Asked, aiohttp.ClientSession, str]


@asynccontextmanager
async def steered() -> AsyncIterator[Steered]:
    asked = Asked()
    page = PageServer(Story("words"), TOKEN, is_local=True, carry_out=asked.carry_out, look_at_state=asked.look)
    port = await page.open("127.0.0.1", 0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
        yield asked, session, f"http://127.0.0.1:{port}"
    await page.close()


def run(test: Callable[[Steered], Awaitable[None]]) -> None:
    async def within() -> None:
        async with steered() as all_of_it:
            await test(all_of_it)

    asyncio.run(within())


def own(url: str, **other: str) -> dict[str, str]:
    """The headers that a browser sends with a request of the page itself."""
    return {"Origin": url, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json", **other}


FORGED = [
    ("no token", "", {}),
    ("a wrong token", "?token=secret-of-the-pag", {}),
    ("an empty token", "?token=", {}),
    ("another site", f"?token={TOKEN}", {"Origin": "http://evil.example"}),
    ("another port of this machine", f"?token={TOKEN}", {"Origin": "http://127.0.0.1:1"}),
    ("a name that begins alike", f"?token={TOKEN}", {"Origin": "http://127.0.0.1.evil.example"}),
    ("no origin of a file or a frame in a sandbox", f"?token={TOKEN}", {"Origin": "null"}),
    ("no origin at all", f"?token={TOKEN}", {"Origin": ""}),
    ("a cross-site request, as the browser says", f"?token={TOKEN}", {"Sec-Fetch-Site": "cross-site"}),
    ("the same site and another origin", f"?token={TOKEN}", {"Sec-Fetch-Site": "same-site"}),
    ("a form", f"?token={TOKEN}", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("text, which needs no preflight", f"?token={TOKEN}", {"Content-Type": "text/plain"}),
    ("a name that was made to lead here", f"?token={TOKEN}", {"Host": "evil.example", "Origin": "http://evil.example"}),
]


@pytest.mark.parametrize("path", ["/steps", "/state"])
@pytest.mark.parametrize(("why", "query", "headers"), FORGED, ids=[one[0] for one in FORGED])
def test_a_forged_request_is_refused_and_nothing_is_done(path: str, why: str, query: str, headers: dict[str, str]) -> None:
    async def test(parts: Steered) -> None:
        asked, session, url = parts
        async with session.post(url + path + query, data=json.dumps(SAVEPOINT), headers=own(url, **headers)) as response:
            assert response.status == 403, why
        assert (asked.steps, asked.looks) == ([], [])

    run(test)


def test_other_methods_do_nothing_and_no_site_is_allowed_to_ask() -> None:
    async def test(parts: Steered) -> None:
        asked, session, url = parts
        for method in ("GET", "PUT", "DELETE", "HEAD", "OPTIONS"):
            async with session.request(method, f"{url}/steps?token={TOKEN}", headers=own(url)) as response:
                assert response.status == 405, method
                assert not [name for name in response.headers if name.startswith("Access-Control-")]
        assert asked.steps == []

    run(test)


def test_the_page_itself_may_ask_and_gets_the_answer() -> None:
    async def test(parts: Steered) -> None:
        asked, session, url = parts
        for body in (SAVEPOINT, {"job": "words", "step": "rescale", "vertex": "counts", "replicas": 3}, {"job": "words", "step": "stop"}):
            async with session.post(f"{url}/steps?token={TOKEN}", json=body, headers=own(url)) as response:
                assert (response.status, await response.json()) == (200, {"is_done": True, "told": f"did {asked.steps[-1]}"})
        assert asked.steps == [Step(Kind.SAVEPOINT), Step(Kind.RESCALE, "counts", 3), Step(Kind.STOP)]
        async with session.post(f"{url}/state?vertex=counts&token={TOKEN}", json={}, headers=own(url)) as response:
            assert await response.json() == {"is_done": True, "told": "snapshot 3", "tables": []}
        async with session.post(f"{url}/state?vertex=%3Cnone%3E&token={TOKEN}", json={}, headers=own(url)) as response:
            assert await response.json() == {"is_done": False, "told": "there is no such <state>"}
        async with session.get(f"{url}/?token={TOKEN}") as response:
            assert 'data-may="steps state"' in await response.text()

    run(test)


def test_one_step_at_a_time() -> None:
    async def test(parts: Steered) -> None:
        asked, session, url = parts
        asked.may_go_on.clear()

        async def ask() -> tuple[int, str]:
            async with session.post(f"{url}/steps?token={TOKEN}", json=SAVEPOINT, headers=own(url)) as response:
                return response.status, await response.text()

        first = asyncio.create_task(ask())
        await asyncio.wait_for(asked.is_at_it.wait(), PATIENCE_S)
        assert await ask() == (409, "savepoint is under way: ask again when it is done\n")
        asked.may_go_on.set()
        assert (await first)[0] == 200
        assert len(asked.steps) == 1

    run(test)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "a step is asked for as a JSON object"),
        ("[1]", "a step is asked for as a JSON object"),
        ("[" * 4_000, "a step is asked for as a JSON object"),
        ('{"job": "other", "step": "stop"}', "this is the page of job 'words', and the step is for 'other'"),
        ('{"job": "words", "step": "cancel"}', r"step is 'cancel': it must be one of \['savepoint', 'rescale', 'stop'\]"),
        ('{"job": "words", "step": "rescale", "replicas": 2}', "rescale: vertex is None"),
        ('{"job": "words", "step": "rescale", "vertex": "counts", "replicas": 0}', "rescale: replicas"),
        ('{"job": "words", "step": "rescale", "vertex": "counts", "replicas": "2"}', "rescale: replicas"),
        ('{"job": "words", "step": "rescale", "vertex": "counts", "replicas": true}', "rescale: replicas"),
    ],
)
def test_what_is_no_step_is_refused_with_what_would_be_one(body: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        step_in(body, "words")

    async def test(parts: Steered) -> None:
        asked, session, url = parts
        async with session.post(f"{url}/steps?token={TOKEN}", data=body, headers=own(url)) as response:
            assert response.status == 400
        assert asked.steps == []

    run(test)


def test_a_body_has_a_bound() -> None:
    async def test(parts: Steered) -> None:
        asked, session, url = parts
        async with session.post(f"{url}/steps?token={TOKEN}", data=b"x" * (BODY_BYTES_MAX + 1), headers=own(url)) as response:
            assert response.status == 413
        assert asked.steps == []

    run(test)


def test_a_page_without_steps_has_no_way_to_them_and_one_with_steps_has_a_token() -> None:
    async def test() -> None:
        page = PageServer(Story("words"), None)
        port = await page.open("127.0.0.1", 0)
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
            for path in ("/steps", "/state"):
                async with session.post(url + path, json=SAVEPOINT, headers=own(url)) as response:
                    assert response.status == 404
            async with session.get(url) as response:
                assert 'data-may=""' in await response.text()
        await page.close()
        for one in ({"carry_out": Asked().carry_out}, {"look_at_state": Asked().look}):
            with pytest.raises(InternalError, match="has a token"):
                PageServer(Story("words"), None, **one)  # type: ignore[arg-type]

    asyncio.run(test())
