"""Removal of nodes: ``python -m tests.chaos.nodes --removals 3``.

A Ray cluster of two nodes on this machine, and a job that needs both. The second node is ended as by a power cut, another one takes its
place, and the job resumes there. This is repeated, each time with another dataflow of ``programs/topologies.py``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from tests.chaos.victims import Victim, Violation
from tests.cluster.recovering import actors
from tests.programs.catalog import TOPOLOGIES

CPUS = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.nodes", description="nodes are removed while jobs run")
    parser.add_argument("--removals", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=900)
    options = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=3)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    names = list(TOPOLOGIES)
    status = 0
    for removal in range(options.removals):
        seed = options.seed + removal
        topology = names[seed % len(names)]
        folder = Path(tempfile.mkdtemp(prefix="rayad-chaos-"))
        victim = Victim(topology, seed, options.epochs, folder, cpus_per_replica=CPUS)
        told = ""
        try:
            if not victim.wait_for("steady", 120):
                raise Violation(f"did not start:\n{victim.explain()}")
            before = {process.pid for process in actors("VertexActor")}
            began_s = time.monotonic()
            cluster.remove_node(node, allow_graceful=False)
            victim.struck("node")
            there = {process.pid for process in actors("VertexActor")}
            node = cluster.add_node(num_cpus=3)
            while not victim.is_back() and not victim.is_over() and time.monotonic() - began_s < 150:
                time.sleep(0.02)
            if not victim.is_back():
                raise Violation(f"no records after a node was removed:\n{victim.explain()}")
            told = f"{len(before - there)} of {len(before)} replicas gone at once, records again after {time.monotonic() - began_s:.1f} s"
            victim.finish(150)
            told += ", as the model says"
        except Violation as violation:
            status = 1
            told += f" VIOLATION: {violation}; kept: {folder}"
        victim.end()
        print(f"removal {removal + 1}, seed {seed} {topology}: {told}", flush=True)
        if not status:
            shutil.rmtree(folder)
    ray.shutdown()
    cluster.shutdown()
    return status


if __name__ == "__main__":
    sys.exit(main())
