"""What moves between the replicas of a vertex with its key-groups: state, the rights of its notifications, the right to send at the end.

A right is counted here and there while it moves, so that no frontier can pass its time in between (docs/design/rescaling.md, 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rayad.actors.replica.progress_changes import ProgressChanges, Right
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.actors.replica.vertex.end_hold import EndHold
from rayad.actors.replica.vertex.rights import VertexRights
from rayad.actors.replica.vertex.waiting_for_time import WaitingForTime
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Stage
from rayad.progress import Timestamp


class StateMoves:
    """State that one replica gives to its siblings and takes from them.

    Args:
        stage: the replica's stage.
        changes, callbacks, rights, waiting, end_hold: parts of the replica.
    """

    def __init__(
        self, stage: Stage, changes: ProgressChanges, callbacks: Callbacks, rights: VertexRights, waiting: WaitingForTime, end_hold: EndHold
    ) -> None:
        self.has_groups = True
        """Whether it has key-groups, or they are on their way to it. A newcomer has none at first, and hears nothing that is broadcast: all
        of it is in the state that it is to take, or is passed on to it behind that."""
        self._may_give = stage.kind is NodeKind.VERTEX
        self._changes, self._callbacks, self._rights, self._waiting, self._end_hold = changes, callbacks, rights, waiting, end_hold

    def give(self, groups: frozenset[int]) -> Any:
        """Take the state of some key-groups out of the vertex; None: there is none, or an EndVertex has sent at the end what it makes of
        it, which a sibling must not do again."""
        vertex = self._callbacks.vertex
        if not groups or not self._may_give or vertex is None or self._end_hold.has_spoken:
            return None
        return self._callbacks.guard("give", partial(vertex.give, groups))

    def rights_along(self) -> tuple[Right, ...]:
        """The rights of the pending notifications, which move with state: counted once more from now on."""
        rights = self._waiting.rights()
        for right in rights:
            self._changes.add(*right, 1)
        return rights

    def hold_along(self) -> tuple[Timestamp | None, Timestamp | None]:
        """What moves with key-groups, also where nothing has come for them: an EndVertex's right to send at the end, counted once more from
        now on, and the last time at which it consumed something. A new replica has no such right of its own."""
        return self._end_hold.along()

    def take(self, state: Any, rights: Sequence[Right]) -> None:
        """Take up state from a sibling. Its rights are counted already, and are replaced by what the vertex asks for here."""
        vertex = self._callbacks.vertex
        assert vertex is not None
        self._rights.came_with_state = tuple(time for _, time in rights)
        self._callbacks.guard("take", partial(vertex.take, state))
        self._rights.came_with_state = ()
        for right in rights:
            self._changes.add(*right, -1)

    def take_hold(self, hold: Timestamp, latest: Timestamp | None) -> None:
        """Take up an EndVertex's right to send at the end, which is counted already. One that has sent already will again, what comes with
        the right: it forgets what it had."""
        vertex = self._callbacks.vertex
        assert vertex is not None
        if self._end_hold.has_spoken:
            self._callbacks.guard("give", partial(vertex.give, frozenset(range(self._rights.key_groups))))
        self._end_hold.take(hold, latest)

    def gave(self) -> None:
        """Tell the vertex that all the state it gave has arrived."""
        if self._callbacks.vertex is not None:
            self._callbacks.guard("gave", self._callbacks.vertex.gave)

    def let_go(self) -> None:
        """Drop the pending notifications and the right to send at the end of a replica that retires: its state has moved."""
        self._waiting.let_go()
        self._end_hold.let_go()
