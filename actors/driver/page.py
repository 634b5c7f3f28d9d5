"""The page of a job that runs: an actor that looks at the job through a handle of its own, as any other process would, and serves the page.

It belongs to the process that asked for it, and is on its node: a loopback address is this machine's. It ends with that process, or with
the job. It holds nothing that the job needs, and asks the coordinator only: at most once a second, however many browsers look.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time as clock
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.actor_class import PULSE, actor_title, remote_class
from rayad.actors.driver.attached_job import ATTACH_S, attach
from rayad.actors.driver.coordinator_line import GLANCE_S
from rayad.actors.driver.job_handle import RayJobHandle
from rayad.actors.page.server import PageServer, is_loopback
from rayad.actors.status.frames import Story
from rayad.progress import ConfigError, RayadError, arguments, say, show

_GROUPS = {PULSE: ("ping",), "control": ("open",)}
_THREADS = {PULSE: 1, "control": 1}
LOOK_EVERY_S = 1.0
"""Seconds between two looks at the job while a browser is there."""
GLANCE_EVERY_S = 5.0
"""Seconds between two looks while no browser is there: the lines over time begin before somebody looks."""
OPEN_S = ATTACH_S + 10.0
"""How long the actor may take to find the job and to listen."""
PORT_MOST = 65535
_log = logging.getLogger(__name__)


class JobPage:
    """The actor of one page.

    Args:
        name: the job's.
        host: the address to listen on.
        port: 0: any that is free.
        token: what every request must have; None on a loopback address.
    """

    def __init__(self, name: str, host: str, port: int, token: str | None) -> None:
        self._shown_as = (name,)
        self._arguments = (name, host, port, token)

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def ping(self) -> None:
        """Answer, if alive."""

    def open(self) -> int | str:
        """Begin to serve until the job has ended; gives the port, or why there is no page."""
        listens: Future[int | str] = Future()
        threading.Thread(target=lambda: asyncio.run(serve(*self._arguments, listens)), name="rayad-page", daemon=True).start()
        return listens.result(timeout=OPEN_S)


async def serve(name: str, host: str, port: int, token: str | None, listens: Future[int | str]) -> None:
    """Serve the page of a job from this actor until the job has ended, then end the actor; ``listens`` gets the port, or why there is none.

    No method of the actor's: one coroutine among them, and Ray would run all of them in an event loop, where no call may wait.
    """
    story = Story(name)
    server = PageServer(story, token)
    try:
        job = await asyncio.to_thread(attach, name)
        listens.set_result(await server.open(host, port))
    except (OSError, RayError, RayadError) as error:
        listens.set_result(f"{type(error).__name__}: {say(error)}")
        return
    try:
        while not story.is_over:
            began_s = clock.monotonic()
            try:
                if await look(job, story):
                    server.publish()
            except (RayError, RayadError, TimeoutError):
                _log.debug("a look at job %r failed", name, exc_info=True)
            while not story.is_over and clock.monotonic() - began_s < (LOOK_EVERY_S if server.viewers else GLANCE_EVERY_S):
                await asyncio.sleep(LOOK_EVERY_S / 10)
        await server.close()
    finally:
        ray_calls.kill(ray.get_runtime_context().current_actor)


async def look(job: RayJobHandle, story: Story) -> bool:
    """Tell the story what the job's coordinator knows now; gives whether a frame is due."""
    status = await asyncio.to_thread(job.status)
    if not status.vertices:  # it starts, or has ended and only its state can tell
        state = await asyncio.to_thread(lambda: job.state)
        status = status if state is status.state else await asyncio.to_thread(job.status)
    wanted = story.wants(status)
    events = await asyncio.to_thread(job.journal) if wanted.journal else None
    why = await asyncio.to_thread(job.explain_stuck) if wanted.why else None
    return story.tell(status, events, why)


_OPENED: dict[tuple[object, ...], tuple[Any, str]] = {}
"""The pages that this process has: without their handles Ray would end them."""
_opening = threading.Lock()


def open_page(name: str, host: str, port: int) -> str:
    """See :meth:`RayJobHandle.page`."""
    if not isinstance(host, str) or not host:
        raise ConfigError(f"page(host) is {show(host)}: it must be an address of this machine, as '127.0.0.1' or '0.0.0.0'")
    port = arguments.whole(port, "page(port)", least=0, most=PORT_MOST, error=ConfigError, more="; 0 takes any that is free")
    key = (ray_calls.cluster(), name, host, port)
    with _opening:
        if key in _OPENED and _lives(_OPENED[key][0]):
            return _OPENED[key][1]
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        page = remote_class(JobPage, _THREADS, _GROUPS, num_cpus=0, scheduling_strategy=here)
        actor = ray_calls.create(page, {}, name, host, port, token)
        try:
            listens = ray_calls.get(ray_calls.call(actor.open), timeout=OPEN_S)
        except (RayError, RayadError) as error:
            listens = f"its actor did not answer: {type(error).__name__}: {say(error)}"
        if isinstance(listens, str):
            ray_calls.kill(actor)
            raise RayadError(f"page(host={host!r}, port={port}) of job {name!r} cannot be served: {listens}")
        url = url_of(host, listens, token)
        _OPENED[key] = actor, url
        return url


def url_of(host: str, port: int, token: str | None) -> str:
    """What a browser of this cluster opens."""
    shown = ray.util.get_node_ip_address() if host in ("0.0.0.0", "::") else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/{f'?token={token}' if token is not None else ''}"


def _lives(actor: Any) -> bool:
    try:
        ray_calls.get(ray_calls.call(actor.ping), timeout=GLANCE_S)
    except (RayError, RayadError):
        return False
    return True


__all__ = ["GLANCE_EVERY_S", "LOOK_EVERY_S", "JobPage", "look", "open_page", "serve", "url_of"]
