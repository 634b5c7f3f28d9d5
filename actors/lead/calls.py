"""What a leader asks an actor for: each call is a value that names a method of the actor, and its arguments in their order.

A shell delivers a call by its kind and by the name of the actor, and knows none of them but the few that it carries out itself:

    Condition        the actor answers True (or a value) as soon as it is so, or False when it has kept the question as long as it may
    OwnCall          for the coordinator; its shell does it
    Listen, Run      of the actor itself: its event loop does not run yet
    all others       one method of a replica's ``HostRescale``, or of the ``ProgressHost``, in its event loop
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.report import Left
from rayad.dataflow.plan import Layout


@dataclass(frozen=True, slots=True)
class Call:
    """A method, and its arguments.

    >>> IsSettled(7).method, IsSettled(7).arguments
    ('is_settled', (7,))
    """

    method: ClassVar[str]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """In the order of the method's parameters."""
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Condition(Call):
    """Something that an actor waits for: it answers whether it is so."""


@dataclass(frozen=True, slots=True)
class OwnCall(Call):
    """Something that the coordinator does itself, or its thread, which keeps the snapshots."""


# -- replicas, before a change has begun -------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class MayMove(Call):
    """Gives why the vertex cannot be divided; "" when it can."""

    method: ClassVar[str] = "may_move"


@dataclass(frozen=True, slots=True)
class Listen(Call):
    """A new process builds the replicas that it holds, and opens its plane: gives its address, or a ``Failure``.

    ``incarnation``: its own; ``incarnations``: of all processes; ``ended``: how often processes of its vertex have ended in a row.
    """

    method: ClassVar[str] = "listen"
    incarnation: int
    incarnations: Mapping[str, int]
    layout: Layout
    ended: int


@dataclass(frozen=True, slots=True)
class Prepare(Call):
    """Take notice of newcomers, and connect to whom there will be something to exchange with. Void where a later turn has been heard of.

    ``newcomers``: by stage and number; ``addresses``: of the processes that hold replicas of the stages that are ``moving``, newcomers
    among them; ``incarnations``: of the processes that are new.
    """

    method: ClassVar[str] = "prepare"
    turn: int
    layout: Layout
    newcomers: tuple[ReplicaId, ...]
    addresses: Mapping[str, object]
    incarnations: Mapping[str, int]
    moving: frozenset[int]


@dataclass(frozen=True, slots=True)
class Run(Call):
    """A new process begins its work, and connects to these. The end of its work is no answer to this."""

    method: ClassVar[str] = "run"
    addresses: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Admit(Call):
    """A newcomer that comes to a process which is there: build it, connect, and register.

    ``incarnations`` and ``addresses``: of all processes.
    """

    method: ClassVar[str] = "admit"
    layout: Layout
    incarnations: Mapping[str, int]
    addresses: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Withdraw(Call):
    """Such a newcomer does not stay."""

    method: ClassVar[str] = "withdraw"


@dataclass(frozen=True, slots=True)
class IsPrepared(Condition):
    """All connections are there, and the state is ready to be given."""

    method: ClassVar[str] = "is_prepared"


# -- replicas, in a change ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Relayout(Call):
    """Route by this layout, and give the state that leaves; void in a later step."""

    method: ClassVar[str] = "relayout"
    step: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class IsSettled(Condition):
    """All that the step asks of the replica is done."""

    method: ClassVar[str] = "is_settled"
    step: int


@dataclass(frozen=True, slots=True)
class Costs(Call):
    """Gives what the change has cost the replica so far, and what its last step did; None if it had no part in that."""

    method: ClassVar[str] = "costs"


@dataclass(frozen=True, slots=True)
class IsDrained(Condition):
    """All that was passed on to the replica is consumed."""

    method: ClassVar[str] = "is_drained"


@dataclass(frozen=True, slots=True)
class Leave(Call):
    """Retire; what sink writers have staged since the snapshot ``base`` stays behind. The answer says that it was heard."""

    method: ClassVar[str] = "leave"
    base: int


@dataclass(frozen=True, slots=True)
class HasLeft(Condition):
    """All that the replica sent is on its way, and counted: it answers with what it leaves, a ``Left``."""

    method: ClassVar[str] = "has_left"


@dataclass(frozen=True, slots=True)
class HasEnded(Condition):
    """The last markers on these channels, ``(edge, sender)``, have come."""

    method: ClassVar[str] = "has_ended"
    channels: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Commit(Call):
    """The change is over, carried out or not, and this is the layout: gives what it has cost. Void where a later change has been heard
    of."""

    method: ClassVar[str] = "commit"
    turn: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Configure(Call):
    """Take up runtime parameters, as far as this stage says."""

    method: ClassVar[str] = "configure"
    changes: Mapping[str, Any]
    stage: str


# -- the progress actor ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Hold(Call):
    """The job is not over before it is released, even if nothing is left to do; gives False when it is over already."""

    method: ClassVar[str] = "hold"


@dataclass(frozen=True, slots=True)
class Release(Call):
    """The job may be over."""

    method: ClassVar[str] = "release"


@dataclass(frozen=True, slots=True)
class Join(Call):
    """Expect these to register while the job runs."""

    method: ClassVar[str] = "join"
    names: tuple[str, ...]
    incarnation: int


@dataclass(frozen=True, slots=True)
class Joined(Condition):
    """These have registered."""

    method: ClassVar[str] = "joined"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget(Call):
    """These will not register, or not stay."""

    method: ClassVar[str] = "forget"
    names: tuple[str, ...]


# -- the coordinator ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class HoldSnapshots(OwnCall):
    """Let no snapshot begin; answered when none is under way."""

    method: ClassVar[str] = "hold_snapshots"


@dataclass(frozen=True, slots=True)
class ReleaseSnapshots(OwnCall):
    """Snapshots may begin again, and one does: it keeps the layout."""

    method: ClassVar[str] = "release_snapshots"


@dataclass(frozen=True, slots=True)
class StartProcesses(OwnCall):
    """Start these processes beside the running job, in a new incarnation; gives why there is no room, "" when there is."""

    method: ClassVar[str] = "start_processes"
    processes: tuple[str, ...]
    layout: Layout
    incarnation: int


@dataclass(frozen=True, slots=True)
class Expect(OwnCall):
    """These will come, and take part in snapshots; ``processes``: those that are new."""

    method: ClassVar[str] = "expect"
    names: tuple[str, ...]
    processes: tuple[str, ...]
    layout: Layout
    incarnation: int


@dataclass(frozen=True, slots=True)
class LastPublished(OwnCall):
    """Gives the snapshot that was published last: what was staged since has to be kept."""

    method: ClassVar[str] = "last_published"


@dataclass(frozen=True, slots=True)
class Part(OwnCall):
    """Replicas have retired: what each has ``left`` behind goes into the next snapshot, which is without them."""

    method: ClassVar[str] = "part"
    layout: Layout
    left: Mapping[str, Left]
