"""The server of a job's page: the page itself, and its frames as server-sent events. It knows no job: it sends what a ``Story`` has.

On a loopback address it answers to local names only, so that a web site whose name was made to lead here (DNS rebinding) reads nothing;
on any other address every request needs the token. A browser that reads slowly gets the newest frame when it has read the one before:
nothing is queued for it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import web

from rayad.actors.page.doors import Doors, source_of
from rayad.actors.process.doors import first_to_go
from rayad.actors.status.frames import Story
from rayad.actors.status.report import STYLE_OF_EVENTS

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
VIEWERS_MOST = 64
"""So many browsers at once; a further one takes the place of another, which looks again after some seconds."""
BEAT_S = 15.0
"""When there is no frame for so long a comment is sent, which finds out whether the browser is still there."""
WRITE_S = 30.0
"""A browser that takes nothing for so long is given up."""
END_S = 2.0
"""How long browsers may take for the last frame."""
_PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8").replace("/*events*/", STYLE_OF_EVENTS)


class PageServer:
    """Serves one page.

    Args:
        story: what is known of the job; it is read in the event loop that serves.
        token: every request must have it as ``?token=``; None: only those are served that call the server by a local name.
    """

    def __init__(self, story: Story, token: str | None) -> None:
        self._story = story
        self._token = token
        self._viewers: dict[_Viewer, str] = {}  # and from where
        self._nobody = asyncio.Event()
        self._nobody.set()
        self.app = web.Application(middlewares=[self._guard])
        self.app.add_routes([web.get("/", self._page), web.get("/events", self._events)])
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
        if self._token is None and _name_in(request.headers.get("Host", "")) not in LOCAL_NAMES:
            told = "this page is for this machine: open it as http://127.0.0.1 or localhost, also through a tunnel; job.page(host=...) or "
            raise web.HTTPForbidden(text=told + "rayad page --host shows it to others, with a token\n")
        if self._token is not None and not hmac.compare_digest(request.query.get("token", "").encode(), self._token.encode()):
            raise web.HTTPForbidden(text="this page needs its token: open the whole address that job.page() or rayad page gave\n")
        return await handler(request)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:"
        headers = {"Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
        return web.Response(text=_PAGE.replace("{nonce}", nonce), content_type="text/html", headers=headers)

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.7", "head-node")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _harden(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"


def _name_in(host: str) -> str | None:
    """The name in a Host header, without its port; None where it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _as_event(frame: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(frame, separators=(',', ':'))}\n\n".encode()


__all__ = ["BEAT_S", "LOCAL_NAMES", "VIEWERS_MOST", "PageServer", "is_loopback"]
