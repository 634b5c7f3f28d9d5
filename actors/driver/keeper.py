"""The keeper of a detached job: the driver's side in an actor that outlives the driver.

It holds a :class:`RayJob`, as a driver does: that starts the coordinator, and another one when it dies. Ray restarts the keeper when its
process dies; coordinator and replicas, which it owned, have ended with it. The new process counts that as the death of a coordinator,
by the same rules (so often, after such delays), and starts the next coordinator, which resumes where those before it were. When the job
has ended the keeper keeps its outcome until somebody has fetched it, or for ``RunConfig.keep_results_s``, and ends itself.
"""

from __future__ import annotations

import dataclasses
import logging
import pickle
import threading
import time as clock
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayTaskError

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.actor_class import PULSE, WAITING, remote_class
from rayad.actors.cluster.parcels import pack
from rayad.actors.coordinator.outcome import About, Beat, JobOutcome, plan_to_show
from rayad.actors.driver.coordinator_line import Gone
from rayad.actors.driver.keeper_line import KeeperLine
from rayad.actors.driver.kept_input import InputState
from rayad.actors.driver.program import Program
from rayad.actors.driver.ray_input import RayInput
from rayad.actors.driver.ray_job import Kept, RayJob, is_ending, succession_of
from rayad.actors.job import JobState, JobStatistics, SavedEpochs
from rayad.actors.lead.failure import Failure
from rayad.actors.process.threads import OwnedThread
from rayad.actors.store.keeper_files import KeeperFiles, KeeperRecord
from rayad.autoscale import ScalingProgress
from rayad.dataflow.config import CHANGEABLE, RunConfig, configured
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, RayadError, SnapshotError, say
from rayad.snapshots.restarts import End, Restart

_log = logging.getLogger(__name__)
THE_KEEPER = "the keeper"
LINGER_S = 3.0
"""How long the outcome stays after it has been fetched: for other handles that wait for it at the same time."""
INLINE_BYTES = 64 << 10
"""Ray keeps arguments of up to 100 KB with the actor itself; larger ones are objects of the process that made it, and die with that."""
LAST_WORD = 1 << 31
"""What a keeper tells counts before what coordinators tell."""
SENDERS_MAX = 4096
"""Of so many senders of live inputs the last call is remembered."""
_GROUPS = {
    PULSE: ("ping", "give_up"),
    "meets": ("begin", "about", "fetched"),
    "changes": ("cancel", "stop", "configure", "look_at_scaling"),
    "inputs": ("take",),
    "waits": ("saved", "wait_saved"),
}
_THREADS = {PULSE: 2, "meets": 2, "changes": 4, "inputs": 2 * WAITING, "waits": WAITING}


@dataclass(frozen=True, slots=True)
class KeptOutcome:
    """How a job ended, as its keeper keeps it; ``reference`` is one to the :class:`JobOutcome`."""

    state: JobState
    reference: Any


