"""Pathway: rows from CSV files read once (static; it has no Parquet reader), grouped, summed.

One process with several threads, or several processes with one each (``pathway spawn``). The time is that of ``pw.run``, from the first
process' begin to the last one's end, without interpreter and imports.
"""

import json
import os
import subprocess
import sys
import time

import pathway as pw


class Row(pw.Schema):
    """Of the files."""

    key: int
    value: int


def work() -> None:
    """One process: run the dataflow, tell what came out here."""
    sums: dict[int, int] = {}

    def keep(key, row, time, is_addition):
        if is_addition:
            sums[row["key"]] = row["total"]

    rows = pw.io.csv.read(f"{arguments['folder']}/*.csv", schema=Row, mode="static")
    pw.io.subscribe(rows.groupby(pw.this.key).reduce(pw.this.key, total=pw.reducers.sum(pw.this.value)), keep)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    ended = time.perf_counter()
    path = os.path.join(os.environ["TOLD_IN"], f"{os.getpid()}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"began": began, "ended": ended, "sums": list(sums.items())}, file)


arguments = json.loads(sys.argv[1])
if "TOLD_IN" in os.environ:
    work()
else:
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
    sums = [pair for part in parts for pair in part["sums"]]
    mixed = [(key * 2_654_435_761) ^ (total * 40_503) for key, total in sums]
    digest = [len(sums), sum(mixed) & (2**63 - 1)]
    print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pathway {pw.__version__}"}))
