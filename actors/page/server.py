"""The server of a job's page: the page itself, and its frames as server-sent events. It knows no job: it sends what a ``Story`` has, and
passes steps and looks at state on to who serves it.

On a loopback address it answers to local names only, so that a web site whose name was made to lead here (DNS rebinding) reads nothing.
On any other address, and wherever the page steers the job or shows its state, every request needs the token. A browser that reads slowly
gets the newest frame when it has read the one before: nothing is queued for it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import web

from rayad.actors.page import assembled
from rayad.actors.page.doors import Doors, source_of
from rayad.actors.page.steps import BODY_BYTES_MAX, Answer, CarryOut, step_in, why_foreign
from rayad.actors.process.doors import first_to_go
from rayad.actors.status.frames import Story
from rayad.progress import InternalError, RayadError, say

LOOK_EVERY_S = 1.0
"""Seconds between two looks at a job while a browser is there."""
GLANCE_EVERY_S = 5.0
"""Seconds between two looks while no browser is: so lines over time begin before somebody looks."""
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
VIEWERS_MOST = 64
"""So many browsers at once; a further one takes the place of another, which looks again after some seconds."""
BEAT_S = 15.0
"""When there is no frame for so long a comment is sent, which finds out whether the browser is still there."""
WRITE_S = 30.0
"""A browser that takes nothing for so long is given up."""
END_S = 2.0
"""How long browsers may take for the last frame."""
LookAtState = Callable[[str], Awaitable[dict[str, Any]]]
"""What the newest snapshot has of a vertex, as JSON. Raises RayadError, whose text the page shows."""


class PageServer:
    """Serves one page.

    Args:
        story: what is known of the job; it is read in the event loop that serves.
        token: every request must have it as ``?token=``. None: the page only shows, to those that call the server by a local name.
        is_local: whether others than those that call it by a local name are refused. None: where there is no token.
        carry_out: what carries out steps; None: the page has none.
        look_at_state: what looks at the state of a vertex; None: the page has no such look.
    """

    def __init__(
        self,
        story: Story,
        token: str | None,
        *,
        is_local: bool | None = None,
        carry_out: CarryOut | None = None,
        look_at_state: LookAtState | None = None,
    ) -> None:
        if token is None and (carry_out is not None or look_at_state is not None):
            raise InternalError("a page that steers a job, or shows its state, has a token")
        self._story = story
        self._token = token
        self._is_local = token is None if is_local is None else is_local
        self._carry_out = carry_out
        self._look_at_state = look_at_state
        self._asked = ""  # the step, or the look, that is under way: one at a time
        self._viewers: dict[_Viewer, str] = {}  # and from where
        self._nobody = asyncio.Event()
        self._nobody.set()
        self.app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        self.app.add_routes([web.get("/", self._page), web.get("/events", self._events)])
        if carry_out is not None:
            self.app.add_routes([web.post("/steps", self._steps)])
        if look_at_state is not None:
            self.app.add_routes([web.post("/state", self._state)])
        self.app.on_response_prepare.append(_harden)
        self._runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=END_S)
        self._doors: Doors | None = None
        self._listener: asyncio.Server | None = None
        self._is_closing = False

    @property
    def viewers(self) -> int:
        """How many browsers look."""
        return len(self._viewers)

    async def left(self) -> None:
        """Wait until no browser looks."""
        await self._nobody.wait()  # ends with the last browser: one that reads nothing is given up; who calls has a time-out

    async def open(self, host: str, port: int) -> int:
        """Listen, and give the port (0: any that is free). Raises OSError."""
        await self._runner.setup()
        self._doors = Doors(cast("Callable[[], asyncio.Protocol]", self._runner.server))
        self._listener = await asyncio.get_running_loop().create_server(self._doors, host, port)
        return int(self._listener.sockets[0].getsockname()[1])

    def publish(self) -> None:
        """The story has a new frame."""
        for viewer in self._viewers:
            viewer.awake.set()

    async def close(self) -> None:
        """Send the last frame to whoever looks, and listen no more."""
        self._is_closing = True
        self.publish()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.left(), END_S)
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        if self._is_local and _name_in(request.headers.get("Host", "")) not in LOCAL_NAMES:
            told = "this page is for this machine: open it as http://127.0.0.1 or localhost, also through a tunnel; job.page(host=...) or "
            raise web.HTTPForbidden(text=told + "rayad page --host shows it to others, with a token\n")
        if self._token is not None and not hmac.compare_digest(request.query.get("token", "").encode(), self._token.encode()):
            raise web.HTTPForbidden(text="this page needs its token: open the whole address that job.page() or rayad page gave\n")
        return await handler(request)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        may = ("steps",) * (self._carry_out is not None) + ("state",) * (self._look_at_state is not None)
        text, mark = assembled.page(may)
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:"
        policy += "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        headers = {"Content-Security-Policy": policy}
        response = web.Response(text=text.replace(mark, nonce), content_type="text/html", headers=headers)
        response.enable_compression()
        return response

    async def _steps(self, request: web.Request) -> web.StreamResponse:
        assert self._carry_out is not None
        self._refuse_foreign(request)
        try:
            step = step_in(await request.text(), self._story.name)
        except (RayadError, UnicodeDecodeError, LookupError) as error:
            raise web.HTTPBadRequest(text=say(error)) from error
        with self._alone(str(step)):
            answer = await self._carry_out(step)
        return _answered(answer)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        assert self._look_at_state is not None
        self._refuse_foreign(request)
        vertex = request.query.get("vertex", "")
        with self._alone(f"a look at the state of {vertex}"):
            try:
                found = await self._look_at_state(vertex)
            except (RayadError, OSError, TimeoutError) as error:
                return _answered(Answer(False, say(error)))
        return web.json_response({"is_done": True, **found})

    def _refuse_foreign(self, request: web.Request) -> None:
        why = why_foreign(request.headers)
        if why:
            raise web.HTTPForbidden(text=f"this request is not one of this page: {why}\n")

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if self._asked:
            raise web.HTTPConflict(text=f"{self._asked} is under way: ask again when it is done\n")
        self._asked = what
        try:
            yield
        finally:
            self._asked = ""

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if len(self._viewers) >= VIEWERS_MOST:
            gone = first_to_go(self._viewers)
            del self._viewers[gone]
            if gone.transport is not None:
                gone.transport.abort()
        transport = request.transport
        viewer = _Viewer(transport)
        self._viewers[viewer] = source_of(transport)
        if transport is not None and self._doors is not None:
            self._doors.leave(transport)
        self._nobody.clear()
        try:
            await response.prepare(request)
            with suppress(TimeoutError, ConnectionError):
                await self._follow(response, viewer.awake)
        finally:
            self._viewers.pop(viewer, None)
            if not self._viewers:
                self._nobody.set()
        return response

    async def _follow(self, response: web.StreamResponse, awake: asyncio.Event) -> None:
        sent = 0
        while True:
            awake.clear()
            if self._story.number > sent:
                frame = self._story.frame(sent)
                await asyncio.wait_for(response.write(_as_event(frame)), WRITE_S)
                sent = frame["number"]
            if self._is_closing and sent == self._story.number:
                return
            try:
                await asyncio.wait_for(awake.wait(), BEAT_S)  # ends with BEAT_S
            except TimeoutError:
                await asyncio.wait_for(response.write(b":\n\n"), WRITE_S)


class _Viewer:
    """A browser that looks."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self.transport = transport
        self.awake = asyncio.Event()


async def _harden(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"


def _answered(answer: Answer) -> web.Response:
    return web.json_response({"is_done": answer.is_done, "told": answer.told})


def _name_in(host: str) -> str | None:
    """The name in a Host header, without its port; None where it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _as_event(frame: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(frame, separators=(',', ':'))}\n\n".encode()


__all__ = ["BEAT_S", "GLANCE_EVERY_S", "LOCAL_NAMES", "LOOK_EVERY_S", "VIEWERS_MOST", "LookAtState", "PageServer"]
