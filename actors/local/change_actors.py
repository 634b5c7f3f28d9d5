"""The progress actor's and the coordinator's part in a change of a local job, with the methods that calls name (``lead/calls.py``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rayad.actors.lead import snapshot_leader
from rayad.actors.local.moves import Moves, where
from rayad.actors.local.network import Network
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.replica.part_files import write_staged
from rayad.actors.replica.report import Left
from rayad.dataflow.plan import Layout
from rayad.progress import InternalError, ProtocolError
from rayad.snapshots.barrier import Barrier


class ProgressPart:
    """What ``ProgressHost`` is on Ray."""

    def __init__(self, network: Network, snapshots: LocalSnapshots | None) -> None:
        self.holds = False
        """Whether the job is not over before the change is."""
        self._network = network
        self._snapshots = snapshots
        self._joining: dict[str, int] = {}
        self._joined: set[str] = set()

    def hold(self) -> bool:
        """See :class:`rayad.actors.lead.calls.Hold`."""
        self.holds = self._snapshots is None or not self._snapshots.leader.is_ending
        return self.holds

    def release(self) -> None:
        """See :class:`rayad.actors.lead.calls.Release`."""
        self.holds = False

    def join(self, names: Collection[str], incarnation: int) -> None:
        """See :class:`rayad.actors.lead.calls.Join`."""
        self._joining.update(dict.fromkeys(names, incarnation))

    def register(self, name: str, incarnation: int) -> None:
        """A newcomer runs, and tells what it holds."""
        if self._joining.get(name) != incarnation:
            raise ProtocolError(f"the progress actor does not expect {name} in incarnation {incarnation}: {self._joining}")
        self._network.tracker.apply(self._network.cores[where(name)].take_changes())
        self._joined.add(name)

    def joined(self, names: Collection[str]) -> bool:
        """See :class:`rayad.actors.lead.calls.Joined`."""
        return self._joined.issuperset(names)

    def forget(self, names: Collection[str]) -> None:
        """See :class:`rayad.actors.lead.calls.Forget`; newcomers hold nothing yet."""
        for name in names:
            self._joining.pop(name, None)


class CoordinatorPart:
    """What ``CoordinatorsPart`` is on Ray."""

    def __init__(self, network: Network, snapshots: LocalSnapshots | None, moves: Moves, newest: int) -> None:
        self._newest = newest  # incarnation of the job
        self._network = network
        self._snapshots = snapshots
        self._moves = moves
        self._expected: dict[str, int] = {}

    def hold_snapshots(self) -> None:
        """See :class:`rayad.actors.lead.calls.HoldSnapshots`; answered when :attr:`is_free`."""
        if self._snapshots is not None:
            self._snapshots.tell(snapshot_leader.ChangeWanted())

    @property
    def is_free(self) -> bool:
        """Whether no snapshot is under way."""
        snapshots = self._snapshots
        return snapshots is None or (snapshots.leader.may_change and not snapshots.forgetting)

    def release_snapshots(self) -> None:
        """See :class:`rayad.actors.lead.calls.ReleaseSnapshots`."""
        if self._snapshots is not None:
            self._snapshots.tell(snapshot_leader.ChangeOver())

    def start_processes(self, processes: Collection[str], layout: Layout, incarnation: int) -> str:
        """See :class:`rayad.actors.lead.calls.StartProcesses`: there is room for everything here, and nothing to start."""
        if incarnation <= self._newest:
            raise InternalError(f"newcomers {processes} in incarnation {incarnation}, and {self._newest} has been used")
        return ""

    def expect(self, names: Collection[str], processes: Collection[str], layout: Layout, incarnation: int) -> None:
        """See :class:`rayad.actors.lead.calls.Expect`."""
        self._expected.update(dict.fromkeys(names, incarnation))
        self.lay_out_snapshots(layout)

    def on_newcomer(self, name: str, incarnation: int) -> None:
        """A newcomer runs."""
        if self._snapshots is not None and self._expected.get(name) != incarnation:
            raise ProtocolError(f"the coordinator does not expect {name} in incarnation {incarnation}: {self._expected}")

    def last_published(self) -> int:
        """See :class:`rayad.actors.lead.calls.LastPublished`."""
        return self._snapshots.snapshots.base if self._snapshots is not None else 0

    def part(self, layout: Layout, left: Mapping[str, Left]) -> None:
        """See :class:`rayad.actors.lead.calls.Part`."""
        network, snapshots = self._network, self._snapshots
        for name, given in left.items():
            staged = given.staged
            if snapshots is None:
                network.retired.staged.extend(staged.items())
                continue
            at = where(name)
            del snapshots.participants[at]
            network.retired.count += 1
            barrier = Barrier(-network.retired.count, snapshots.snapshots.published + 1, 0)
            stage = network.plan.stage(at[0])
            files = write_staged(snapshots.store.store, stage, at[1], snapshots.incarnation, barrier, staged.values())
            snapshots.leave_behind(files)

    # -- effects that are no calls -------------------------------------------------------------------
    def take_in(self, names: Collection[str], layout: Layout) -> None:
        """The newcomers belong to the job from now on."""
        network = self._network
        network.plan = network.plan.laid_out(layout)
        for name in names:
            at = where(name)
            network.views[at].append(network.tracker.view(at[0]))
            network.ready.add(("view", at))

    def lay_out(self, layout: Layout, gone: Collection[str]) -> None:
        """These are no more; this is the layout."""
        network = self._network
        for name in gone:
            at = where(name)
            core = network.cores.get(at)
            if core is not None:
                network.retired.batches[at[0]] = network.retired.batches.get(at[0], 0) + core.batches_in
                core.close()
            self._moves.remove(at)
            self._moves.listening.pop(name, None)
        network.plan = network.plan.laid_out(layout)
        self.lay_out_snapshots(layout)

    def lay_out_snapshots(self, layout: Layout) -> None:
        """Snapshots are of these replicas from now on."""
        if self._snapshots is not None:
            self._snapshots.lay_out(self._network.plan.laid_out(layout))


__all__ = ["CoordinatorPart", "ProgressPart"]
