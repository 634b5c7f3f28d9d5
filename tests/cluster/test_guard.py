"""Processes that a fixture of the cluster tests starts end with it, also when the tests are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.cluster.guard import ROOT

STARTER = """
import os, sys, time
from tests.cluster import guard
folder = sys.argv[1]
lone = "import os, pathlib, time; os.setsid(); pathlib.Path(r'{}/pid').write_text(str(os.getpid())); time.sleep(600)".format(folder)
head = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(600)"
with open(os.devnull, "w") as log:
    guarded = guard.start(folder, [sys.executable, "-c", head, lone], dict(os.environ), log)
while not os.path.exists(folder + "/pid") or not open(folder + "/pid").read():
    time.sleep(0.01)
print(guarded.pid, open(folder + "/pid").read(), flush=True)
time.sleep(600)
"""


def test_what_was_started_ends_when_the_starter_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", STARTER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        starter.kill()
    deadline_s = time.monotonic() + 30
    while left := [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)
    assert len(pids) == 2
    assert not folder.exists()
