"""The driver's calls to one coordinator, each with a timeout, and a heartbeat.

Ray may take a minute to notice that a node is gone, and never notices that a process is stopped; waiting for an answer that will not come
never ends. So every call waits for its answer or for the end of the coordinator's long call, whichever is first, and
no longer than it was told to. A coordinator that has not answered for the job's heartbeat timeout is ended, and counts as dead.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from contextlib import suppress
from typing import Any

from ray.exceptions import GetTimeoutError, OwnerDiedError, RayActorError, RayError, RaySystemError, RayTaskError

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.ray_calls import GONE
from rayad.actors.coordinator.outcome import Beat
from rayad.actors.job import THE_COORDINATOR, Silent
from rayad.actors.lead.heartbeats import Heartbeats
from rayad.progress import RayadError

ANSWER_S = 10.0
"""How long the coordinator may take for an answer for which it need not wait itself."""
GLANCE_S = 0.9
"""How long state, progress and explain_stuck wait for the coordinator; then they give what was last known."""
LOOK_AGAIN_S = 0.1
"""Seconds between two looks for the replacement of an actor that died."""
LAST_WORDS_S = 1.0
"""How long an answer may still take to arrive after the long call has ended."""
END_S = 10.0
"""How long Ray may take to report the end of a silent coordinator that was killed."""
_log = logging.getLogger(__name__)


class Gone(Exception):
    """The coordinator has ended, or its cluster is gone: there will be no answer."""


class NoAnswer(TimeoutError):
    """There is no answer yet."""


class CoordinatorLine:
    """The driver's calls to one coordinator.

    Args:
        actor: its handle; None when only its outcome is left.
        outcome: the reference of its long call.
        job: the job's name.
        patience_s: how long it may be silent.
        start_timeout_s: how long it may take to start, before it has answered for the first time.
    """

    def __init__(self, actor: Any, outcome: Any, job: str, patience_s: float, start_timeout_s: float) -> None:
        self.actor = actor
        self.outcome = outcome
        self.given_up = ""
        """Why it counts as dead although Ray does not report it; "" while it does not."""
        self._job = job
        self._cluster = ray_calls.cluster()
        self._patience_s = patience_s
        self._beats = Heartbeats(max(patience_s, start_timeout_s))
        self.beat: Beat | None = None
        """Its last answer to a heartbeat, as :meth:`listen` got it."""
        self._ping: Any = None
        self._listening = threading.Lock()

    def is_connected(self) -> bool:
        """Whether this process is still part of the cluster that the coordinator is in; else any call would start another Ray."""
        return self._cluster is not None and ray_calls.cluster() == self._cluster

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Whether it has ended, in whatever way; waits up to ``timeout_s`` for that."""
        if self.given_up:
            return True
        if not self.is_connected():
            self.given_up = GONE
            return True
        try:
            return bool(ray_calls.wait([self.outcome], timeout=timeout_s)[0])
        except RayadError as error:  # the driver has just left
            self.given_up = str(error)
            return True

    def take_outcome(self) -> Any:
        """What its long call gave, once it :meth:`has_ended`. Raises Gone when it died."""
        if self.given_up:
            raise Gone(self.given_up)
        try:
            return ray_calls.get(self.outcome, timeout=ANSWER_S)
        except RayActorError as error:
            raise Gone(str(error).strip()) from error
        except OwnerDiedError:
            raise Gone("the process that started the job has ended, and the job with it") from None
        except GetTimeoutError:
            raise Gone(f"what it gave could not be fetched within {ANSWER_S:g} s: its node may be gone") from None

    def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        """The answer to a control call. Raises NoAnswer after ``timeout_s``, Gone when there will be none, and what the call raises."""
        if self.given_up or not self.is_connected():
            self.has_ended()
            raise Gone(self.given_up)
        if self.actor is None:
            raise Gone(f"{THE_COORDINATOR} has ended")
        try:
            return self._call(method, args, timeout_s)
        except (RaySystemError, RayadError):
            if self.is_connected():
                raise  # the coordinator's own error
            self.given_up = GONE  # the driver has just left
            raise Gone(self.given_up) from None

    def _call(self, method: str, args: tuple[Any, ...], timeout_s: float) -> Any:
        deadline_s = clock.monotonic() + timeout_s
        ref = ray_calls.call(getattr(self.actor, method), *args)
        while True:
            left_s = deadline_s - clock.monotonic()
            ready, _ = ray_calls.wait([ref, self.outcome], num_returns=1, timeout=max(0.0, min(left_s, 1.0)))
            if ready and ref not in ready:
                ready, _ = ray_calls.wait([ref], timeout=LAST_WORDS_S)
                if not ready:
                    raise Gone(f"{THE_COORDINATOR} has ended")
            if ref in ready:
                return self._fetch(ref, method)
            if self.given_up:
                raise Gone(self.given_up)
            if clock.monotonic() > deadline_s:
                raise NoAnswer(f"job {self._job!r}: {THE_COORDINATOR} has not answered {method}() within {timeout_s:g} s")

    def _fetch(self, ref: Any, method: str) -> Any:
        try:
            return ray_calls.get(ref, timeout=ANSWER_S)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RayadError) else error from None
        except RayActorError as error:
            raise Gone(str(error).strip()) from error
        except GetTimeoutError:
            raise NoAnswer(f"job {self._job!r}: the answer to {method}() could not be fetched within {ANSWER_S:g} s") from None

    # -- the heartbeat ---------------------------------------------------------------------------------
    def listen(self) -> None:
        """From the thread that watches the job, again and again: ask when it is time, and end a coordinator that is silent for too long."""
        with self._listening:
            now_s = clock.monotonic()
            if self._ping is not None and ray_calls.wait([self._ping], timeout=0)[0]:
                ping, self._ping = self._ping, None
                with suppress(RayError):  # it died: its long call tells of that
                    self.beat = ray_calls.get(ping, timeout=ANSWER_S)
                self._beats.on_answer(THE_COORDINATOR)
                if self._beats.patience_s != self._patience_s:
                    self._beats = Heartbeats(self._patience_s)  # it has started
            if not self._beats.is_due(now_s):
                return
            if self._beats.look([THE_COORDINATOR], now_s):
                self._ping = ray_calls.call(self.actor.ping)
            if self._beats.silent() is None:
                return
        told = f"it has not answered for {self._beats.patience_s:g} s: its process is stopped, or its node is gone"
        _log.warning("job %r: %s is given up: %s", self._job, THE_COORDINATOR, told)
        ray_calls.kill(self.actor)  # also fences one that is only stopped; its actors end with it
        ray_calls.wait([self.outcome], timeout=END_S)
        self.given_up = told

    def kill(self) -> None:
        """End it, and with it all actors that it owns."""
        if self.is_connected():
            ray_calls.kill(self.actor)

    def silence(self, at_least_s: float) -> Silent:
        """The coordinator, as one that does not answer."""
        node = self.beat.node if self.beat is not None else ""
        return Silent(THE_COORDINATOR, node, max(at_least_s, self._beats.silence_s(THE_COORDINATOR)))
