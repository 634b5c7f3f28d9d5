"""Runs the examples as a user does, each as a program of its own, and gives what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT

EXAMPLES = ROOT / "examples"


def environment(**more: str) -> dict[str, str]:
    """This process's environment variables, with the checkout's package first; no colours, no terminal."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "RAY_ADDRESS"}}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "100", "RAY_USAGE_STATS_ENABLED": "0", **more}


def run_example(name: str, *arguments: str | Path, cwd: Path, timeout_s: float = 100, **env: str) -> str:
    """What ``python examples/<name>`` prints; if it fails, the assertion shows all of its output."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
