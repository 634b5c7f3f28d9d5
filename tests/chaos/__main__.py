"""``make chaos``: jobs on real Ray while processes are killed and stopped and files damaged; the results must be those of the model.

Each run is one of the dataflows of ``programs/topologies.py`` with a seed, which also draws the faults. Each fault waits for a phase
of the job: steady, aligning (some replicas have the barrier, others not), writing (parts), committing (the manifest is written,
sinks publish), changing (its layout, with ``--rescale``), recovering (from the fault before). A fault counts only if it was seen to
happen. The table at the end shows the counts.

    python -m tests.chaos --kills 500 --seed 1        the same seeds draw the same faults; their exact moments depend on the machine
    python -m tests.chaos --only loop-join --seed 17  one run again
    python -m tests.chaos --kafka --kills 100         a job from Kafka to Kafka: see kafka.py
    python -m tests.chaos --machines 3 --faults 40    machines, links, folders: see machines.py
    python -m tests.chaos --spark-stream --kills 100  a Spark stream feeds the job: see spark_stream.py
    python -m tests.chaos --service --sequences 50    random calls on jobs that several drivers share: see calls.py
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

import psutil
import ray

from rayad.progress import SnapshotError
from tests.chaos import calls, kafka, machines, spark_stream
from tests.chaos.disturbed import FAULTS, recovery_of
from tests.chaos.victims import PHASES, Victim, Violation
from tests.cluster.recovering import away
from tests.programs.catalog import TOPOLOGIES

KILLS = (*["replica"] * 8, *["progress"] * 5, *["coordinator"] * 2, "driver")
STOP_S = 5.0
CHANGE_S = 2.5
"""How long a change of layout may last before the fault strikes: most of it is the start of new replicas."""
FULL_S = 1.5
AWAY_S = 2.0
DAMAGES = ("byte of a part flipped", "part truncated", "part missing")
VIOLATIONS_MAX = 5
Table = collections.Counter[tuple[str, str]]


class Run:
    """One job and its faults."""

    def __init__(self, options: argparse.Namespace, topology: str, seed: int, table: Table) -> None:
        self.options, self.seed, self.table = options, seed, table
        self.rng = random.Random(f"run/{seed}")
        self.folder = Path(tempfile.mkdtemp(prefix="rayad-chaos-"))
        self.kills = 0
        self.is_impatient = self.rng.random() < options.impatient
        patience_s = 3.0 if self.is_impatient else 60.0
        self.victim = Victim(topology, seed, options.epochs, self.folder, patience_s, rescales=options.rescale)

    def go(self) -> None:
        """All faults, then the end."""
        victim = self.victim
        victim.wait_for("steady", 90)
        for _ in range(self.options.faults):
            if victim.is_over():
                break
            self.one()
            victim.look_at_files()
        victim.finish(self.options.patience_s)

    def one(self) -> None:
        """One fault."""
        rng, victim = self.rng, self.victim
        draw = rng.random()
        usual = [phase for phase in PHASES if phase != "changing"]
        phase = rng.choice([*usual, "recovering", *(["changing"] * 5 if self.options.rescale else [])])
        if phase == "recovering":
            time.sleep(rng.uniform(0.05, 1.5))
        else:
            if not victim.is_back() and not self.comes_back():
                return
            time.sleep(rng.uniform(0.0, 0.2))
            if victim.wait_for(phase, 3.0) and phase == "changing":
                time.sleep(rng.uniform(0.0, CHANGE_S))
        if draw < self.options.kill_share:
            for _ in range(rng.choice([1, 1, 2])):
                self.kill(rng.choice(KILLS))
            return
        other = rng.random()
        if other < 0.3:
            self.raise_in(rng.choice(FAULTS))
        elif other < 0.45:
            self.fill_store()
        elif other < 0.65:
            self.damage()
        elif other < 0.8:
            self.take_store_away()
        else:
            self.stop(rng.choice(["replica", "progress", "coordinator", "driver"]))

    def comes_back(self) -> bool:
        """Wait until records reach the end again; False when the job ended instead."""
        deadline_s = time.monotonic() + self.options.patience_s
        while not self.victim.is_back():
            if self.victim.is_over():
                return False
            if time.monotonic() > deadline_s:
                raise Violation(f"no records {self.options.patience_s} s after a fault:\n{self.victim.explain()}")
            time.sleep(0.01)
        return True

    def count(self, fault: str, phase: str) -> None:
        self.table[fault, phase] += 1

    def kill(self, kind: str) -> None:
        """SIGKILL of a process."""
        found = self.victim.processes(kind)
        if not found:
            return  # the process has ended and is being replaced
        phase = self.victim.phase()
        try:
            self.victim.kill(self.rng.choice(found), kind)
        except psutil.NoSuchProcess:
            return
        self.count(f"SIGKILL {kind}", phase)
        self.kills += 1

    def stop(self, kind: str) -> None:
        """SIGSTOP of a process for a while. If it is shorter than the heartbeat's timeout, the job waits for it. If it is longer, the
        process is replaced, and must do no harm when it continues."""
        victim = self.victim
        found = victim.processes(kind)
        if not found:
            return
        process, phase = self.rng.choice(found), victim.phase()
        seconds = self.options.long_stop_s if self.is_impatient else STOP_S
        try:
            process.suspend()
            deadline_s = time.monotonic() + seconds
            while time.monotonic() < deadline_s and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)
            was_replaced = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            if not was_replaced:
                process.resume()
        except psutil.NoSuchProcess:
            was_replaced = True
        if was_replaced:
            victim.doomed.add(process.pid)
        self.count(f"SIGSTOP {kind} {seconds:g} s, {'replaced' if was_replaced else 'went on'}", phase)

    def raise_in(self, where: str) -> None:
        """An exception of user code, once. One in ``restore`` needs a recovery first."""
        victim = self.victim
        (self.folder / f"raise-{where}").touch()
        phase = victim.phase()
        if where == "restore":
            self.kill("replica")
        deadline_s = time.monotonic() + 15
        while (self.folder / f"raise-{where}").exists():
            if victim.is_over() or time.monotonic() > deadline_s:
                (self.folder / f"raise-{where}").unlink(missing_ok=True)
                return
            time.sleep(0.005)
        self.count(f"exception in {where}", phase)
        if where != "checkpoint":
            victim.struck(f"{where}/{phase}")

    def fill_store(self) -> None:
        """A replica cannot write more than a few bytes into a file, as when the disk is full."""
        victim = self.victim
        found = victim.processes("replica")
        if not found:
            return
        process, phase, before = self.rng.choice(found), victim.phase(), victim.given_up()
        try:
            limits = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (16, limits[1]))
            time.sleep(FULL_S)
            process.rlimit(psutil.RLIMIT_FSIZE, limits)
        except psutil.NoSuchProcess:
            return
        if victim.given_up() > before:
            self.count("store full for a replica", phase)

    def damage(self) -> None:
        """Damage a file of the newest snapshot, then kill a replica: the job has to resume from an older snapshot."""
        victim, rng = self.victim, self.rng
        numbers = victim.store().numbers()
        if not victim.is_back() or len(numbers) < 2:
            return
        newest = self.folder / "chaos" / "snapshots" / f"{numbers[-1]:012d}"
        parts = sorted(newest.glob("*.rest.part"))
        if not parts:
            return  # the snapshot of a run's beginning has no parts of its own
        how, phase = rng.choice(DAMAGES), victim.phase()
        try:
            damage(rng.choice(parts), how, rng)
        except FileNotFoundError:
            return  # the attempt has been given up meanwhile
        self.kill("replica")
        if self.comes_back() and any(self.is_claim(number) for number in victim.store().numbers() if number > numbers[-1]):
            self.count(how, phase)

    def take_store_away(self) -> None:
        """Remove the folder of the snapshots for a while, perhaps with a kill meanwhile: attempts fail, recoveries wait."""
        victim, rng = self.victim, self.rng
        if not victim.is_back():
            return
        phase = victim.phase()
        what = rng.choice(["", "", "replica", "progress", "coordinator"])
        with away(self.folder / "chaos" / "snapshots"):
            if what:
                self.kill(what)
            time.sleep(rng.uniform(0.1, AWAY_S))
        self.count(f"store away{' and SIGKILL ' + what if what else ''}", phase)

    def is_claim(self, number: int) -> bool:
        """Whether a manifest makes newer snapshots void."""
        try:
            return self.victim.store().load(number).kind == "resume"
        except SnapshotError:
            return False


def damage(file: Path, how: str, rng: random.Random) -> None:
    """Damage a file."""
    data = bytearray(file.read_bytes())
    if how == DAMAGES[0]:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    elif how == DAMAGES[1]:
        file.write_bytes(data[: rng.randrange(len(data))])
    else:
        file.unlink()


def print_table(table: Table, recoveries: list[tuple[str, float]]) -> None:
    """Print faults by phase, and the times until records reached the end again."""
    print(f"{'fault':<44}" + "".join(f"{phase:>12}" for phase in PHASES))
    for fault in sorted({fault for fault, _ in table}):
        print(f"{fault:<44}" + "".join(f"{table[fault, phase]:>12}" for phase in PHASES))
    for kind in ("start", "replica", "progress", "coordinator", "driver"):
        times = sorted(seconds for what, seconds in recoveries if what.split("/")[0] == kind)
        if times:
            print(f"to the first record after {kind}: median {statistics.median(times):.2f} s, most {times[-1]:.2f} s, {len(times)} times")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=500, help="end after so many SIGKILLs")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after so many minutes")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next one")
    parser.add_argument("--only", choices=sorted(TOPOLOGIES), help="run this dataflow alone, once")
    parser.add_argument("--faults", type=int, default=40, help="for each run")
    parser.add_argument("--kill-share", type=float, default=0.87, help="share of kills; the others are spread over the other faults")
    parser.add_argument("--epochs", type=int, default=600, help="of input")
    parser.add_argument("--impatient", type=float, default=0.25, help="share of runs whose heartbeat_timeout_s is 3")
    parser.add_argument("--long-stop-s", type=float, default=8.0, help="how long processes are stopped in those")
    parser.add_argument("--patience-s", type=float, default=100.0, help="a job that does not come back in that time is stuck")
    parser.add_argument("--rescale", action="store_true", help="replicas are added and removed meanwhile (in jobs that recover as a whole)")
    parser.add_argument("--out", help="add the figures to this file, a line of JSON")
    parser.add_argument("--machines", type=int, default=0, help="disturb so many machines, made of network namespaces, under one job")
    parser.add_argument("--kinds", default="", help=f"with --machines: only these kinds of faults, of {','.join(machines.KINDS)}")
    parser.add_argument("--heartbeat-s", type=float, default=15.0, help="with --machines: after so long without an answer an actor is dead")
    parser.add_argument("--kafka", action="store_true", help="kill a job from Kafka to Kafka")
    parser.add_argument("--steps", action="store_true", help="with --kafka: in one process, between two steps of a commit")
    parser.add_argument("--keep-going", action="store_true", help="continue after a violation")
    parser.add_argument("--spark-stream", action="store_true", help="kill driver, actors and executors while a Spark stream feeds a job")
    parser.add_argument("--service", action="store_true", help="random sequences of calls on jobs that several drivers share")
    parser.add_argument("--sequences", type=int, default=50, help="with --service")
    parser.add_argument("--calls", type=int, default=calls.CALLS, help="of a sequence")
    parser.add_argument("--detached", type=float, default=calls.DETACHED, help="share of the jobs that outlive their driver")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.machines:
        return machines.main(options)
    if options.spark_stream:
        return spark_stream.main(options)
    if options.kafka:
        return kafka.main(options)
    if options.service:
        return calls.main(options)
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    table: Table = collections.Counter()
    recoveries: list[tuple[str, float]] = []
    kills = runs = violations = 0
    began_s = time.monotonic()
    names = [options.only] if options.only else list(TOPOLOGIES)
    while kills < options.kills and time.monotonic() - began_s < 60 * options.minutes and not (options.only and runs):
        seed = options.seed + runs * (2 if options.rescale else 1)  # the odd ones recover upstream, and do not rescale
        topology = names[seed // 2 % len(names)]  # with both kinds of recovery, see disturbed.recovery_of
        run = Run(options, topology, seed, table)
        told = "as the model says"
        try:
            run.go()
        except Violation as violation:
            violations += 1
            told = f"VIOLATION: {violation}"
        except Exception:
            violations += 1
            told = f"the harness failed: {traceback.format_exc()}"
        try:
            run.victim.end()
        except Violation as violation:
            violations += 1
            told += f"; VIOLATION: {violation}"
        runs += 1
        kills += run.kills
        recoveries += run.victim.recoveries
        print(
            f"seed {seed} {topology}, {recovery_of(seed)}: {run.kills} kills, {run.victim.changes()} changes of layout, {told}; "
            f"{kills} kills in {runs} runs, "
            f"{time.monotonic() - began_s:.0f} s, {violations} violations",
            flush=True,
        )
        if told == "as the model says":
            shutil.rmtree(run.folder)
        else:
            print(f"  kept: {run.folder}; again: python -m tests.chaos --only {topology} --seed {seed}", flush=True)
            if not options.keep_going or violations > VIOLATIONS_MAX:
                break
    print_table(table, recoveries)
    if options.out:
        with open(options.out, "a") as file:
            print(json.dumps({"faults": [[*key, count] for key, count in table.items()], "recoveries": recoveries}), file=file)
    ray.shutdown()
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
