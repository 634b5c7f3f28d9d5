"""Runs the callbacks of one replica: one at a time, or nested where a vertex allows re-entrancy.

It knows which callback runs now, at which time it may send, and turns what the user's code raises into an error with its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rayad.actors.replica.user_errors import describe, raise_located
from rayad.dataflow.operators.state.versions import LAST
from rayad.dataflow.plan import Stage
from rayad.dataflow.vertex import Vertex
from rayad.progress import Timestamp


class Callbacks:
    """The callbacks of one replica.

    Args:
        stage, replica: which one it is.
        clock: seconds, for :attr:`doing`.
    """

    def __init__(self, stage: Stage, replica: int, clock: Callable[[], float]) -> None:
        self.vertex: Vertex | None = None
        """Set when the replica starts; None: it reads a source or a live input."""
        self.doing: tuple[str, Timestamp | None, float] | None = None
        """The callback that runs, its time, and since when; None between activations. Any thread may read it."""
        self.now: Timestamp | None = None
        """The time from which on the running callback may send; None: it may not."""
        self.batches = self.records = 0
        self.counted_before = (0, 0)
        """The two counts above, in the run that it resumes from."""
        self.applied: int | None = -1
        """The last epoch of which the state may hold something; None: it has resumed from a snapshot that does not tell."""
        self.reentrancy = 0
        """How many calls of on_recv may be nested."""
        self.nested = 0
        """How many calls of on_recv are now nested inside another callback."""
        self.reentered = 0
        """How many batches have been handed to the vertex inside a callback, instead of going through a queue."""
        self.after: Callable[[], None] | None = None
        """Called after each callback that may have changed the state; None: nothing is to be done."""
        self._broken: Exception | None = None  # what failed in a nested call
        self._title = f"{stage.name!r}[{replica}] ({stage.where})"
        self._clock = clock

    def resume_counts(self, batches: int, records: int) -> None:
        """Continue the counts of the run that the replica resumes from."""
        self.batches, self.records = self.counted_before = batches, records

    def on_recv(self, port: int, batch: Any, time: Timestamp, items: int) -> None:
        """Hand a batch of so many ``items`` to the vertex."""
        vertex = self.vertex
        assert vertex is not None
        self.batches += 1
        self.records += items
        if vertex.in_order:
            self._apply(time.epoch)
        self.now = time
        self.doing = ("on_recv", time, self._clock())
        try:
            vertex.on_recv(port, batch, time)
        except Exception as error:
            self._fail_on_recv(port, batch, time, error)
        self._raise_broken()
        self._end()

    def _apply(self, epoch: int) -> None:
        if self.applied is None or self.applied < epoch:
            self.applied = epoch

    def epoch_now(self) -> int:
        """The epoch that the running callback is of, which may be before :attr:`applied`: key-groups come from siblings that are behind."""
        doing = self.doing
        if doing is None or doing[1] is None:
            return self.last_epoch()
        return doing[1].epoch + (doing[0] == "on_end")

    def last_epoch(self) -> int:
        """The last epoch that the state may hold something of."""
        return LAST if self.applied is None else self.applied

    def took(self, applied: int | None) -> None:
        """State has come from a sibling which holds something of this epoch."""
        if applied is None or self.applied is None:
            self.applied = None
        else:
            self._apply(applied)

    @property
    def may_nest(self) -> bool:
        """Whether a callback runs inside which another call of on_recv is allowed."""
        return self.nested < self.reentrancy and self.now is not None

    def on_recv_nested(self, port: int, batch: Any, time: Timestamp, items: int) -> None:
        """Hand a batch to the vertex inside the callback that sends it. An error in it ends the outer activation, too."""
        vertex = self.vertex
        assert vertex is not None
        self.batches += 1
        self.records += items
        self.reentered += 1
        outer, self.now = self.now, time
        before, self.doing = self.doing, ("on_recv", time, self._clock())
        self.nested += 1
        try:
            vertex.on_recv(port, batch.copy() if isinstance(batch, list) else batch, time)
        except Exception as error:
            try:
                self._fail_on_recv(port, batch, time, error)
            except Exception as located:
                self._broken = located
                raise
        finally:
            self.nested -= 1
            self.now, self.doing = outer, before

    def on_notify(self, time: Timestamp, capability: Timestamp | None) -> None:
        """Deliver a notification; None: it gives no right to send."""
        vertex = self.vertex
        assert vertex is not None
        self._apply(time.epoch)
        self.now = capability
        self.doing = ("on_notify", time, self._clock())
        try:
            vertex.on_notify(time)
        except Exception as error:
            self.fail("on_notify", time, error)
        self._raise_broken()
        self._end()

    def at_end(self, name: str, callback: Callable[[Timestamp], None], time: Timestamp) -> None:
        """Let an EndVertex use its right to send at ``time``. What it does to its state at its end comes after all epochs."""
        self._apply(time.epoch + (name == "on_end"))
        self.now = time
        self.doing = (name, time, self._clock())
        try:
            callback(time)
        except Exception as error:
            self.fail(name, time, error)
        self._end()

    def on_input(self, emit: Callable[[int, Timestamp, Any], None], time: Timestamp, batch: Any, items: int) -> None:
        """Run what follows a source or live input on a batch of so many ``items``."""
        self.batches += 1
        self.records += items
        self.now = time
        self.doing = ("what follows the input", time, self._clock())
        emit(0, time, batch)
        self.now = self.doing = None

    def guard(self, what: str, call: Callable[[], Any]) -> Any:
        """Call another hook of the user's, which has no right to send."""
        self.doing = (what, None, self._clock())
        try:
            out = call()
        except Exception as error:
            self.fail(what, None, error)
        finally:
            self.doing = None
        if self.after is not None:
            self.after()
        return out

    def _end(self) -> None:
        self.now = self.doing = None
        if self.after is not None:
            self.after()

    def fail(self, what: str, time: Timestamp | None, error: Exception) -> NoReturn:
        """Raise what the user's code has raised, with its place."""
        at = f" at {time}" if time is not None else ""
        raise_located(f"{self._title} failed in {what}{at}", error)

    def _fail_on_recv(self, port: int, batch: Any, time: Timestamp, error: Exception) -> NoReturn:
        self.fail(f"on_recv (input {port}, {describe(batch)})", time, error)

    def _raise_broken(self) -> None:
        """Raise the error of a nested call: it ends the activation, even if the vertex caught it."""
        if self._broken is not None:
            raise self._broken
