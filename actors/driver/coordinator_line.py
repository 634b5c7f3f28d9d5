"""The driver's calls to one coordinator, each with a timeout, and a heartbeat.

Ray may take a minute to notice that a node is gone, and never notices that a process is stopped; waiting for an answer that will not come
never ends. So every call waits for its answer or for the end of the coordinator's long call, whichever is first, and
no longer than it was told to. A coordinator that has not answered for the job's heartbeat timeout is ended, and counts as dead.

Unknown is not dead (decision 072). When a connection breaks, Ray fails all calls that were under way with ``ActorUnavailableError``: what
was asked may have been done or not, and the actor may live. Such a call is made again, within its timeout; so control calls may be
repeated. The reference of the long call is lost for good then: the outcome is asked for anew.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
    OwnerDiedError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
)

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.ray_calls import GONE
from rayad.actors.coordinator.outcome import Beat, JobOutcome
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
KNOCK_S = 0.4
"""A coordinator that has not answered a call for so long is asked for a heartbeat, too: it may be well, and busy with the answer."""
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
        ask_outcome: gives another reference to the outcome, when the one before is lost; None, or an error of Ray, while there is none.
    """

    def __init__(
        self, actor: Any, outcome: Any, job: str, patience_s: float, start_timeout_s: float, ask_outcome: Callable[[], Any] | None = None
    ) -> None:
        self.actor = actor
        self.outcome = outcome
        """None while the last one is lost, and nobody gives another one."""
        self.given_up = ""
        """Why it counts as dead; "" while it does not."""
        self._job = job
        self._cluster = ray_calls.cluster()
        self._patience_s = patience_s
        self._ask_outcome = ask_outcome
        self._ask_at_s = 0.0
        self._given: JobOutcome | RayTaskError | None = None
        self._owner_ended = False
        """The reference was lost because its owner has ended, as Ray says."""
        self._taking = threading.Lock()
        self._beats = Heartbeats(max(patience_s, start_timeout_s))
        self.beat: Beat | None = None
        """Its last answer to a heartbeat, as :meth:`listen` got it."""
        self._ping: Any = None
        self._knock: Any = None
        self._listening = threading.Lock()

    def is_connected(self) -> bool:
        """Whether this process is still part of the cluster that the coordinator is in; else any call would start another Ray."""
        return self._cluster is not None and ray_calls.cluster() == self._cluster

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Whether it has ended, in whatever way; waits up to ``timeout_s`` for that."""
        if self.given_up or self._given is not None:
            return True
        if not self.is_connected():
            self.given_up = GONE
            return True
        try:
            outcome = self._reference()
            if outcome is None:
                clock.sleep(min(timeout_s, LOOK_AGAIN_S))
            elif ray_calls.wait([outcome], timeout=timeout_s)[0]:
                self._take(outcome)
        except RayadError as error:  # the driver has just left
            self.given_up = str(error)
        return bool(self.given_up) or self._given is not None

    def take_outcome(self) -> JobOutcome:
        """What its long call gave, once it :meth:`has_ended`. Raises Gone when it died."""
        if isinstance(self._given, RayTaskError):
            raise self._given
        if self._given is None:
            raise Gone(self.given_up)
        return self._given

    def _reference(self) -> Any:
        """The reference to the outcome; another one where the last one is lost, None while nobody gives one."""
        with self._taking:
            if self.outcome is None and self._ask_outcome is not None and clock.monotonic() >= self._ask_at_s:
                self._ask_at_s = clock.monotonic() + GLANCE_S
                try:
                    self.outcome = self._ask_outcome()
                except (ActorUnavailableError, GetTimeoutError):
                    pass  # it is asked again
                except RayActorError as error:
                    self._die(error)
            return self.outcome

    def _take(self, outcome: Any) -> None:
        """What this reference gives, which has an answer: the outcome, the death of the coordinator, or that the answer was lost."""
        with self._taking:
            if outcome is not self.outcome or self._given is not None:
                return  # another thread has done so
            try:
                self._given = ray_calls.get(outcome, timeout=ANSWER_S)
            except RayTaskError as error:
                self._given = error
            except GetTimeoutError:
                _log.warning("job %r: its results have not been fetched within %g s; trying again", self._job, ANSWER_S)
                return
            except (ActorUnavailableError, ObjectLostError) as error:
                self._owner_ended = isinstance(error, OwnerDiedError)
                if self._ask_outcome is None:
                    self._die(error)
                _log.info("job %r: the outcome is asked for again: %s", self._job, error)
            except RayActorError as error:
                self._die(error)
            if self._given is None:
                self.outcome = None

    def _die(self, error: RayError) -> None:
        """It is dead, as Ray says."""
        told = "the process that started the job has ended, and the job with it" if self._owner_ended else str(error).strip()
        self.given_up = self.given_up or told

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
        has_knocked = False
        while True:
            left_s, outcome = deadline_s - clock.monotonic(), self.outcome
            waiting = [ref] if outcome is None else [ref, outcome]
            ready, _ = ray_calls.wait(waiting, num_returns=1, timeout=max(0.0, min(left_s, 1.0 if has_knocked else KNOCK_S)))
            if ready and ref not in ready and self.has_ended():
                ready, _ = ray_calls.wait([ref], timeout=LAST_WORDS_S)
                if not ready:
                    raise Gone(self.given_up or f"{THE_COORDINATOR} has ended")
            if ref in ready:
                try:
                    return self._fetch(ref, method)
                except ActorUnavailableError:  # it may have been done, or not
                    clock.sleep(max(0.0, min(LOOK_AGAIN_S, left_s)))
                    ref = ray_calls.call(getattr(self.actor, method), *args)
            elif not has_knocked:
                has_knocked = True
                self._knock = ray_calls.call(self.actor.ping)
            if self.given_up:
                raise Gone(self.given_up)
            if clock.monotonic() >= deadline_s:
                raise NoAnswer(f"job {self._job!r}: {THE_COORDINATOR} has not answered {method}() within {timeout_s:g} s")

    def _fetch(self, ref: Any, method: str) -> Any:
        try:
            return ray_calls.get(ref, timeout=ANSWER_S)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RayadError) else error from None
        except ActorUnavailableError:
            raise
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
                if not self._hear(ping):
                    self._ping = ray_calls.call(self.actor.ping)
            if not self._beats.is_due(now_s):
                return
            self._beats.look([THE_COORDINATOR], now_s)
            if self._ping is None:
                self._ping = ray_calls.call(self.actor.ping)
            if self._beats.silent() is None or self.given_up:
                return
        told = f"it has not answered for {self._beats.patience_s:g} s: its process is stopped, or its node is gone"
        _log.warning("job %r: %s is given up: %s", self._job, THE_COORDINATOR, told)
        ray_calls.kill(self.actor)  # also fences one that is only stopped; its actors end with it
        if self.outcome is not None:
            ray_calls.wait([self.outcome], timeout=END_S)
        self.given_up = told

    def _hear(self, ping: Any) -> bool:
        """What has become of a heartbeat: an answer, or its death; false for nothing, as its connection broke. Then it is asked again, and
        is silent until it answers."""
        try:
            beat: Beat = ray_calls.get(ping, timeout=ANSWER_S)
            if beat.is_deposed and not (self.beat is not None and self.beat.is_deposed):
                self.outcome = None  # asked for anew: the long call does not end
            self.beat = beat
        except (ActorUnavailableError, GetTimeoutError):
            return False
        except RayActorError as error:
            if self.outcome is None:  # else its long call tells, perhaps of an end before
                self._die(error)
        except RayError:
            _log.debug("job %r: a heartbeat failed", self._job, exc_info=True)
        self._beats.on_answer(THE_COORDINATOR)
        if self._beats.patience_s != self._patience_s:
            self._beats = Heartbeats(self._patience_s)  # it has started
        return True

    def kill(self) -> None:
        """End it, and with it all actors that it owns."""
        if self.is_connected():
            ray_calls.kill(self.actor)

    def silence(self, at_least_s: float, knocking_s: float = 0.0) -> Silent:
        """The coordinator, as one that has not answered a call for so long. Its heartbeat may be well: waits ``knocking_s`` for it."""
        node, knock = self.beat.node if self.beat is not None else "", self._knock
        with suppress(RayError):
            if knock is not None and ray_calls.wait([knock], timeout=knocking_s)[0]:
                beat: Beat = ray_calls.get(knock, timeout=GLANCE_S)
                return Silent(THE_COORDINATOR, beat.node, at_least_s, is_well=True)
        return Silent(THE_COORDINATOR, node, max(at_least_s, self._beats.silence_s(THE_COORDINATOR)))
