"""Calls to the keeper of a detached job, from any process: repeated when its process dies and Ray starts another one."""

from __future__ import annotations

import math
import time as clock
from typing import Any

from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.joining import join_ray
from rayad.actors.driver.coordinator_line import ANSWER_S, LOOK_AGAIN_S, Gone, NoAnswer
from rayad.progress import RayadError


class KeeperLine:
    """Calls to one keeper. It can be pickled: in another process it joins the same cluster.

    Args:
        entry: of the keeper in Ray's table.
        actor: its handle; looked up where it is not given.
        cluster: the address of its cluster, for a process that is in none.
    """

    def __init__(self, entry: names.Entry, actor: Any = None, cluster: str | None = None) -> None:
        if actor is None:
            join_ray(cluster)
        self.entry = entry
        self._cluster = ray_calls.cluster()
        self._actor = actor

    def __reduce__(self) -> tuple[Any, ...]:
        return KeeperLine, (self.entry, None, self._cluster)

    @property
    def actor(self) -> Any:
        """Its handle, which Ray keeps valid while it restarts the keeper. Raises Gone when there is none."""
        if self._actor is None:
            try:
                self._actor = ray_calls.get_actor(self.entry.name, names.NAMESPACE)
            except ValueError:
                raise self._gone() from None
        return self._actor

    def call(self, method: str, *args: Any, timeout_s: float = math.inf) -> Any:
        """The answer to a call that may be repeated. Raises NoAnswer after ``timeout_s``, Gone when the keeper has ended, and what the call
        raises."""
        deadline_s = clock.monotonic() + timeout_s
        while True:
            ref = ray_calls.call(getattr(self.actor, method), *args)
            while not ray_calls.wait([ref], timeout=max(0.0, min(1.0, deadline_s - clock.monotonic())))[0]:
                if clock.monotonic() > deadline_s:
                    raise NoAnswer(f"job {self.entry.job!r}: its keeper has not answered {method}() within {timeout_s:g} s")
            try:
                return ray_calls.get(ref, timeout=ANSWER_S)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, (RayadError, TimeoutError)) else error from None
            except (RayActorError, GetTimeoutError):  # unknown, or dead and about to begin again, as long as it is in the table
                if not names.lives(self.entry):
                    raise self._gone() from None
            if clock.monotonic() > deadline_s:
                told = f"its keeper died or cannot be reached, and has not answered again within {timeout_s:g} s"
                raise NoAnswer(f"job {self.entry.job!r}: {told}")
            clock.sleep(LOOK_AGAIN_S)

    def _gone(self) -> Gone:
        return Gone(f"the keeper of job {self.entry.job!r} has ended")


__all__ = ["KeeperLine"]
