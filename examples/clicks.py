"""Sessions of a click stream, with all that goes wrong with one: broken lines, a slow and unreliable service, clicks that come late.

    python examples/clicks.py                 # in this process
    python examples/clicks.py --ray           # on Ray
    python examples/clicks.py --minutes 600

    lines ──> parse ──> ask a service for the country of each user ──> sessions by user ──> sessions of each country
               └──> broken lines     └──> users that nobody knows         └──> late clicks

An epoch is a minute of arrival. The service is an HTTP server in this process, which refuses one request in five for a moment. A session
ends when its user has not clicked for more than half an hour. A click may come ten minutes late; later ones still join a session that is
open, and are left out and listed where there is none.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from typing import Any

import aiohttp
import click
from aiohttp import web

import rayad as rd

COUNTRIES = ["br", "de", "ke", "vn"]
USERS = 40
GAP_MIN, MAX_DELAY_MIN = 30, 10


# -- the dataflow ------------------------------------------------------------------------------
class Profiles:
    """Asks the service for the country of a click's user, once for each user in a replica."""

    url = ""

    def __init__(self) -> None:
        self.session = aiohttp.ClientSession()
        self.known: dict[int, asyncio.Task[str]] = {}

    async def __call__(self, one: dict[str, Any]) -> dict[str, Any]:
        user = one["user"]
        if user not in self.known:
            self.known[user] = asyncio.ensure_future(self.ask(user))
        try:
            return {**one, "country": await self.known[user]}
        except aiohttp.ClientError:
            self.known.pop(user, None)  # the next call asks again
            raise

    async def ask(self, user: int) -> str:
        """The country of a user; LookupError if the service does not know the user, ClientError if it does not answer now."""
        async with self.session.get(f"{self.url}/users/{user}") as answer:
            if answer.status == 404:
                raise LookupError(f"nobody knows user {user}")
            answer.raise_for_status()
            country: str = (await answer.json())["country"]
            return country

    async def close(self) -> None:
        """Called at the end of the job."""
        await self.session.close()


def flow(minutes: int = 300, profiles: Any = Profiles) -> rd.Dataflow:
    """The dataflow over so many minutes of clicks."""
    made = rd.Dataflow("clicks")
    clicks = made.from_epochs(arrivals(minutes), name="lines").map(json.loads, name="parse", on_error="skip", max_errors=1_000)
    known = clicks.map_async(
        profiles, name="profiles", on_error="skip", concurrency=16, timeout_s=5.0, retries=8, retry_on=aiohttp.ClientError
    )
    timed = known.assign_timestamps(lambda one: one["minute"], max_delay=MAX_DELAY_MIN)
    sessions = timed.key_by(lambda one: (one["user"], one["country"])).window(rd.windows.session(GAP_MIN)).count(name="sessions")
    sessions.collect("sessions")
    sessions.late.collect("late")
    clicks.errors.collect("broken")
    known.errors.collect("unknown")
    return made


# -- what arrives ------------------------------------------------------------------------------
def arrivals(minutes: int, seed: int = 7) -> list[list[str]]:
    """Lines by the minute of their arrival. Most clicks come within ten minutes; one in fifty an hour later; one line in a hundred is
    cut off."""
    chance = random.Random(seed)
    lines: list[list[str]] = [[] for _ in range(minutes)]
    for minute in range(minutes):
        for user in range(USERS):
            if chance.random() < (0.15 if (minute // 60 + user) % 3 else 0.01):
                arrival = minute + (60 if chance.random() < 0.02 else chance.randrange(MAX_DELAY_MIN))
                line = json.dumps({"user": user, "minute": minute})
                if arrival < minutes:
                    lines[arrival].append(line[:-5] if chance.random() < 0.01 else line)
    return lines


class Service:
    """Tells the countries of users, but not of every thirteenth; refuses every fifth request."""

    def __init__(self) -> None:
        self.requests = 0
        self.port = 0
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        user = int(request.match_info["user"])
        if self.requests % 5 == 0:
            raise web.HTTPServiceUnavailable
        if user % 13 == 12:
            raise web.HTTPNotFound
        return web.json_response({"country": COUNTRIES[user % len(COUNTRIES)]})

    def _serve(self) -> None:
        async def start() -> web.AppRunner:
            app = web.Application()
            app.router.add_get("/users/{user}", self._answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._started.set()
            return runner

        runner = self._loop.run_until_complete(start())
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def __enter__(self) -> str:
        """Start it; gives its address."""
        self._thread.start()
        if not self._started.wait(30):
            raise SystemExit("the service did not start")
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


# -- running it --------------------------------------------------------------------------------
@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=300, show_default=True, type=click.IntRange(1), help="How many minutes of clicks.")
@click.option("--ray", "on_ray", is_flag=True, help="Run on Ray, with two replicas that ask the service.")
def main(minutes: int, on_ray: bool) -> None:
    """Count the sessions of each country."""
    service = Service()
    with service as url:
        asking = type("Asking", (Profiles,), {"url": url})
        options: dict[str, Any] = {"runtime": "ray", "parallelism": 2} if on_ray else {"runtime": "local"}
        result = flow(minutes, asking).run(**options)
    sessions = [record for _, record in result["sessions"]]
    by_country = Counter(country for (_, country), _, _ in sessions)
    longest = max(sessions, key=lambda one: (one[1].end - one[1].start, one[0]))
    print(f"{len(sessions):,} sessions, by country: " + ", ".join(f"{country} {count}" for country, count in sorted(by_country.items())))
    print(f"the longest session: user {longest[0][0]}, {longest[2]} clicks in {longest[1].end - longest[1].start - GAP_MIN} minutes")
    print(f"set aside: {len(result['broken'])} broken lines, {len(result['unknown'])} clicks of users that the service does not know")
    print(f"too late for their session, set aside as well: {len(result['late'])} clicks")


if __name__ == "__main__":
    main()
