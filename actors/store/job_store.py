"""Where a job keeps its snapshots, and what its coordinator does with them: begin a run, publish, let sinks publish, forget old ones.

Both runtimes use it. It reads and writes files and calls the user's sinks; :class:`SnapshotAttempts` decides when to do what.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from rayad.actors.replica.graph_shape import graph_shape
from rayad.actors.replica.input.source_parts import parts_of
from rayad.actors.replica.migration import may_resume
from rayad.actors.replica.parts.part_files import StagedValues, attempt_name, merge_staged
from rayad.actors.replica.parts.part_reading import read_part
from rayad.actors.replica.rest import ResumedPart
from rayad.actors.replica.user_errors import raise_located
from rayad.actors.store.sink_calls import SinkCalls
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import SnapshotError
from rayad.snapshots.attempts import SnapshotAttempts, SnapshotStatistics
from rayad.snapshots.manifest import KeeperId, Manifest
from rayad.snapshots.resume_point import NEVER, begin_run, claim_of, require_fit
from rayad.snapshots.store import MANIFEST, SnapshotStore, StoreAwayError, Superseded, below

_log = logging.getLogger(__name__)
DEFAULT_FOLDER = os.path.join("~", ".rayad")


def folder_of_jobs(config: RunConfig) -> str:
    """The folder, or URI, below which each job that is run so has its own."""
    return config.storage_path if config.storage_path is not None else os.path.expanduser(DEFAULT_FOLDER)


def open_store(job: str, config: RunConfig) -> SnapshotStore:
    """The store of a job. With a secret it takes what is signed for this job, and for another one that the configuration names."""
    return SnapshotStore(
        below(folder_of_jobs(config), job, "snapshots"),
        secret=config.snapshots.secret,
        jobs=[job, *filter(None, [config.snapshots.signed_for])],
    )


class JobStore:
    """The snapshots of one run of a job.

    Args:
        job: its name.
        plan: the dataflow.
        config: of the run.
        store: used instead of the one that ``config`` names.
        run: tells this run from others of the job.
        calls: makes the calls of sinks, and lets other threads see which is under way.
        earlier: runs whose coordinators have died: if one of them has begun, this one resumes from its snapshots, whatever ``resume`` says.
        has_begun: whether one of them is known to have begun: then a store without snapshots has gone away.
        keeper: of a detached job.
        claimed: called when this run has claimed the store, before sinks are brought to where it resumes.
    """

    def __init__(
        self,
        job: str,
        plan: Plan,
        config: RunConfig,
        store: SnapshotStore | None = None,
        *,
        run: str | None = None,
        earlier: Collection[str] = (),
        has_begun: bool = False,
        keeper: KeeperId | None = None,
        calls: SinkCalls | None = None,
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        self.job = job
        self._claimed = claimed
        self._calls = calls if calls is not None else SinkCalls(job)
        self.plan = plan
        self.config = config
        self.store = store if store is not None else open_store(job, config)
        self.graph = {**graph_shape(plan), "movable": [stage.name for stage in plan.stages if may_resume(stage, plan)]}
        self.run = run if run is not None else secrets.token_hex(8)
        self._earlier = earlier
        self._has_begun = has_begun
        self._keeper = keeper
        self.begun: Manifest | None = None
        self.manifest: Manifest | None = None
        """What a recovery resumes from."""
        self.receipts: dict[str, Any] = {}
        self.identities: dict[str, str] = {}
        """By sink: the identity that each copy of it adopts before its writers are opened, when the job continues an earlier run."""
        self.remarks: list[str] = []
        self.savepoints: list[int] = []
        self._newest = 0  # that this run has published
        self._claims: list[int] = []  # of the runs of the job until now, the last of this one
        self._void: list[int] = []  # snapshots in the store from which nothing may resume
        self._suspected: set[str] = set()  # files of snapshots that replicas could not read
        self._goes_back = False  # whether it may resume from snapshots before its beginning, if replicas cannot read that

    def begin(self) -> Manifest:
        """Choose the snapshot to resume from, claim the store, and let sinks publish again what that snapshot had staged."""
        resume = self.config.resume
        if isinstance(resume, str) and resume not in ("latest", NEVER):
            resume = self.number_of(resume)
        there = self._newest_manifest()
        newest = [found for found in there if found is not None]
        if self._has_begun and newest and newest[0].run not in self._earlier:
            raise Superseded(f"another run of job {self.job!r} has claimed {self.store.folder!r} (snapshot {newest[0].number})")
        if self._has_begun or any(found.run in self._earlier for found in newest):
            resume = "latest"
        self._goes_back = resume == "latest"
        self.begun, self.remarks = begin_run(
            self.store,
            resume,
            job=self.job,
            graph=self.graph,
            key_groups=self.plan.key_groups,
            run=self.run,
            start=self._start,
            keeper=self._keeper,
            has_begun=self._has_begun or bool(there),
            is_first=not self._earlier,
            reopens=self._reopens,
        )
        self._claimed()
        self._begin_with(self.begun)
        self.savepoints = [number for number in self.store.numbers() if self._is_savepoint(number)]
        self.manifest = self.begun
        self._newest = self.begun.number
        self._void = self.begun.notes.get("void", [])
        self._claims = list(self.begun.claims)
        for sink in self.plan.sinks:
            sink.sink.run = self.begun.number
        if "stands_for" in self.begun.notes:
            for sink in self.plan.sinks:
                identity = self.identities.get(sink.key)
                if identity is not None:
                    sink.sink.adopt(identity)
            self._go_on_from(self.begun)
        return self.begun

    def on_running(self) -> None:
        """All replicas have read what the job resumes from: from now on a recovery goes back to this run's snapshots alone."""
        self._goes_back = False

    def recover(self, suspected: Collection[str] = ()) -> Manifest:
        """The newest whole snapshot of this run, or its beginning; as long as no replica has run, also what was there before it, where
        ``resume`` names none.

        Files are listed; the replicas read them. ``suspected``: what they could not read, which is read here, from now on.

        Raises SnapshotError when another run has claimed the store, NothingWhole when there is nothing to resume from.
        """
        assert self.begun is not None
        assert self.manifest is not None
        self._suspected.update(suspected)
        refused: list[str] = []
        numbers = self.store.numbers()
        if not numbers or numbers[-1] < self._newest:
            raise self._away(numbers)
        for number, found, why in self.store.newest_first(numbers, partial(self.store.check_listed, suspected=self._suspected)):
            is_before = number < self.begun.number
            if is_before and not self._goes_back:
                break
            if found is None and number > self._newest:
                raise Superseded(f"{why}; another run of job {self.job!r} has published it")
            if found is not None and found.run != self.run and not is_before:
                raise Superseded(f"another run of job {self.job!r} has claimed {self.store.folder!r} (snapshot {number})")
            self._newest = max(self._newest, number)
            if why or found is None:
                refused.append(why)
                continue
            manifest = found
            if refused:
                self.remarks.extend(refused)
                _log.warning("job %r: it resumes from snapshot %d; newer ones are not used: %s", self.job, number, "; ".join(refused))
                manifest = self._take_again(manifest, numbers)
            self.manifest = manifest
            self._go_on_from(manifest)
            return manifest
        raise NothingWhole(f"job {self.job!r} has no whole snapshot to resume from in {self.store.folder!r}: " + "; ".join(refused))

    @property
    def _reopens(self) -> list[str]:
        return [name for name, stage in self.plan.inputs.items() if self.plan.stage(stage).op.reopens]

    def _away(self, numbers: Sequence[int]) -> StoreAwayError:
        """The newest snapshot of this run is not in the store, nor a newer one."""
        has = f"its newest is {numbers[-1]}" if numbers else "it has none at all"
        return StoreAwayError(
            f"snapshot {self._newest}, the newest of job {self.job!r}, is not in {self.store.folder!r} ({has}): the folder has gone away, "
            "is another one, or was emptied"
        )

    @property
    def newest(self) -> int:
        """The number of the newest snapshot that this run has published, or found as its own. Others may have published newer ones: then
        this run is over, and is told so when it publishes the next."""
        return self._newest

    def read(self, manifest: Manifest, plan: Plan) -> dict[tuple[str, int], ResumedPart]:
        """What each replica of the plan resumes from, read back and verified; empty for a fresh start."""
        return {name: read_part(self.store, part) for name, part in parts_of(manifest, plan).items()}

    def publish(self, snapshots: SnapshotAttempts, incarnation: int, notes: dict[str, Any]) -> Manifest:
        """Make the complete attempt a snapshot."""
        known: dict[str, Any] = {"job": self.job, "graph": self.graph, "key_groups": self.plan.key_groups, "run": self.run}
        attempt = [incarnation, snapshots.attempts]
        self._merge_staged(snapshots, incarnation)
        kept = self.store.to_keep(self._newest + 1, self.config.snapshots.keep, self.savepoints)
        notes = {**notes, "identities": self.identities, "void": self._void, "attempt": attempt, "claims": self._claims, "kept": kept}
        begun = self.begun.notes if self.begun is not None else {}
        notes |= {"keeper": begun.get("keeper"), "store": begun.get("store", "")}
        manifest = snapshots.manifest(incarnation=incarnation, notes=notes, **known)
        try:
            self.store.publish(manifest, after=self._newest)
        except StoreAwayError:
            snapshots.base = 0  # nothing is known to be there on which an increment could build: the next snapshot is whole
            raise
        except SnapshotError:
            numbers = self.store.numbers()
            if not numbers or numbers[-1] < manifest.number:
                raise
            # The last step may have taken effect although it failed; or another run may have published in place of ours.
            there = self._found(manifest.number if manifest.number in numbers else numbers[-1])
            if there is None or there.run != self.run:
                raise Superseded(
                    f"snapshot {manifest.number} of job {self.job!r} was published by another run: this one has been superseded"
                ) from None
            if there.notes.get("attempt") != attempt:  # the manifest of a claim has no attempt
                # An earlier attempt took effect unconfirmed, and was given up: the next one contains what it staged, too.
                self._newest = snapshots.published = manifest.number
                raise SnapshotError(f"snapshot {manifest.number} is there, of an attempt that was given up: take the next") from None
        self.manifest = manifest
        self._newest = manifest.number
        return manifest

    def _merge_staged(self, snapshots: SnapshotAttempts, incarnation: int) -> None:
        """Merge what sinks that publish at the end have staged, so that it stays in few files however many snapshots there are."""
        pending = snapshots.pending
        assert pending is not None
        sinks = {sink.key: sink for sink in self.plan.sinks}
        for at, files in enumerate(snapshots.to_merge()):
            try:
                attempt = attempt_name(incarnation, pending, f"merged{at}")
                condense = partial(self._calls.call, sinks[files[0].sink], "condense")
                snapshots.merged(files, merge_staged(self.store, pending.slot, files, attempt, condense))
            except SnapshotError as error:
                _log.warning("job %r: what is staged for sink %r stays in %d files: %s", self.job, files[0].sink, len(files), error)

    def let_sinks_publish(self, manifest: Manifest) -> None:
        """Give what was staged to the sinks that commit with each snapshot; may be repeated."""
        for sink in self._committing():
            self._call_sink(sink, "commit", number_for_sinks(manifest), self.staged_of(manifest, sink.key))

    def publish_finally(self, manifest: Manifest) -> dict[int, Any]:
        """The job is complete: the receipts of all sinks, by sink id."""
        self.let_sinks_publish(manifest)
        for sink in self.plan.sinks:
            if not sink.sink.commits:
                self._call_sink(sink, "publish", self.staged_of(manifest, sink.key))
        return {sink.id: self.receipts[sink.key] for sink in self.plan.sinks}

    def staged_of(self, manifest: Manifest, key: str) -> StagedValues:
        """What the writers of a sink have staged, as a manifest lists it; it stays in the store until it is looked through."""
        return StagedValues(self.store, [one for one in manifest.staged if one.sink == key])

    def retain(self) -> bool:
        """Delete what the newest snapshot of this run has retired: all but the newest snapshots and savepoints.

        False when the store failed: the next call tries again.
        """
        if self.manifest is None or "kept" not in self.manifest.notes:
            return True  # a claim retires nothing
        try:
            self.store.retain(self.manifest.number, self.manifest.notes["kept"], self.savepoints)
        except SnapshotError as error:
            _log.warning("job %r: %s", self.job, error)
            return False
        return True

    def note(self, manifest: Manifest) -> None:
        """Note a savepoint, so that it is retained."""
        if manifest.kind == "savepoint":
            self.savepoints.append(manifest.number)

    @property
    def journal_path(self) -> str:
        """Of the job's journal, on the file system of the snapshots, beside their folder."""
        return f"{self.store.folder.rpartition('/')[0]}/journal.jsonl"

    def path_of(self, number: int) -> str:
        """The path of a snapshot, as ``resume=`` takes it."""
        return f"{self.store.folder}/{number:012d}"

    def _is_savepoint(self, number: int) -> bool:
        try:
            return self.store.load(number).kind == "savepoint"
        except SnapshotError:
            return True  # it cannot be read, so it must not be deleted

    def number_of(self, path: str) -> int:
        """The number of the snapshot that a path names. Raises SnapshotError where it belongs to another job."""
        folder, _, name = path.rstrip("/").removesuffix(f"/{MANIFEST}").rpartition("/")
        if not name.isdigit() or (folder and os.path.abspath(folder) != os.path.abspath(self.store.folder)):
            raise SnapshotError(
                f"resume={path!r}: that is no snapshot of job {self.job!r}, which are in {self.store.folder!r}; give 'latest', a number, "
                "or a path that job.savepoint() gave; 'never' begins afresh"
            )
        return int(name)

    def _take_again(self, manifest: Manifest, numbers: list[int]) -> Manifest:
        """The job resumes from an older snapshot than the newest: the newer ones are void, even if they can be read again later."""
        assert self.begun is not None
        is_before = manifest.number < self.begun.number
        if is_before:
            require_fit(self.store, manifest, self.graph, self.plan.key_groups, job=self.job)
        reopens = self._reopens if is_before else ()
        claim = claim_of(manifest, numbers, self._claims, job=self.job, graph=self.graph, run=self.run, reopens=reopens)
        if is_before and claim.kind == "start":
            claim = dataclasses.replace(claim, notes={**claim.notes, **self._start(manifest)})
        kept: dict[str, Any] = {name: self.begun.notes[name] for name in ("keeper", "store") if name in self.begun.notes}
        claim = dataclasses.replace(claim, notes={**claim.notes, **kept})
        self.store.publish(claim, after=self._newest)
        self._newest = claim.number
        self._claims = list(claim.claims)
        self._void = claim.notes["void"]
        if is_before:
            self._begin_with(claim)
        return claim

    def _begin_with(self, claim: Manifest) -> None:
        """The run begins with this one."""
        self.begun = claim
        self.identities = claim.notes.get("identities", {})

    def _newest_manifest(self) -> list[Manifest | None]:
        return [self._found(number) for number in self.store.numbers()[-1:]]

    def _found(self, number: int) -> Manifest | None:
        """A manifest; None when it is damaged: then it is not of this run, which has not seen it whole. Raises StoreAwayError."""
        try:
            return self.store.load(number)
        except StoreAwayError:
            raise
        except SnapshotError:
            return None

    def _start(self, earlier: Manifest | None) -> dict[str, Any]:
        """The job starts, perhaps once more, since it died before its first snapshot: then the program may be another one. Sinks that there
        were go on with their identities, under which something may be staged; all are checked as they are now."""
        if earlier is not None:
            told, were, are = earlier.notes.get("identities", {}), earlier.graph.get("sinks", {}), self.graph["sinks"]
            for sink in self.plan.sinks:
                if sink.key in told and were.get(sink.key, {}).get("kind") == are[sink.key]["kind"]:
                    sink.sink.adopt(told[sink.key])
        return self.check_sinks()

    def check_sinks(self, keys: Collection[str] | None = None) -> dict[str, Any]:
        """A job begins, or these sinks of it do: refuse outputs that cannot be written; gives the sinks' identities, as notes for the
        manifest."""
        begun = [sink for sink in self.plan.sinks if keys is None or sink.key in keys]
        for sink in begun:
            self._call_sink(sink, "check")
        found = {sink.key: sink.sink.identity() for sink in begun}
        return {"identities": {key: identity for key, identity in found.items() if identity is not None}}

    def _committing(self) -> list[Any]:
        return [sink for sink in self.plan.sinks if sink.sink.commits]

    def _go_on_from(self, manifest: Manifest) -> None:
        """Bring the sinks to the snapshot from which the job resumes: later commits are rolled back, its own commit is repeated."""
        first_new = self._newest + 1
        for sink in self._committing():
            self._call_sink(sink, "roll_back", number_for_sinks(manifest), first_new)
        self.let_sinks_publish(manifest)

    def _call_sink(self, sink: Any, hook: str, *args: Any) -> None:
        try:
            receipt = self._calls.call(sink, hook, *args)
        except SnapshotError:
            raise  # the store cannot be read: nothing of the sink's
        except Exception as error:
            raise_located(f"sink {sink.key!r} ({sink.where}) failed in {hook}", error)
        if hook in ("commit", "publish"):
            self.receipts[sink.key] = receipt


def number_for_sinks(manifest: Manifest) -> int:
    """The number under which sinks have committed what a manifest names: a claim stands for the snapshot from which its run resumed."""
    return int(manifest.notes.get("stands_for", manifest.number))


class NothingWhole(SnapshotError):
    """The job can resume from no snapshot of this run: trying again does not help."""


def describe_snapshot(statistics: SnapshotStatistics) -> str:
    """One line for progress displays."""
    return (
        f"snapshot {statistics.number} ({statistics.kind}) in {statistics.took_s:.3f} s, longest pause "
        f"{1000 * statistics.pause_s:.1f} ms, {statistics.written_bytes / 1e6:.3f} MB written of {statistics.total_bytes / 1e6:.3f} MB"
    )