class Keeper:
    """The keeper of one job.

    Args:
        name: the job's.
        config: of the run.
        program: the rest, pickled, in pieces that Ray keeps with the actor.
    """

    def __init__(self, name: str, config: RunConfig, *program: bytes) -> None:
        context = ray.get_runtime_context()
        self._name, self._config = name, config
        self._token = names.token_of(context.get_actor_name())
        self._pieces = program
        self._plan: Plan | None = None
        self._job: RayJob | None = None
        self._files = KeeperFiles(name, config, self._token) if _is_restarted(config) else None
        self._record = KeeperRecord()
        self._succession = succession_of(config)
        self._is_begun = False
        self._beginning = threading.Lock()
        self._refusal: bytes | None = None
        """The pickled exception of a submission that failed."""
        self._has_looked_back = False
        self._recording = threading.Lock()
        self._ready = threading.Event()
        """The job has been submitted, or has ended."""
        self._kept: KeptOutcome | None = None
        self._fetched = threading.Event()
        self._inputs: dict[str, _SharedInput] = {}
        self._opening = threading.Lock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray's own, about what it calls there
            self._is_again = context.was_current_actor_reconstructed
        if self._is_again:
            with suppress(SnapshotError):  # the store is away: the thread waits for it
                self._look_back()  # before anybody is told where the job is
        first = self._begin_again if self._is_again else self._await_begin
        OwnedThread("keeper", first).start()  # as the others here, it ends with the process: the keeper's last act is to end that

    # -- the beginning -----------------------------------------------------------------------------
    def _await_begin(self) -> None:
        """End when nobody submits: the driver has died before."""
        clock.sleep(self._config.start_timeout_s)
        if not self._is_begun:
            self._leave()

    def begin(self) -> bytes | None:
        """Submit the job, once the keeper has its name; gives the pickled exception when that fails. May be repeated, as the caller may not
        hear the answer; a process after this one submits by itself."""
        with self._beginning:
            if self._is_again:
                self._ready.wait(self._config.start_timeout_s)
            elif not self._is_begun:
                self._is_begun = True
                self._refusal = self._begin()
            return self._refusal

    def _begin(self) -> bytes | None:
        try:
            if self._files is not None:
                self._files.begin()
            self._note(starts_s=(clock.time(),))
            self._submit(0)
        except BaseException as error:
            if self._files is not None:
                self._files.delete()
            return _pickled(error)
        return None

    def _begin_again(self) -> None:
        """In a process that Ray has started after the one before died."""
        try:
            self._await_store()
            if not self._record.starts_s or self._record.is_fetched:
                self._leave()  # it had not begun, or was about to end
            elif self._kept is not None:
                self._let_fetch()
            elif self._record.is_cancelled:
                self._end(JobOutcome(JobState.CANCELLED, {}, JobStatistics()))
            elif (number := self._count_deaths()) is not None:
                self._submit(number)
        except BaseException as error:
            _log.warning("job %r: its keeper could not submit it again", self._name, exc_info=True)
            self._fail(f"{THE_KEEPER} died, and could not submit the job again: {type(error).__name__}: {say(error)}")

    def _look_back(self) -> None:
        """What the process before has written down."""
        assert self._files is not None
        self._record = self._files.record()
        outcome = self._files.outcome()
        if outcome is not None:
            self._keep(cloudpickle.loads(outcome))
        self._has_looked_back = True

    def _await_store(self) -> None:
        """A store that is away is waited for, as by a recovery."""
        deadline_s = clock.monotonic() + self._config.start_timeout_s
        while not self._has_looked_back:
            try:
                self._look_back()
            except SnapshotError:
                if clock.monotonic() > deadline_s:
                    raise
                clock.sleep(1.0)

    def _count_deaths(self) -> int | None:
        """Wait as long as the deaths of this keeper's processes ask for, and give how many there were; None: they end the job."""
        before, now_s, decision = self._record.starts_s, clock.time(), None
        self._note(starts_s=(*before, now_s))
        for running_s, died_s in self._record.lives():
            self._succession.on_start()
            if running_s is not None:
                self._succession.on_running(clock.monotonic() - (now_s - running_s))
            decision = self._succession.on_death(clock.monotonic() - (now_s - died_s))
        if isinstance(decision, End):
            self._fail(f"{THE_KEEPER} died: {decision.why}")
            return None
        assert isinstance(decision, Restart)
        _log.warning("job %r: its keeper died; after %.1f s it is submitted again", self._name, decision.delay_s)
        clock.sleep(decision.delay_s)
        return decision.number

    def _submit(self, failures: int) -> None:
        program: Program = cloudpickle.loads(b"".join(self._pieces))
        self._plan, record = program.plan, self._record
        own = {name: value for name, value in record.changes.items() if name in CHANGEABLE}
        config = configured(program.config, own) if own else program.config
        has_begun = bool(record.running_s)
        kept = Kept(self._token, record.runs, self._succession, failures, has_begun, self._on_run, self._on_running, self._files)
        job = RayJob(self._name, program.plan, config, program.scaling, program.asked_s if not failures else clock.time(), kept)
        try:
            job.sources.started(job, config)
        except BaseException:
            job.cancel()
            raise
        self._job = job
        if record.is_stopping:
            OwnedThread("kept-drain", partial(self._drain, job)).start()
        OwnedThread("kept-job", partial(self._watch, job)).start()
        if failures:
            OwnedThread("kept-inputs", partial(self._open_inputs, program.plan)).start()
        self._ready.set()

    def _open_inputs(self, plan: Plan) -> None:
        """What the process before was sent is sent again, also when nobody sends more."""
        for name in plan.inputs:
            try:
                self._input(name)
            except Exception:
                if self._kept is None:  # else the job had ended, and nothing is to be sent
                    _log.warning("job %r: input %r could not be opened", self._name, name, exc_info=True)

    def _on_run(self, run: str) -> None:
        self._note(runs=(*self._record.runs, run))

    def _on_running(self) -> None:
        """When the job of this process first ran, is written down once."""
        began_s, running_s = self._record.starts_s[-1], self._record.running_s
        if not running_s or running_s[-1] < began_s:
            self._note(running_s=(*running_s, clock.time()))
            if self._files is not None:
                self._files.delete_earlier()

    def _note(self, **changes: Any) -> None:
        """Write down what the process after this one must know."""
        with self._recording:
            record = dataclasses.replace(self._record, **changes)
            if self._files is not None:
                self._files.write_record(record)
            self._record = record

    # -- the end -----------------------------------------------------------------------------------
    def _watch(self, job: RayJob) -> None:
        """In a thread: wait for the end of the job, keep how it ended for as long as somebody may want it, and end."""
        self._end(job.settle(None))

    def _fail(self, why: str) -> None:
        """The job has failed, and no coordinator tells of it."""
        self._end(JobOutcome(JobState.FAILED, {}, JobStatistics(), Failure(THE_KEEPER, why, "", None, False)))

    def _end(self, outcome: JobOutcome) -> None:
        """The job has ended so. What refers to objects of this process is not written: the next one asks the store of snapshots."""
        data, has_references = pack(outcome)
        if self._files is not None and not has_references:
            try:
                self._files.write_outcome(data)
            except RayadError:
                _log.warning("job %r is %s, which could not be written down", self._name, outcome.state.value, exc_info=True)
        self._keep(outcome)
        self._let_fetch()

    def _keep(self, outcome: JobOutcome) -> None:
        self._kept = KeptOutcome(outcome.state, ray_calls.put(outcome))
        self._ready.set()

    def _let_fetch(self) -> None:
        """Wait until somebody has fetched the outcome, or as long as it is kept; then end."""
        assert self._kept is not None
        if self._kept.state is not JobState.CANCELLED:  # which has no results
            self._fetched.wait(self._config.keep_results_s)
        clock.sleep(LINGER_S)
        self._leave()

    def _leave(self) -> None:
        """End this actor for good, and with it whatever it owns."""
        if self._files is not None:
            self._files.delete()
        ray_calls.kill(ray.get_runtime_context().current_actor)

    def fetched(self) -> None:
        """Somebody has the results: they need not be kept, by the process after this one either."""
        self._note(is_fetched=True)
        self._fetched.set()

    def give_up(self) -> None:
        """Another job takes the name: the outcome of this one, if it has ended, is not kept any longer."""
        if self._kept is not None:
            self._leave()

    # -- looking -----------------------------------------------------------------------------------
    def ping(self) -> Beat:
        """Where the job is."""
        if self._kept is not None:
            return Beat(self._kept.state, life=LAST_WORD)
        return Beat(self._job.state if self._job is not None else JobState.STARTING, life=LAST_WORD)

    def about(self) -> About | None:
        """What a handle of the job stands on, when it has ended; None before: the coordinator tells."""
        if self._kept is None:
            return None
        if self._plan is None:
            self._plan = cloudpickle.loads(b"".join(self._pieces)).plan
        return About(plan_to_show(self._plan), self._config, self._kept.reference, self._record.runs)

    def look_at_scaling(self) -> ScalingProgress | None:
        """What the autoscaler has seen and done, where there is one."""
        return self._job.look_at_scaling() if self._job is not None else None

    # -- what is asked of the job, and must be known to the process after this one -------------------
    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        job = self._submitted()
        if self._kept is None:
            self._note(is_cancelled=True)
            if job is not None:
                job.cancel()

    def stop(self) -> None:
        """The job is to drain."""
        job = self._submitted()
        if job is not None and self._kept is None:
            self._note(is_stopping=True)
            self._drain(job)

    def _drain(self, job: RayJob) -> None:
        """Close the inputs behind all that senders were told is taken, then the sources."""
        self._ready.wait()  # ends with _submit, which begins this, or with the process
        with suppress(RayadError):  # the job has ended
            for name in job.plan.inputs:
                self._input(name).close()
            job.drain()

    def configure(self, changes: Mapping[str, Any]) -> None:
        """See :meth:`Job.configure`."""
        job = self._submitted()
        if job is not None:
            job.configure(**changes)
            self._note(changes={**self._record.changes, **changes})

    def _submitted(self) -> RayJob | None:
        """The job, once it has been submitted; None when it has ended before that."""
        if not self._ready.wait(self._config.start_timeout_s):
            raise TimeoutError(f"job {self._name!r}: its keeper has not submitted it again within {self._config.start_timeout_s:g} s")
        return self._job

    # -- live inputs -------------------------------------------------------------------------------
    def take(self, name: str, mark: str, act: str, args: Sequence[Any], hold_s: float) -> InputState | None:
        """One call of a sender on a live input, done once however often it is repeated; None: not within ``hold_s``."""
        return self._input(name).do(mark, act, args, hold_s)

    def saved(self, name: str) -> SavedEpochs:
        """See :meth:`JobInput.saved`."""
        return self._input(name).live.saved()

    def wait_saved(self, name: str, epoch: int, hold_s: float) -> bool:
        """Whether a complete snapshot holds an epoch of an input; waits for that, not longer than ``hold_s``."""
        try:
            self._input(name).live.wait_saved(epoch, timeout_s=hold_s)
        except TimeoutError:
            return False
        return True

    def _input(self, name: str) -> _SharedInput:
        job = self._submitted()
        if job is None:
            raise DataflowError(f"job {self._name!r} has ended: its inputs take nothing any more")
        with self._opening:
            if name not in self._inputs:
                live = job.input(name)
                assert isinstance(live, RayInput)
                self._inputs[name] = _SharedInput(live, self._files.marks(name) if self._files is not None else {})
            return self._inputs[name]


