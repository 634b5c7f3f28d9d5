"""What the coordinator itself does in a change on Ray: processes, the layout of the job, and its snapshots.

Used by the thread that drives the change, which has the job to itself (``rescaling.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.stored.snapshots_part import SnapshotsPart
from rayad.actors.lead import calls
from rayad.actors.lead.placing import needs_of
from rayad.actors.plane.address import Address
from rayad.dataflow.plan import Layout
from rayad.progress import ConfigError


class CoordinatorsPart(SnapshotsPart):
    """In one change of a job on Ray."""

    def __init__(self, job: RunningJob) -> None:
        super().__init__(job)
        self._job = job

    # -- what it is asked for --------------------------------------------------------------------------
    def do(
        self, call: calls.OwnCall, answer: Callable[[Any], None], broke: Callable[[Exception], None], is_void: Callable[[], bool]
    ) -> None:
        """See :class:`SnapshotsPart`."""
        if isinstance(call, calls.StartProcesses):
            answer(self._start(call))
            return
        if isinstance(call, calls.Expect):
            self._job.incarnations.update(dict.fromkeys(call.processes, call.incarnation))
        super().do(call, answer, broke, is_void)

    def _start(self, call: calls.StartProcesses) -> str:
        job, crew = self._job, self._job.crew
        prepared = job.plan.laid_out(call.layout)
        try:
            wanted = {
                stage.name: stage.parallelism for stage in prepared.stages if job.plan.stage(stage.id).parallelism < stage.parallelism
            }
            needs = needs_of(prepared, job.places, job.config.cpus_per_replica)
            job.around.actors.check_placeable(needs, f"rescale({wanted})", job.config.autoscaling_cluster)
        except ConfigError as error:
            return str(error)
        job.incarnation = call.incarnation
        crew.plan = prepared
        crew.start()
        return ""

    # -- newcomers -------------------------------------------------------------------------------------
    def to_listen(self, call: calls.Listen) -> tuple[Any, ...]:
        """The arguments of :meth:`VertexActor.listen`: what the leader says, and what of the run's configuration a newcomer needs."""
        config, snapshots = self._job.config, self._job.snapshots
        store = snapshots.store.store if snapshots is not None else None
        return (config.host, call.incarnation, store, None, dict(call.incarnations), call.layout, True, config, call.ended)

    def run(self, name: str, call: calls.Run) -> None:
        """Begin its long call."""
        self._job.addresses.update(cast("dict[str, Address]", call.addresses))
        self._job.run([name])

    def stop(self, names: Collection[str], processes: Collection[str], layout: Layout) -> None:
        """End what is new with newcomers that will not join."""
        job, crew = self._job, self._job.crew
        crew.plan = job.plan.laid_out(layout)
        self._end(processes)
        self.take_back(names, crew.plan)

    # -- the layout ------------------------------------------------------------------------------------
    def _end(self, processes: Collection[str]) -> None:
        """End processes; nobody takes that for a failure."""
        self._job.calls.forget(processes)
        self._job.crew.stop(processes)
        for process in processes:
            self._job.addresses.pop(process, None)

    def lay_out(self, layout: Layout, processes: Collection[str]) -> None:
        """This is the job's layout now; these processes hold nothing any more."""
        job = self._job
        self._end(processes)
        job.plan = job.crew.plan = job.plan.laid_out(layout)
        self.lay_out_snapshots()
