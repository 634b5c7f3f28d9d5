"""What a coordinator is given: its actors, a plane, a clock, and what its threads are made of. On Ray: ``on_ray.py``, sockets, threads.

The one port for what it asks of actors: start a process, call one, wait for answers, kill. An answer is a value, also where the process
has ended: who asked decides what that means. A simulation gives its own, in which waiting lets everything else happen.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.process.threads import OwnedThread
from rayad.actors.store.line_file import LineFile
from rayad.actors.worker.surroundings import Clock, Link

if TYPE_CHECKING:  # a local job needs a coordinator's store, and no processes
    from rayad.actors.coordinator.processes.kinds import Kind
    from rayad.actors.lead.nodes.node import Node, Site
    from rayad.actors.plane.address import Address
    from rayad.dataflow.resources import Need


# -- answers -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Gave:
    """What a call gave."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised in the actor, or what became of its answer."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has ended, or cannot be reached any more. ``actor``: its id."""

    told: str = ""
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class NotFetched:
    """There is no answer, or it is there and its transfer took too long."""


Answer: TypeAlias = Gave | Raised | Ended | NotFetched


class NoAnswer(ConnectionError):
    """An actor that has to answer did not: it has ended, or is silent. Its death or silence is told elsewhere, and is the cause."""


def given(answer: Answer, asked: str) -> Any:
    """What an answer gives. Raises what the call raised; NoAnswer where there is none. ``asked``: what was asked of whom."""
    match answer:
        case Gave(value):
            return value
        case Raised(error):
            raise error
        case Ended():
            raise NoAnswer(f"{asked}: its process has ended")
        case NotFetched():
            raise NoAnswer(f"{asked}: no answer in time")


# -- ports ---------------------------------------------------------------------------------------------
class Actors(Protocol):
    """The processes of one job. Handles and references are opaque; references can be keys."""

    def parcel(self, value: Any) -> Any:
        """A value for the calls of several processes."""

    def start(self, kind: Kind, title: tuple[str, ...], site: Site) -> Any:
        """Start a process of this kind; gives its handle at once. ``title``: what it is shown as. It is told its work by ``take``."""

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Call a method; gives the reference of the answer at once."""

    def run(self, actor: Any, *arguments: Any) -> tuple[Any, Any]:
        """Begin the long call, which ends with the actor's work: the references of its two results."""

    def wait(self, refs: Sequence[Any], timeout_s: float, count: int = 1) -> list[Any]:
        """Wait until so many of these are answered, or the time is over: those that are, at most ``count``."""

    def take(self, ref: Any, timeout_s: float) -> Answer:
        """The answer; waits for it for at most so long."""

    def kill(self, actor: Any) -> None:
        """End a process, whatever it does; not waited for."""

    def last_words(self, ended: Ended) -> str:
        """What a process said before it ended itself; "" where it did not. They are said once."""

    def nodes(self) -> list[Node]:
        """The nodes that live."""

    def own_node(self) -> str:
        """The id of this process' node."""

    def drains(self) -> dict[str, float]:
        """In how many seconds each node that drains goes, by its id."""

    def check_placeable(self, needs: Sequence[Need], what: str, autoscaling: bool | None) -> None:
        """Raise ConfigError when no node has what replicas need."""

    def free(self) -> str:
        """Resources that are free now, in words."""

    def own_address(self, host: str | None = None) -> str:
        """The address of this process' node, or ``host``."""


class CoordinatorLink(Link, Protocol):
    """A coordinator's end of the data plane; see :class:`rayad.actors.plane.plane.Plane`."""

    def listen(self, host: str = "127.0.0.1", port: int = 0, *, unix: str = "auto") -> Address:
        """Open it; gives the address for the others."""

    def close(self, linger_s: float = 1.0) -> None:
        """End all connections."""


class Event(Protocol):
    """As :class:`threading.Event`."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Steps(Protocol):
    """Work that goes on beside its owner, step by step."""

    def close(self, timeout_s: float) -> bool:
        """Let it end after the step that it is at; whether it has, within so long."""


class Lines(Protocol):
    """A file of lines; see :class:`rayad.actors.store.line_file.LineFile`."""

    def read(self) -> list[str]: ...

    def append(self, line: str) -> None: ...

    def close(self, timeout_s: float) -> None: ...


def in_thread(name: str, step: Callable[[], bool], stop: Callable[[], object]) -> Steps:
    """Steps in a thread of their own, one after the other, until one gives False; ``stop`` lets a step that waits end."""

    def work() -> None:
        while step():
            pass

    return OwnedThread(name, work, stop=stop).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSurroundings:
    """What a coordinator is given besides its processes.

    Args:
        plane: makes its end of the data plane.
        clock: seconds.
        event: makes what its threads wait for.
        beside: runs steps beside its thread.
        lines: makes the file of the journal.
        failure_of: an error of somebody as a value.
    """

    plane: Callable[..., CoordinatorLink]
    clock: Clock = clock
    event: Callable[[], Event] = threading.Event
    beside: Callable[[str, Callable[[], bool], Callable[[], object]], Steps] = in_thread
    lines: Callable[[Any, str], Lines] = LineFile
    failure_of: Callable[[str, BaseException], Failure] = failure_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSurroundings(StoreSurroundings):
    """All that is not the coordinator's own. ``actors``: its processes."""

    actors: Actors


__all__ = [
    "Actors",
    "Answer",
    "CoordinatorLink",
    "CoordinatorSurroundings",
    "Ended",
    "Event",
    "Gave",
    "Lines",
    "NoAnswer",
    "NotFetched",
    "Raised",
    "Steps",
    "StoreSurroundings",
    "given",
    "in_thread",
]
