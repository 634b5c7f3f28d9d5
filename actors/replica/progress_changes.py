"""What one replica has to report to the progress core: changes of counts that have not been sent yet.

One owner, because a report is atomic: all that an activation consumed, sent and asked for is in the same one (Naiad, 3.3).
"""

from __future__ import annotations

from rayad.dataflow.plan import Plan, Stage
from rayad.progress import Timestamp

Right = tuple[int, Timestamp]
"""A location of the progress graph and a time: a capability that is counted while it moves to a sibling."""


class ProgressChanges:
    """The changes of one replica since its last report.

    Args:
        plan: the whole plan.
        stage: the replica's stage.
    """

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._notify, self._capability = stage.notify_location, stage.capability_location
        self._edges = plan.edge_by_id
        self._counts: dict[Right, int] = {}
        self._ended: tuple[tuple[int, Timestamp, int], ...] = ()

    def __len__(self) -> int:
        """How many changes wait for the next report."""
        return len(self._counts) + len(self._ended)

    def lay_out(self, plan: Plan) -> None:
        """Count by the edges of another layout."""
        self._edges = plan.edge_by_id

    def add(self, location: int, time: Timestamp, delta: int) -> None:
        """Count something at a location of the progress graph."""
        key = (location, time)
        counts = self._counts
        total = counts.get(key, 0) + delta
        if total:
            counts[key] = total
        else:
            counts.pop(key, None)

    def on_edge(self, edge_id: int, time: Timestamp, batches: int) -> None:
        """Count batches on their way on an edge; a negative number has been consumed."""
        edge = self._edges[edge_id]
        self.add(edge.count_location, time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth), batches)

    def count_waiting(self, edge_id: int, time: Timestamp, batches: int = 1) -> None:
        """Count restored batches that wait on an edge as if they had just been sent; a negative number counts batches that were joined."""
        self.on_edge(edge_id, time, batches)

    def at_vertex(self, time: Timestamp, delta: int) -> None:
        """Count work of the vertex at a time: an epoch of its input, a notification, or a batch that waits there for its time."""
        self.add(self._notify, time, delta)

    def capability(self, time: Timestamp, delta: int) -> None:
        """Count a right to send at a time."""
        self.add(self._capability, time, delta)

    def right_of(self, guarantee: Timestamp, capability: Timestamp) -> Right:
        """Where a notification with a capability is counted."""
        return (self._notify if capability == guarantee else self._capability), capability

    def notification(self, guarantee: Timestamp, capability: Timestamp | None, delta: int) -> None:
        """Count a notification that is asked for, or is over. The progress core does not see one without capability."""
        if capability is not None:
            self.add(*self.right_of(guarantee, capability), delta)

    def end(self, epoch: int) -> None:
        """Report that the input ended in an epoch. It is a change of 0: the time is all that it says."""
        self._ended = ((self._notify, Timestamp(epoch), 0),)

    def take(self) -> list[tuple[int, Timestamp, int]]:
        """Take everything out, for one report."""
        if not self._counts and not self._ended:
            return []
        out = [(location, time, delta) for (location, time), delta in self._counts.items()]
        out += self._ended
        self._ended = ()
        self._counts.clear()
        return out
