"""The ``rayad`` command in one process that stays: each call runs the command line as a process would, but Ray is imported and joined once.

``python -m tests.cluster.command_shell``: reads a line of JSON for each call, the folder and the words, and writes one with the exit code
and what was printed. A command as a process of its own takes two seconds of a processor, of which the command itself next to none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from rayad.cli import main


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class CommandShell:
    """The process, from the side of a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, words: list[str], cwd: Path | None = None) -> Ended:
        """Run a command to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(cwd or "."), words]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the shell ended with {self._process.wait()} in {words}"
        return Ended(*json.loads(line))


@contextlib.contextmanager
def command_shell(env: dict[str, str]) -> Iterator[CommandShell]:
    """A process with this environment; it ends with the block."""
    root = str(Path(__file__).parents[2])
    env = {**env, "PYTHONPATH": os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])}
    command = [sys.executable, "-m", "tests.cluster.command_shell"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield CommandShell(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def serve() -> None:
    """Run what comes, one command after the other, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray writes beside Python is no answer
    for line in sys.stdin:
        folder, words = json.loads(line)
        with contextlib.chdir(folder):
            done = CliRunner().invoke(main, words, prog_name="rayad")
        unexpected = "" if done.exception is None or isinstance(done.exception, SystemExit) else f"Traceback: {done.exception!r}\n"
        print(json.dumps([done.exit_code, done.stdout, done.stderr + unexpected]), file=answers, flush=True)


if __name__ == "__main__":
    serve()
