"""The script of a driver, which may be killed as well: runs the job, from its latest snapshot if there is one, and leaves its results.

``python -m tests.chaos.driver <address of Ray> <topology> <seed> <epochs> <folder> <heartbeat timeout in s> <CPUs per replica>``
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import threading

import cloudpickle
import ray

from tests.chaos import disturbed, topologies
from tests.cluster import recovering
from tests.programs import loops, model, program, totals, vertices

BY_VALUE = (disturbed, topologies, recovering, model, loops, program, totals, vertices)


def main(address: str, topology: str, seed: str, count: str, folder: str, heartbeat_timeout_s: str, cpus: str) -> None:
    faulthandler.register(signal.SIGUSR2)
    for module in BY_VALUE:
        cloudpickle.register_pickle_by_value(module)
    ray.init(address=address, logging_level="ERROR", log_to_driver=True)
    flow = disturbed.disturbed_flow(topology, int(seed), int(count), folder)
    config = disturbed.run_config(int(seed), folder, float(heartbeat_timeout_s), float(cpus))
    job = flow.submit(config, parallelism=topologies.TOPOLOGIES[topology].parallelism or 1)

    def explain(*_: object) -> None:
        threading.Thread(target=lambda: print(job.progress(), job.explain_stuck(), sep="\n", flush=True), daemon=True).start()

    signal.signal(signal.SIGUSR1, explain)
    result = job.wait()
    with open(f"{folder}/result.writing", "wb") as file:
        pickle.dump(([(str(time), repr(record)) for time, record in result["out"]], result.statistics.failures), file)
    os.rename(f"{folder}/result.writing", f"{folder}/result")
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
