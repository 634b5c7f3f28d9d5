"""``python -m tests.chaos --machines 3 --faults 100 --seed 1``: machines, links, connections, processes and folders of a job are disturbed.

The job of :mod:`tests.chaos.machine_job` runs on machines made of network namespaces, and after some faults another one. The seed draws the
faults; each kind comes once before any comes again. A fault counts if it was seen to happen; otherwise another one is drawn. ``--kinds``
draws only from some, ``--keep-going`` begins another job after a violation, ``--out`` adds a line of JSON for each fault to a file.

After each fault, within :data:`BOUND_S` of its end, all epochs sent by then must be complete at the probes, be saved (``wait_saved``), and
be in all committed files, exactly; there may be one coordinator only; calls that answer at once, and the timeouts of those that wait, are
kept within :data:`ANSWER_S`. At the end of each job files and results are exactly the model's.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.chaos import (
    faults_in_commits,
    faults_of_folders,
    faults_of_links,
    faults_of_machines,
    faults_of_processes,
    machine_job,
    outputs,
)
from tests.chaos.machine_job import OUTPUTS, Status
from tests.chaos.site import Site
from tests.chaos.victims import Violation
from tests.machines import links
from tests.machines.machines import CallFailed, Machines

BOUND_S = 180.0
"""The bound from the end of a fault until everything that was sent before is complete, saved and committed. A machine that is switched off
takes longest: Ray notices it after some 12 s here, our heartbeat after 15 s, and new processes on a busy machine take as long again."""
ANSWER_S = 15.0
"""The bound for what is longer than it was told: it is a second (status, progress, explain_stuck) and the time of an answer (wait_saved)
where processors are free."""
ALONE_S = 60.0
"""How long a coordinator that has been replaced may still have a process, on a machine that is on."""
FILES_S = 60.0
"""How long what is saved may not yet be in the committed files, on a busy machine."""
FAULTS_OF_A_JOB = 20
TRIES = 12
"""A kind that could not be seen to happen in so many tries is left out, and named at the end."""

KINDS: Mapping[str, tuple[Callable[[Site], str], int]] = {
    "commit": (faults_in_commits.stop, 12),
    "reset": (faults_of_links.reset, 16),
    "one-way": (faults_of_links.one_way, 10),
    "pair": (faults_of_links.pair, 8),
    "store": (faults_of_folders.store, 10),
    "output": (faults_of_folders.output, 6),
    "store-of-one": (faults_of_folders.store_of_one_machine, 3),
    "cut": (faults_of_machines.cut, 6),
    "slow": (faults_of_machines.slow, 3),
    "off": (faults_of_machines.switch_off, 4),
    "kill": (faults_of_processes.kill, 10),
    "stop": (faults_of_processes.stop, 5),
}
"""By name: what strikes, and how often it is drawn among the others."""


class Disturbance:
    """Jobs on machines, one after the other, and the faults of the machines.

    Args:
        machines: the cluster.
        seed: of faults and jobs.
        kinds: which faults there are.
        heartbeat_s: of the jobs.
        late: told of calls that kept no bound: a violation with which the job goes on.
    """

    def __init__(self, machines: Machines, seed: int, kinds: list[str], heartbeat_s: float, late: Callable[[str], None]) -> None:
        self.machines, self.seed = machines, seed
        self.rng = random.Random(f"machines/{seed}")
        self.kinds, self._tries = list(kinds), collections.Counter[str]()
        self._first = self.rng.sample(kinds, len(kinds))
        self.heartbeat_s, self.late = heartbeat_s, late
        self.seen: collections.Counter[str] = collections.Counter()
        self.waits: list[tuple[float, str]] = []
        self.longest: dict[str, float] = {}
        self.names = (f"chaos{number}" for number in itertools.count())

    @property
    def count(self) -> int:
        """Faults that were seen."""
        return sum(self.seen.values())

    # -- one job ---------------------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start a job; every second one is detached, and every third one joins its small files."""
        name = next(self.names)
        number = int(name.removeprefix("chaos")) + self.seed
        folder = self.machines.folder / name
        folder.mkdir()
        self.machines.call(machine_job.start, name, number, str(folder), self.heartbeat_s, number % 2 == 0, number % 3 == 0)
        self.site = Site(self.machines, self.rng, folder, self.heartbeat_s, number % 2 == 0)
        self.model = machine_job.Model(number)
        self.outputs = {output: outputs.Output(folder / "out" / output) for output in OUTPUTS}
        self.come_through("start")

    def disturb(self, most: int, tell: Callable[[str, str, float, float], None]) -> None:
        """Strike until so many faults were seen in all, or this job has had enough; then end it."""
        until = min(most, self.count + FAULTS_OF_A_JOB)
        while self.count < until and self.kinds:
            kind = self._draw()
            time.sleep(self.rng.uniform(0.1, 1.5))
            began_s = time.monotonic()
            seen = KINDS[kind][0](self.site)
            fault_s = time.monotonic() - began_s
            took_s = self.come_through(f"{seen or kind + ' (not seen)'}")
            self.site.switch_on()
            self._note(kind, seen)
            if seen:
                tell(kind, seen, fault_s, took_s)
        self.finish()

    def _draw(self) -> str:
        if self._first:
            return self._first[-1]
        return self.rng.choices(self.kinds, [KINDS[kind][1] for kind in self.kinds])[0]

    def _note(self, kind: str, seen: str) -> None:
        self._tries[kind] = 0 if seen else self._tries[kind] + 1
        if seen:
            self.seen[seen] += 1
        elif self._tries[kind] >= TRIES:
            self.kinds.remove(kind)
        if self._first[-1:] == [kind] and (seen or kind not in self.kinds):
            self._first.pop()

    def drop(self) -> None:
        """The job has broken a guarantee: end it, so that another one can begin."""
        del self._first[-1:]  # that kind has come
        self.machines.end_driver()
        self.site.switch_on()
        self.machines.call(machine_job.end_detached)
        self.site.end_job()

    # -- what must hold --------------------------------------------------------------------------------------------------------------
    def status(self) -> Status:
        """Of the job."""
        told = Status(*self.machines.call(machine_job.status))
        for name, longest_s in told.longest_s.items():
            self.longest[name] = max(self.longest.get(name, 0.0), longest_s)
        return told

    def come_through(self, what: str) -> float:
        """Wait until all epochs sent so far, and one that is sent later, have come through; gives how long that took."""
        began_s = time.monotonic()
        wanted = self.status().sent + 1
        answers: dict[str, float] = {}
        saved_s = 0.0
        while True:
            told = self.status()
            took_s = time.monotonic() - began_s
            if told.error:
                raise Violation(f"after {what}: the job has ended: {told.error}\n{self.machines.driver_log()}")
            for name, longest_s in told.longest_s.items():
                answers[name] = max(answers.get(name, 0.0), longest_s)
            late = "complete" if told.done < wanted else "saved" if told.saved < wanted else self.look_at_files(what, wanted)
            if not late:
                break
            if told.saved < wanted:
                saved_s = took_s
            if took_s > BOUND_S or took_s - saved_s > FILES_S:
                explained = self.machines.call(machine_job.explain)
                saved = f", {took_s - saved_s:.0f} s after it was saved" if told.saved >= wanted else ""
                where = f"sent {told.sent}, complete {told.done}, saved {told.saved}"
                raise Violation(f"after {what}: epoch {wanted} is not {late} {took_s:.0f} s later{saved}; {where}:\n{explained}")
            time.sleep(0.1 if told.saved < wanted else 0.5)
        self.waits.append((took_s, what))
        slow = {name: round(longest_s, 1) for name, longest_s in answers.items() if longest_s > ANSWER_S}
        if slow:
            self.late(f"after {what}: calls that took longer than they were told, in s, bound {ANSWER_S:g} s: {slow}")
        self.look_for_second(what)
        return took_s

    def look_at_files(self, what: str, whole: int) -> str:
        """What is missing in the committed files up to an epoch. Raises Violation for what is there and wrong."""
        found = {}
        for name, output in self.outputs.items():
            try:
                found[name] = output.look()
            except (OSError, ValueError) as error:  # joined or rolled back meanwhile; that it stays so is told below
                return f"in the files: {name}: {type(error).__name__}: {error}"
        most = self.status().sent + 1  # asked after reading: more is sent meanwhile
        differ = [one for name, rows in found.items() for one in outputs.differences(name, rows, self.model, whole, most)]
        wrong = [told for told, is_final in differ if is_final]
        if wrong:
            raise Violation(f"after {what}: committed and wrong: {'; '.join(wrong)}")
        return f"in the files: {'; '.join(told for told, _ in differ)}" if differ else ""

    def look_for_second(self, what: str) -> None:
        """Wait until there is one coordinator, if there are two. Raises Violation when both stay."""
        deadline_s = time.monotonic() + ALONE_S
        while len(found := self.site.processes("coordinator")) > 1:
            if time.monotonic() > deadline_s:
                told = [(machine, process.pid) for machine, process in found]
                raise Violation(f"after {what}: there are still {len(found)} coordinators {ALONE_S:g} s later (machine, process): {told}")
            time.sleep(0.2)

    def finish(self) -> None:
        """End the input, and compare all results with the model."""
        self.machines.call(machine_job.stop)
        deadline_s = time.monotonic() + BOUND_S
        while not (told := self.status()).is_over:
            if told.error or time.monotonic() > deadline_s:
                raise Violation(f"the end: {told.error or f'not complete within {BOUND_S:g} s'}\n{self.machines.driver_log()}")
            time.sleep(0.05)
        results = {name: output.read() for name, output in self.outputs.items()}
        differ = [one for name, rows in results.items() for one, _ in outputs.differences(name, rows, self.model, told.sent, told.sent)]
        differ += [
            f"collected: {one}"
            for one, _ in outputs.differences("counts", self.machines.call(machine_job.totals), self.model, told.sent, told.sent)
        ]
        if differ:
            raise Violation(f"the end: {'; '.join(differ)}")


