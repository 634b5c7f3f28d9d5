"""Shared by the Pathway scripts of several processes: starting them (``pathway spawn``), each of which runs the script again, and the time
from the first ``pw.run`` to the end of the last one."""

import json
import os
import subprocess
import sys
import time

import pathway as pw

arguments = json.loads(sys.argv[1])


def run(table, columns: tuple[str, str]) -> None:
    """In one of the processes: run the dataflow; print its results in this process, as pairs of two columns."""
    first, second = columns
    found = {}

    def keep(key, row, time, is_addition):
        if is_addition:
            found[row[first]] = row[second]

    pw.io.subscribe(table, keep)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    ended = time.perf_counter()
    path = os.path.join(os.environ["TOLD_IN"], f"{os.getpid()}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"began": began, "ended": ended, "found": list(found.items())}, file)


def spawned() -> tuple[float, list]:
    """Seconds, and the results of all processes."""
    processes = arguments["processes"]
    folder = os.path.abspath("told")
    os.mkdir(folder)
    environment = {**os.environ, "TOLD_IN": folder, "PATHWAY_DISABLE_TELEMETRY": "1"}
    spawn = [os.path.join(os.path.dirname(sys.executable), "pathway"), "spawn", "--processes", str(processes)]
    spawn += ["--threads", str(arguments["workers"] // processes), sys.executable, *sys.argv]
    if subprocess.run(spawn, env=environment, check=False, stdout=sys.stderr).returncode:
        sys.exit(1)
    parts = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            parts.append(json.load(file))
    seconds = max(part["ended"] for part in parts) - min(part["began"] for part in parts)
    return seconds, [pair for part in parts for pair in part["found"]]


def measure(build, columns: tuple[str, str], digest_of) -> None:
    """Run what ``build()`` makes in the processes that were asked for; print seconds and digest."""
    if "TOLD_IN" in os.environ:
        run(build(), columns)
        return
    seconds, found = spawned()
    print(json.dumps({"seconds": seconds, "digest": digest_of(found), "version": f"pathway {pw.__version__}"}))
