"""A job's store and sinks, as its supervisor needs them: what the job begins with, what it recovers from, what it publishes at its end.

Each is a call in the :class:`StoreThread`, and its answer an event for the job's leader. A recovery first waits until that thread is done,
with all that follows: a roll-back never meets a commit of the incarnation that failed. The supervisor watches and answers meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from rayad.actors.coordinator.stored.found import Found
from rayad.actors.coordinator.stored.kept_job import KeptJob
from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.stored.store_thread import Returned
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import layouts
from rayad.actors.lead.recovery_leader import ReadStore, RecoveryLeader, StoreAway, StoreRead
from rayad.actors.lead.snapshot_leader import ALL_OR_NONE
from rayad.actors.store.job_store import JobStore
from rayad.progress import RayadError
from rayad.snapshots.manifest import KeeperId, Manifest
from rayad.snapshots.store import StoreAwayError

END_S = 30.0
"""How long a job that has failed waits for a commit that is under way; else it ends as if its process had died in it."""
CANCELLED_S = 2.0
"""How long a cancelled job waits for a commit that is under way: shorter, because its driver does not wait for long."""
SURVIVED = "survived"
"""The note of a snapshot that tells how many failures there were before it."""
_log = logging.getLogger(__name__)


class StoredJob:
    """Of one job; used by its supervising thread, which owns the thread of the store by it.

    Args:
        job: see there.
        recovery: the leader that waits for the answers.
        published: told of each snapshot.
        failed: the event that stands for an error.
        wanted: told with how many replicas vertices are to go on that the snapshot, from which the run resumes, has with others.
        store: of the job; None: as its configuration says.
    """

    def __init__(
        self,
        job: KeptJob,
        recovery: RecoveryLeader,
        *,
        published: Callable[[Manifest], None],
        failed: Callable[[Exception], lead.Event],
        wanted: Callable[[dict[str, int]], None],
        store: JobStore | None = None,
    ) -> None:
        self._job = job
        self._wanted = wanted
        self._store = store
        self._failure_of = job.stands_on.failure_of
        self._recovery = recovery
        self._published = published
        self._failed = failed
        self._calls = job.store_thread
        self.run: str | None = None
        """Tells this coordinator's run from others in the store."""
        self.earlier: tuple[str, ...] = ()
        """The runs of the coordinators that died before, the first one first."""
        self.has_begun = False
        """Whether the job is known to have run: then the store has snapshots, or is away."""
        self.keeper: KeeperId | None = None
        """Of a detached job."""
        self.receipts: dict[int, Any] = {}
        """Of all sinks by id, once the results are published."""
        self._reading: ReadStore | None = None  # asked for, and not begun
        self._answered: deque[lead.Event] = deque()

    def take(self) -> Iterator[lead.Event]:
        """What has been answered. Raises what a sink has raised."""
        try:
            self._calls.serve()
        except Exception:
            if self._recovery.is_running:
                raise
            _log.warning("job %r: this failed while the job recovers, which repeats it", self._job.name, exc_info=True)
        self._read_on()
        while self._answered:
            yield self._answered.popleft()

    def close(self) -> None:
        """The job is over: nothing more begins, and what is under way gets time to end."""
        if not self._calls.close(CANCELLED_S if self._job.cancelled.is_set() else END_S):
            what, for_s = self._calls.under_way() or ("a call", 0.0)
            _log.warning("job %r: it ends in the middle of %s, which has taken %.1f s", self._job.name, what, for_s)

    # -- a beginning, a recovery -------------------------------------------------------------------------
    def read(self, effect: ReadStore) -> Iterable[lead.Event]:
        """Find what to resume from, and its layout."""
        if not self._job.config.keeps_snapshots:
            return [StoreRead(effect.incarnation)]
        self._reading = effect
        self._read_on()
        return ()

    def _read_on(self) -> None:
        """Begin to read when all is done that the store and sinks are at, with what follows on it."""
        effect, snapshots = self._reading, self._job.snapshots
        if effect is None or self._calls.is_busy:
            return
        self._reading = None
        if snapshots is None:
            self._calls.post("beginning the run in its store", self._open, partial(self._answer, partial(self._after_opening, effect)))
            return
        void: int | None = 0
        if effect.region is None:
            snapshots.close()
        else:  # where nothing was left to do, those that live on have been told so
            void = snapshots.fail_region() if self._job.has_work() else None
        if void is None:
            self._answered.append(StoreRead(effect.incarnation, 0, ALL_OR_NONE))
        else:
            answered = partial(self._answer, partial(self._after_reading, effect, snapshots, void))
            self._calls.post("going back to the newest snapshot", partial(snapshots.find_newest, effect.suspected), answered)

    def _answer(self, then: Callable[[Returned[Any]], None], answer: Returned[Any]) -> None:
        """What the recovery waits for: an error in it must not be taken for one that the recovery repeats."""
        try:
            then(answer)
        except Exception as error:
            self._answered.append(self._failed(error))

    def _open(self) -> CoordinatorSnapshots:
        """In the thread of the store."""
        job = self._job
        store = self._store or JobStore(
            job.name,
            job.plan,
            job.config,
            run=self.run,
            earlier=self.earlier,
            has_begun=self.has_begun,
            keeper=self.keeper,
            calls=job.sink_calls,
            claimed=self._await_lease,
        )
        shared: dict[str, Any] = {"job": job.job, "secret": job.secret, "journal": job.journal, "around": job.stands_on}
        snapshots = CoordinatorSnapshots(job.plan, store, **shared, calls=self._calls, places=job.places)
        snapshots.notes = self._notes
        return snapshots

    def _notes(self) -> dict[str, Any]:
        """What the coordinator after this one has to know: how many failures coordinators have survived, and in which job, by its first
        run. Those that coordinators died of are known by their runs."""
        first = self.earlier[0] if self.earlier else self.run
        return {SURVIVED: [first, self._job.failures - len(self.earlier)]}

    def _take_over_failures(self, notes: Mapping[str, Any]) -> None:
        """Count what the coordinators before this one have survived, as the notes of the snapshot tell it."""
        first, survived = notes.get(SURVIVED, (None, 0))
        if self.earlier and first == self.earlier[0]:
            self._job.failures += survived

    def _await_lease(self) -> None:
        """The store is claimed: wait for a coordinator before this one, which may live, to see that."""
        if self._job.lease_s:
            self._job.cancelled.wait(self._job.lease_s)

    def _after_opening(self, effect: ReadStore, answer: Returned[CoordinatorSnapshots]) -> None:
        job = self._job
        try:
            snapshots = answer.given()
        except Exception as error:
            self._answered.append(self._not_read(effect, error))
            return
        job.snapshots = snapshots
        self._take_over_failures(snapshots.manifest.notes)
        snapshots.on_published = self._published
        if snapshots.found_complete(snapshots.manifest):
            self._answered.append(lead.FoundComplete())
            return
        self._lay_out(snapshots)
        self._want(snapshots)
        self._answered.append(StoreRead(effect.incarnation))

    def _want(self, snapshots: CoordinatorSnapshots) -> None:
        """The run begins, in the layout of a snapshot: tell what is asked for."""
        self._wanted(layouts.asked_anew(self._job.plan, snapshots.manifest.notes, self._job.asked))

    def _after_reading(self, effect: ReadStore, snapshots: CoordinatorSnapshots, void: int, answer: Returned[Found]) -> None:
        try:
            found = answer.given()
        except Exception as error:
            self._answered.append(self._not_read(effect, error))
            return
        if snapshots.found_complete(found.manifest):
            self._answered.append(lead.FoundComplete())
            return
        if effect.region is not None:
            self._answered.append(StoreRead(effect.incarnation, void, snapshots.recover_upstream(found)))
            return
        snapshots.recover(found)
        self._lay_out(snapshots)
        if found.begins_again:
            self._want(snapshots)
        self._answered.append(StoreRead(effect.incarnation))

    def _not_read(self, effect: ReadStore, error: Exception) -> lead.Event:
        """There is nothing to resume from, or not yet."""
        if not isinstance(error, StoreAwayError):
            return self._failed(error)
        _log.warning("job %r: the store does not answer: %s", self._job.name, error)
        return StoreAway(effect.incarnation, self._failure_of("coordinator", error))

    def _lay_out(self, snapshots: CoordinatorSnapshots) -> None:
        """The layout is that of the snapshot that is resumed."""
        job = self._job
        job.lay_out(layouts.restored(job.plan, snapshots.manifest.notes, job.asked))
        snapshots.lay_out(job.plan)
        self._recovery.lay_out(job.plan)

    # -- the end -----------------------------------------------------------------------------------------
    def publish(self, from_snapshot: bool, staged: Collection[dict[int, Any]]) -> None:
        """Let all sinks publish, what the last snapshot names or what replicas have ``staged``, by sink."""
        publish = self._publish_snapshot if from_snapshot else partial(self._publish_staged, staged)
        self._calls.post("publishing the results", publish, self._after_publishing)

    def _publish_snapshot(self) -> lead.Event:
        """In the thread of the store."""
        snapshots = self._job.snapshots
        assert snapshots is not None
        assert snapshots.final is not None
        try:
            self.receipts = snapshots.store.publish_finally(snapshots.final)
            snapshots.store.retain()
        except RayadError as error:
            return lead.NotPublished(self._failure_of("the coordinator while publishing", error))
        return lead.ResultsPublished()

    def _publish_staged(self, staged: Collection[dict[int, Any]]) -> lead.Event:
        """In the thread of the store."""
        of_sinks: dict[int, list[Any]] = {}
        for parts in staged:
            for number, part in parts.items():
                of_sinks.setdefault(number, []).append(part)
        for sink in self._job.plan.sinks:
            try:
                self.receipts[sink.id] = self._job.sink_calls.call(sink, "publish", of_sinks.get(sink.id, []))
            except Exception as error:
                return lead.NotPublished(self._failure_of(f"sink {sink.key!r} ({sink.where}) failed in publish", error))
        return lead.ResultsPublished()

    def _after_publishing(self, answer: Returned[lead.Event]) -> None:
        try:
            self._answered.append(answer.given())
        except Exception as error:
            self._answered.append(self._failed(error))


__all__ = ["StoredJob"]