class _SharedInput:
    """One live input, for all its senders.

    Args:
        live: the input.
        done: by sender, the number of its last call that is in the input's files.
    """

    def __init__(self, live: RayInput, done: Mapping[str, int]) -> None:
        self.live = live
        self._done: OrderedDict[str, int] = OrderedDict(done)
        self._turn = threading.Lock()

    def do(self, mark: str, act: str, args: Sequence[Any], hold_s: float) -> InputState | None:
        """See :meth:`Keeper.take`."""
        began_s = clock.monotonic()
        if not self._turn.acquire(timeout=hold_s):
            return None
        try:
            sender, _, number = mark.partition(":")
            if self._done.get(sender, 0) < int(number):
                self.live.mark = mark
                try:
                    self._act(act, args, max(0.0, hold_s - (clock.monotonic() - began_s)))
                except TimeoutError:
                    return None
                self._done[sender] = int(number)
                self._done.move_to_end(sender)
                if len(self._done) > SENDERS_MAX:
                    self._done.popitem(last=False)
            return InputState(self.live.sent, self.live.epoch, self.live.closed, self.live.note)
        finally:
            self._turn.release()

    def close(self) -> None:
        """No more records, of any sender."""
        with self._turn:
            self.live.mark = ""
            self.live.close()

    def _act(self, act: str, args: Sequence[Any], left_s: float) -> None:
        match act:
            case "send":
                self.live.send(*args, timeout_s=left_s)
            case "advance_to":
                self.live.advance_to(*args)
            case "keep_note":
                self.live.keep_note(*args)
            case "close":
                self.live.close()
            case "look":
                pass


