"""What is known of a job by whoever keeps its store: its plan, its snapshots, and the thread that calls the store and the sinks."""

from __future__ import annotations

from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.stored.store_thread import StoreThread
from rayad.actors.coordinator.surroundings import StoreSurroundings
from rayad.actors.lead import layouts
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Left
from rayad.actors.status.journal import Journal
from rayad.actors.store.sink_calls import SinkCalls
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan


class KeptJob:
    """One job.

    Args:
        plan: the dataflow, in the layout that it is asked for; later in the one that it has.
        config: of the run.
        job, secret: of the data plane.
        name: of the job, for people.
        places: which process holds which replica.
        around: what is not its own.
    """

    def __init__(
        self, plan: Plan, config: RunConfig, job: str, secret: bytes, name: str, places: Places, around: StoreSurroundings
    ) -> None:
        self.stands_on = around
        self.plan = plan
        self.places = places
        self.config = config
        self.job = job
        self.secret = secret
        self.name = name
        self.asked = layouts.asked_of(plan)
        self.journal = Journal(around.clock.time)
        self.snapshots: CoordinatorSnapshots | None = None
        """Of its snapshots, if it keeps any."""
        self.left: list[tuple[str, Left]] = []
        """What replicas that have retired left behind, by name."""
        self.sink_calls = SinkCalls(name)
        self.failures = 0
        """That the job has survived, the deaths of coordinators before this one among them."""
        self.store_thread = StoreThread(self._wake, around.clock.monotonic, around.event, around.beside)
        self.cancelled = around.event()
        self.lease_s = 0.0
        """After it has claimed the store it waits so long before anything is written: a coordinator before it may still live."""

    def _wake(self) -> None:
        """From any thread: the supervising thread looks again."""
        if self.snapshots is not None:
            self.snapshots.wakeup()

    def lay_out(self, plan: Plan) -> None:
        """The job begins, or begins anew, in this layout."""
        self.plan = plan

    def has_work(self) -> bool:
        """Whether something is left to do: else all have been told that the job is complete."""
        raise NotImplementedError


__all__ = ["KeptJob"]