def keep(machines: Machines, seed: int) -> Path:
    """Copy logs and output before the guard removes them."""
    kept = Path(tempfile.mkdtemp(prefix=f"rayad-chaos-machines-{seed}-"))
    with contextlib.suppress(shutil.Error):  # files that the job removes meanwhile; the others are copied
        shutil.copytree(machines.folder, kept, dirs_exist_ok=True)
    for machine in machines.machines:
        with contextlib.suppress(OSError):  # it is off
            words = machines.network.inside(machine, "cp", "-r", "/tmp/ray/session_latest/logs", str(kept / f"logs-{machine}"))
            links.call(*words, check=False)
    return kept


def main(options: argparse.Namespace) -> int:
    """Run disturbed jobs; print the faults and times."""
    reason = links.why_not()
    if reason:
        print(f"no machines can be made here: {reason}")
        return 2
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        print(f"--kinds: unknown: {', '.join(unknown)}; there are {', '.join(KINDS)}")
        return 2
    began_s = time.monotonic()
    machines = Machines(options.machines)
    violations: list[str] = []

    def tell(kind: str, seen: str, fault_s: float, took_s: float) -> None:
        line = f"{disturbance.count}: {kind}: {seen} ({fault_s:.0f} s); all that was sent has come through {took_s:.1f} s later"
        print(f"{time.monotonic() - began_s:6.0f} s  {line}", flush=True)
        add({"kind": kind, "seen": seen, "fault_s": round(fault_s, 1), "came_through_s": round(took_s, 1)})

    def add(plain: dict[str, object]) -> None:
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                print(json.dumps({"at_s": round(time.monotonic() - began_s), **plain}), file=file)

    def violated(told: str) -> None:
        violations.append(told)
        print(f"{time.monotonic() - began_s:6.0f} s  VIOLATION: {told}", flush=True)
        add({"violation": told[:2000]})

    disturbance = Disturbance(machines, options.seed, kinds, options.heartbeat_s, violated)
    ended = 0
    try:
        while disturbance.count + ended < options.faults and disturbance.kinds:
            try:
                disturbance.begin()
                disturbance.disturb(options.faults, tell)
            except (Violation, CallFailed) as found:
                violated(str(found))
                print(f"kept: {keep(machines, options.seed)}", flush=True)
                ended += 1
                if not options.keep_going:
                    break
                disturbance.drop()
    finally:
        machines.close()
    for what, count in sorted(disturbance.seen.items()):
        print(f"{count:>5}  {what}")
    waits = sorted(disturbance.waits)
    if waits:
        middle, (most_s, worst) = waits[len(waits) // 2][0], waits[-1]
        print(f"until all had come through: median {middle:.1f} s, most {most_s:.1f} s ({worst}); bound {BOUND_S:g} s")
    longest = ", ".join(f"{name} {longest_s:.1f} s" for name, longest_s in sorted(disturbance.longest.items()))
    print(f"the longest calls, beyond the time that they were given: {longest or 'none'}; bound {ANSWER_S:g} s")
    unseen = sorted(set(kinds) - set(disturbance.kinds))
    if unseen:
        print(f"left out after {TRIES} tries in which they were not seen to happen: {', '.join(unseen)}")
    took_s = time.monotonic() - began_s
    print(
        f"{disturbance.count} faults of {len(disturbance.seen)} sorts on {options.machines} machines in {took_s:.0f} s, "
        f"{len(violations)} violations"
    )
    return 1 if violations or unseen else 0
