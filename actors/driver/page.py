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
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, assert_never

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.actor_class import PULSE, actor_title, remote_class
from rayad.actors.driver.attached_job import ATTACH_S, attach
from rayad.actors.driver.coordinator_line import GLANCE_S
from rayad.actors.driver.job_handle import RayJobHandle
from rayad.actors.page.place import check_place, is_loopback, url_of
from rayad.actors.page.server import GLANCE_EVERY_S, LOOK_EVERY_S, PageServer
from rayad.actors.page.steps import Answer, Kind, Step
from rayad.actors.process.threads import OwnedThread
from rayad.actors.saved_state.looking import first_rows
from rayad.actors.status.facts import replicas, seconds, size
from rayad.actors.status.frames import Story
from rayad.progress import RayadError, arguments, say

_GROUPS = {PULSE: ("ping",), "control": ("open",)}
_THREADS = {PULSE: 1, "control": 1}
OPEN_S = ATTACH_S + 10.0
"""How long the actor may take to find the job and to listen."""
STATE_S = 60.0
"""How long a look at a state may take."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageAsked:
    """A page that somebody has asked for.

    Args:
        name: the job's.
        host: the address to listen on.
        port: 0: any that is free.
        token: what every request must have; None: the page only shows, on a loopback address.
        steps: whether the job can be steered from it.
        state: whether it shows first keys of states.
    """

    name: str
    host: str
    port: int
    token: str | None
    steps: bool = False
    state: bool = False


class JobPage:
    """The actor of one page. ``asked``: what to serve."""

    def __init__(self, asked: PageAsked) -> None:
        self._shown_as = (asked.name,)
        self._asked = asked

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def ping(self) -> None:
        """Answer, if alive."""

    def open(self) -> int | str:
        """Begin to serve until the job has ended; gives the port, or why there is no page. Nobody waits for the thread: its end is the
        actor's."""
        listens: Future[int | str] = Future()
        OwnedThread("page", lambda: asyncio.run(serve(self._asked, listens))).start()
        return listens.result(timeout=OPEN_S)


async def serve(asked: PageAsked, listens: Future[int | str]) -> None:
    """Serve the page of a job from this actor until the job has ended, then end the actor; ``listens`` gets the port, or why there is none.

    No method of the actor's: one coroutine among them, and Ray would run all of them in an event loop, where no call may wait.
    """
    story = Story(asked.name)
    try:
        job = await asyncio.to_thread(attach, asked.name)
        server = PageServer(
            story,
            asked.token,
            is_local=is_loopback(asked.host),
            carry_out=partial(carry_out, job) if asked.steps else None,
            look_at_state=partial(look_at_state, job) if asked.state else None,
        )
        listens.set_result(await server.open(asked.host, asked.port))
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
                _log.debug("a look at job %r failed", asked.name, exc_info=True)
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


async def carry_out(job: RayJobHandle, step: Step) -> Answer:
    """Carry out a step that somebody has asked for on the page, and say what came of it."""
    try:
        return Answer(True, await asyncio.to_thread(_do, job, step))
    except (RayError, RayadError, TimeoutError) as error:
        return Answer(False, f"{type(error).__name__}: {say(error)}")


def _do(job: RayJobHandle, step: Step) -> str:
    match step.kind:
        case Kind.SAVEPOINT:
            return f"The savepoint is at {job.savepoint()}"
        case Kind.RESCALE:
            report = job.rescale(step.vertex, step.replicas)
            changed = replicas(report.after, report.before)
            if not changed:
                return f"{step.vertex} has {step.replicas} replicas already"
            moved = f"{report.moved_groups} key-groups with {size(report.moved_bytes)} of state moved"
            return f"{changed}, in {seconds(report.took_s)}; {moved}; no replica stood still for longer than {seconds(report.pause_s)}"
        case Kind.STOP:
            job.drain()  # stop() would wait, and fetch results that are somebody else's
            return "The job reads no more, and ends when what is under way is finished."
        case _:
            assert_never(step.kind)


async def look_at_state(job: RayJobHandle, vertex: str) -> dict[str, Any]:
    """The first rows of what the newest snapshot has of a vertex. Raises RayadError, OSError or TimeoutError."""
    return asdict(await asyncio.wait_for(asyncio.to_thread(first_rows, job.name, job.config, vertex), STATE_S))


_OPENED: dict[tuple[object, ...], tuple[Any, str]] = {}
"""The pages that this process has: without their handles Ray would end them."""
_opening = threading.Lock()


def open_page(name: str, host: str, port: int, steps: bool = False, state: bool = False) -> str:
    """See :meth:`RayJobHandle.page`."""
    host, port = check_place(host, port)
    steps, state = arguments.flag(steps, "page(steps)"), arguments.flag(state, "page(state)")
    key = (ray_calls.cluster(), name, host, port, steps, state)
    with _opening:
        if key in _OPENED and _lives(_OPENED[key][0]):
            return _OPENED[key][1]
        is_open = is_loopback(host) and not (steps or state)
        asked = PageAsked(name, host, port, None if is_open else secrets.token_urlsafe(24), steps, state)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        page = remote_class(JobPage, _THREADS, _GROUPS, num_cpus=0, scheduling_strategy=here)
        actor = ray_calls.create(page, {}, asked)
        try:
            listens = ray_calls.get(ray_calls.call(actor.open), timeout=OPEN_S)
        except (RayError, RayadError) as error:
            listens = f"its actor did not answer: {type(error).__name__}: {say(error)}"
        if isinstance(listens, str):
            ray_calls.kill(actor)
            raise RayadError(f"page(host={host!r}, port={port}) of job {name!r} cannot be served: {listens}")
        shown = ray.util.get_node_ip_address() if host in ("0.0.0.0", "::") else host
        _OPENED[key] = actor, url_of(shown, listens, asked.token)
        return _OPENED[key][1]


def _lives(actor: Any) -> bool:
    try:
        ray_calls.get(ray_calls.call(actor.ping), timeout=GLANCE_S)
    except (RayError, RayadError):
        return False
    return True


__all__ = ["JobPage", "PageAsked", "carry_out", "look", "look_at_state", "open_page", "serve"]
