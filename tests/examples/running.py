"""Runs the examples as a user does, each as a program of its own, and gives what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT

EXAMPLES = ROOT / "examples"


CHATTER = re.compile(
    r"""\bWARN[ ]+[A-Z]\w+([ ]\[[^]]*\])?:            # Spark's warnings, in its own format and in the one of Ray's Java
    | StatusConsoleListener                        # Log4j, of a file that is not there
    | Setting[ ].*log[ ]level | To[ ]adjust[ ]logging[ ]level
    | \(raylet\) | A[ ]worker[ ]died[ ]or[ ]was[ ]killed
    | Set[ ]ray[ ]log[ ]level                      # not here: gcs_client.cc, which Spark's driver prints before Ray lets it be silent
    | FutureWarning | DeprecationWarning | UserWarning
    | Tip:[ ] | [Uu]sage[ ]stats
    """,
    re.VERBOSE,
)
"""Lines of Ray, Spark and libraries that a user who did nothing wrong need not see."""


def refuse_chatter(printed: str) -> None:
    """Fail if there are lines that nobody need see, and show them."""
    found = [line for line in printed.splitlines() if CHATTER.search(line)]
    assert not found, "nobody need see this:\n" + "\n".join(found)


def environment(**more: str) -> dict[str, str]:
    """This process's environment variables, with the checkout's package first; no colours, no terminal."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "RAY_ADDRESS"}}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "100", "RAY_USAGE_STATS_ENABLED": "0", **more}


def run_example(name: str, *arguments: str | Path, cwd: Path, timeout_s: float = 100, of_others: str = "", **env: str) -> str:
    """What ``python examples/<name>`` prints; if it fails, the assertion shows all of its output. It fails too if it prints chatter, but
    for lines in which a library that it shows names itself (``of_others``)."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    printed = (done.stdout + done.stderr).splitlines()
    refuse_chatter("\n".join(line for line in printed if not of_others or of_others not in line))
    return done.stdout