# -- how it is started -----------------------------------------------------------------------------
def start_keeper(name: str, config: RunConfig, program: bytes) -> None:
    """Start the keeper of a job, which submits it. Raises what the submission raises: then no keeper is left."""
    pieces = [program[at : at + INLINE_BYTES] for at in range(0, len(program), INLINE_BYTES)]
    restarts = {"max_restarts": -1 if _is_restarted(config) else 0, "lifetime": "detached"}
    keeper = remote_class(Keeper, _THREADS, _GROUPS, num_cpus=0)
    actor, entry = names.claim(
        name,
        lambda named: ray_calls.create(keeper, {**named, **restarts}, name, config, *pieces),
        is_ending,
        role=names.Role.KEEPER,
    )
    try:
        failed = KeeperLine(entry, actor).call("begin", timeout_s=config.start_timeout_s)
    except (Gone, RayTaskError, TimeoutError) as error:
        ray_calls.kill(actor)
        raise RayadError(f"the keeper of job {name!r} did not submit it: {type(error).__name__}: {say(error)}") from error
    if failed is not None:
        ray_calls.kill(actor)
        raise pickle.loads(failed)


def _is_restarted(config: RunConfig) -> bool:
    """Whether the job outlives its keeper's process."""
    return config.failures_survived > 0


def _pickled(error: BaseException) -> bytes:
    """An exception for another process; a RayadError in words where it cannot travel."""
    try:
        data: bytes = cloudpickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps(RayadError(f"{type(error).__name__}: {say(error)}"))
    return data


__all__ = ["Keeper", "KeptOutcome", "start_keeper"]
