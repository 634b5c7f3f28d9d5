"""The local runtime asks nothing of the system that Windows does not have: README's programs and the examples run where that is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rayad.actors.plane.spilling_queue import SpillFile, SpillingQueue
from tests.checkout import ROOT
from tests.examples.running import EXAMPLES, environment, run_example
from tests.examples.snippets import Snippet, snippets_of
from tests.patience import PATIENCE_S

TIMES = re.compile(r"\d+(\.\d+)? m?s\b")
SAVED = """
import sys
import rayad as rd

folder = sys.argv[1]
with open(f"{folder}/in.csv", "w") as file:
    file.write("word,n\\n" + "".join(f"w{n % 3},{n}\\n" for n in range(300)))

def flow(words):
    out = rd.Dataflow("saved")
    lines = out.read_csv(words, name="lines")
    lines.write_parquet(f"{folder}/out")
    lines.key_by("word").count(name="count").collect("counts")
    return out

run = rd.RunConfig(storage_path=f"{folder}/snapshots", snapshots=rd.SnapshotConfig(interval_s=0.001))
first = flow(f"{folder}/*.csv").run(run, runtime="local")
again = flow(f"{folder}/in.csv").run(run, runtime="local", resume="latest")
print(sorted(record for _, record in first["counts"]), sorted(record for _, record in again["counts"]))
print(rd.read_committed(f"{folder}/out").count_rows(), rd.read_state(f"{folder}/snapshots/saved", "count", trust=True).num_rows)
"""


def without_posix(program: Path, *arguments: str, cwd: Path) -> str:
    """What a program prints where modules and functions of POSIX are missing."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.platforms.without_posix", str(program), *arguments],
        cwd=cwd,
        env=environment(PYTHONPATH=os.pathsep.join((str(ROOT / "src"), str(ROOT)))),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("snippet", snippets_of("README.md"), ids=lambda snippet: snippet.name)
def test_a_program_of_readme_prints_the_same(snippet: Snippet, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(snippet.code, encoding="utf-8")
    assert without_posix(program, cwd=tmp_path) == snippet.printed


@pytest.mark.parametrize("line", ["collatz_loop.py 60", "live_probe.py", "clicks.py"])
def test_an_example_prints_the_same(line: str, tmp_path: Path) -> None:
    name, *arguments = line.split()
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    found = without_posix(EXAMPLES / name, *arguments, cwd=tmp_path / "without")
    assert TIMES.sub("", found) == TIMES.sub("", run_example(name, *arguments, cwd=tmp_path / "with"))


def test_what_is_saved_is_resumed_and_read(tmp_path: Path) -> None:
    program = tmp_path / "saved.py"
    program.write_text(SAVED, encoding="utf-8")
    told = [("w0", 100), ("w1", 100), ("w2", 100)]
    assert without_posix(program, str(tmp_path), cwd=tmp_path).splitlines() == [f"{told} {told}", "300 3"]


def test_it_is_the_absence_that_is_tried(tmp_path: Path) -> None:
    program = tmp_path / "absent.py"
    program.write_text(
        "import os, signal, socket\ntry:\n    import fcntl\nexcept ImportError:\n"
        "    print(hasattr(os, 'fork'), hasattr(signal, 'SIGKILL'), hasattr(socket, 'AF_UNIX'))\n",
        encoding="utf-8",
    )
    assert without_posix(program, cwd=tmp_path) == "False False False\n"


@pytest.mark.parametrize("missing", [(), ("pwritev", "pread"), ("pwritev", "pread", "O_TMPFILE")])
def test_a_queue_spills_with_what_the_system_has(missing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    queue = SpillingQueue(10, str(tmp_path))
    items = [bytes([n]) * (7 * n) for n in range(20)]
    given: list[bytes] = []
    for number, item in enumerate(items):
        queue.push(item)
        if number % 3 == 2:
            given.append(bytes(queue.pop()))
    assert queue.disk_bytes > 0
    assert given + [bytes(queue.pop()) for _ in range(len(queue))] == items
    queue.close()
    file = SpillFile(str(tmp_path))
    places = [file.write(item) for item in items]
    assert [file.read(place) for place in reversed(places)] == items[::-1]
    file.close()
    assert os.listdir(tmp_path) == []
