"""Pathway: the lines of a folder read once (static), split by ``str.split`` (Pathway has no
expression for it), flattened, grouped,
counted.

One process with several threads, or several processes with one each (``pathway spawn``). The time is that of ``pw.run``, from the first
process' begin to the last one's end, without interpreter and imports.
"""

import json
import os
import subprocess
import sys
import time
import zlib

import pathway as pw


def work() -> None:
    """One process: run the dataflow, tell what came out here."""
    counts: dict[str, int] = {}

    def keep(key, row, time, is_addition):
        if is_addition:
            counts[row["word"]] = row["count"]

    lines = pw.io.plaintext.read(f"{arguments['folder']}/*.txt", mode="static")
    words = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data)).flatten(pw.this.word)
    counted = words.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())
    pw.io.subscribe(counted, keep)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    ended = time.perf_counter()
    path = os.path.join(os.environ["TOLD_IN"], f"{os.getpid()}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"began": began, "ended": ended, "counts": list(counts.items())}, file)


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
    counts = [pair for part in parts for pair in part["counts"]]
    digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts)]
    print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pathway {pw.__version__}"}))
