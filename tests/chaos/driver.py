"""The script of a driver, which may be killed, too. It runs the job, resuming from the latest snapshot if there is one, and writes the
results.

``python -m tests.chaos.driver <address of Ray> <topology> <seed> <epochs> <folder> <heartbeat timeout in s> <CPUs per replica> <rescales>``

With ``rescales`` ("1") replicas are added and removed meanwhile, as the seed draws; each change that is done is a line in ``changes``.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import random
import signal
import sys
import threading
import time
from typing import Any

import cloudpickle
import ray

import rayad as rd
from rayad.actors.replica.migration import may_move
from tests.chaos import disturbed
from tests.cluster import recovering
from tests.programs.catalog import MODULES, TOPOLOGIES

BY_VALUE = (disturbed, recovering, *MODULES)


def rescale(job: Any, seed: int, folder: str) -> None:
    """Ask for other numbers of replicas, one change after the other, until the job ends."""
    draw = random.Random(f"rescale/{seed}")
    movable = [stage.name for stage in job.plan.stages if not may_move(stage, job.plan, None)]
    while movable:
        time.sleep(draw.uniform(0.2, 2.0))
        wanted = {name: draw.randint(1, 3) for name in draw.sample(movable, draw.randint(1, len(movable)))}
        disturbed.mark(folder, "change-begins")
        try:
            told = job.rescale(wanted, timeout_s=60.0)
        except rd.RescaleRefused as refused:
            if "without give" in str(refused) or "broadcast input" in str(refused):
                movable = [name for name in movable if f"rescale({name!r}" not in str(refused)]
            elif " is complete" in str(refused) or " is failed" in str(refused):
                return
            continue
        finally:
            disturbed.mark(folder, "change-ended")
        if told.steps:
            with open(f"{folder}/changes", "a", encoding="utf-8") as file:
                print(wanted, file=file)


def main(address: str, topology: str, seed: str, count: str, folder: str, heartbeat_timeout_s: str, cpus: str, rescales: str) -> None:
    faulthandler.register(signal.SIGUSR2)
    for module in BY_VALUE:
        cloudpickle.register_pickle_by_value(module)
    ray.init(address=address, logging_level="ERROR", log_to_driver=True)
    flow = disturbed.disturbed_flow(topology, int(seed), int(count), folder)
    config = disturbed.run_config(int(seed), folder, float(heartbeat_timeout_s), float(cpus))
    job = flow.submit(config, parallelism=TOPOLOGIES[topology].parallelism or 1)

    def explain(*_: object) -> None:
        threading.Thread(target=lambda: print(job.progress(), job.explain_stuck(), sep="\n", flush=True), daemon=True).start()

    signal.signal(signal.SIGUSR1, explain)
    if rescales == "1":
        threading.Thread(target=rescale, args=(job, int(seed), folder), daemon=True).start()
    result = job.wait()
    with open(f"{folder}/result.writing", "wb") as file:
        pickle.dump(([(str(time), repr(record)) for time, record in result["out"]], result.statistics.failures), file)
    os.rename(f"{folder}/result.writing", f"{folder}/result")
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
