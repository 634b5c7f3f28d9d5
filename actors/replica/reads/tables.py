"""What a replica answers to those who read the state of its vertex while it runs (docs/design/state.md, 10).

A question names an epoch, and is answered for key-groups that the replica owns alone, when all of the epoch is in its state and former
values reach back to it. Otherwise the answer says what is so: who owns the groups, which epochs can be read. So a reader needs to know
nothing for certain, and every answer that gives rows is right. Pure: called between two activations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.passed import passed_here, passed_of
from rayad.actors.replica.reads.questions import Answer, Begins, Elsewhere, Look, Read, Refused, Rows, Standing
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.live import LiveState
from rayad.dataflow.operators.state.versions import LAST
from rayad.progress import DataflowError, View

HELD_S = 10.0
"""For so long after a question former values are kept for who has asked it."""


@dataclass(slots=True)
class ReplicaTables:
    """The state of one replica, as others read it.

    Args:
        core: the replica.
    """

    core: ReplicaCore
    _holds: dict[str, tuple[int, float]] = field(default_factory=dict)  # by reader: from which epoch on, and until when
    _begun: dict[str | None, tuple[LiveState, str]] = field(default_factory=dict)
    _forgotten: tuple[LiveState | None, int] = (None, -1)  # nobody reads what was before this epoch
    _viewed: tuple[View | None, int] = (None, -1)  # what a view tells

    def passed(self) -> int:
        """The last epoch that is complete here, and at all other replicas of the vertex, as far as is known here."""
        core = self.core
        view = core.view
        if view is not self._viewed[0]:
            self._viewed = view, passed_of(view)
        passed = self._viewed[1]
        if len(core.notificator) or passed == LAST:
            return passed_here(view, core.notificator.pending(), sends_at_end=core.sends_at_end)
        return passed

    def begun(self) -> Begins:
        """To :class:`Begun`. From any thread."""
        return Begins(self.core.begun, self.core.input.epoch)

    # -- questions -----------------------------------------------------------------------
    def answer(self, ask: Look | Read, now_s: float) -> Answer:
        """Answer between two activations."""
        try:
            state = self._begin(ask.state)
        except DataflowError as error:
            return Refused(str(error))
        live, passed = self.core.live, self.passed()
        assert live is not None
        if state is None:
            return Standing(LAST, -1, None)  # it has resumed from a snapshot of an earlier version, and has not done anything since
        least = ask.from_epoch if isinstance(ask, Look) else ask.least
        epoch = None if isinstance(ask, Look) else ask.epoch
        is_named = epoch is not None
        if epoch is None:
            least = max(least, live.since(state))
            self._holds[ask.reader] = least, now_s + HELD_S
            self._forget(live, passed, now_s)  # views may come no more, and new readers may
            epoch = passed
        if isinstance(ask, Look) or epoch < least or (epoch == LAST and not is_named):
            return self._standing(live, state, passed)  # which tells the last epoch of the input, too
        self._holds[ask.reader] = epoch, now_s + HELD_S
        if not live.since(state) <= epoch <= passed:
            return self._standing(live, state, passed)
        core = self.core
        if self.owned(ask.groups) != ask.groups:
            return Elsewhere(core.plan.owners(core.stage))
        if ask.keys is not None:
            return Rows(*live.of_keys(state, epoch, ask.keys), epoch)
        is_all = ask.groups == self._of_layout(
            range(core.plan.key_groups)
        )  # while some are on their way, what has come of them is here, too
        return Rows(live.of_groups(state, epoch, None if is_all else ask.groups), True, epoch)

    def owned(self, groups: Iterable[int]) -> frozenset[int]:
        """Those of these key-groups whose state is here: of the layout of now, but for those that are on their way."""
        migration = self.core.migration
        mine = self._of_layout(groups)
        return mine - migration.coming() if migration is not None else mine

    def _of_layout(self, groups: Iterable[int]) -> frozenset[int]:
        """Those of these that are its own, here or on their way."""
        core = self.core
        owner, stage, replica = core.plan.owner, core.stage, core.replica
        return frozenset([group for group in groups if owner(stage, group) == replica])

    def _standing(self, live: LiveState, state: str, passed: int) -> Standing:
        view = self.core.view
        return Standing(live.since(state), passed, view.end.epoch if view is not None and view.end is not None else None)

    def _begin(self, state: str | None) -> str | None:
        """Keep former values from now on; gives the name of the state. None: which epoch it is of is not known yet."""
        core, vertex, live = self.core, self.core.vertex, self.core.live
        begun = self._begun.get(state)
        if begun is not None and begun[0] is live:
            return begun[1]
        what = f"vertex {core.stage.name!r} ({core.stage.where})"
        if live is None or not isinstance(vertex, KeyedVertex):
            raise DataflowError(
                f"{what} has no keyed state of Rayad's ({type(vertex).__name__}): only what keyed operators keep can be read while the job "
                "runs, as count, sum, fold, stateful_map or latest do"
            )
        if core.stage.depth:
            raise DataflowError(
                f"{what} is inside a loop, whose times have counters: what leaves the loop can be read, by a keyed operator"
            )
        name = None if core.callbacks.applied is None else live.begin(state, what)
        if name is not None and not live.is_of_epochs(name):
            raise DataflowError(
                f"{what} is a {type(vertex).__name__}, which takes records of several epochs in any order: its state is of no epoch, and "
                "cannot be read while the job runs; read it from a snapshot: rd.read_state(job.savepoint(), vertex)"
            )
        if name is not None:
            self._begun[state] = live, name
        return name

    # -- former values -------------------------------------------------------------------
    def _forget(self, live: LiveState, passed: int, now_s: float) -> None:
        holds = self._holds
        for reader in [reader for reader, (_, until_s) in holds.items() if until_s < now_s]:
            del holds[reader]
        least = min(passed, min(holds.values())[0]) if holds else passed
        if self._forgotten != (live, least):
            live.forget(least)
            self._forgotten = live, least

    def look(self, now_s: float) -> None:
        """A view has come: forget what nobody will ask for."""
        live = self.core.live
        if live is not None and live.is_read:
            self._forget(live, self.passed(), now_s)


__all__ = ["HELD_S", "ReplicaTables"]
