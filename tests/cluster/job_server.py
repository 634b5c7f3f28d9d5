"""A cluster with a job server, and ``ray job submit`` to it. A module that imports ``job_server`` has a cluster of its own while it runs.

The cluster is ``ray start --block`` on free ports and a temporary folder, with a token of its own. Afterwards a guard ends its
processes, also when the tests are killed; no other Ray on the machine is touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from rayad.integrations import find_java
from tests.cluster import guard
from tests.examples.running import EXAMPLES, environment
from tests.patience import PATIENCE_S

RAY = str(Path(sys.executable).with_name("ray"))
STOP_S = 30
"""How long a stopped job has to save itself. On a machine where ended processes are not reaped Ray waits for all of it."""


class JobServer(NamedTuple):
    """A cluster that takes jobs."""

    url: str
    address: str
    """For ``ray.init``."""
    env: dict[str, str]


def free_ports(count: int) -> list[int]:
    """Free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="module")
def job_server() -> Iterator[JobServer]:
    """``ray start --head``."""
    gcs, dashboard, agent, agent_grpc, metrics, client = free_ports(6)
    folder = tempfile.mkdtemp(prefix="rayad-js-", dir="/tmp")  # short: Ray puts sockets into it
    token = Path(folder) / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    # A Java on PATH, so that Ray allows Java workers; the same authentication for the cluster, its jobs and ``ray job submit``.
    path = os.pathsep.join([find_java().bin, os.environ["PATH"]])
    env = environment(PATH=path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_JOB_STOP_WAIT_TIME_S=str(STOP_S))
    ports = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    ports += [f"--dashboard-agent-grpc-port={agent_grpc}", f"--metrics-export-port={metrics}", f"--ray-client-server-port={client}"]
    command = [RAY, "start", "--head", "--block", "--num-cpus=4", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"]
    log = Path(folder) / "head.log"
    with log.open("w") as file:
        head = guard.start(folder, [*command, f"--temp-dir={folder}", *ports], env, file)
    server = JobServer(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{gcs}", env)
    try:
        with log.open() as written:  # the guard removes it when the head ends
            wait_until_up(server, head, written)
        yield server
    finally:
        guard.let_go(head)


def wait_until_up(server: JobServer, head: subprocess.Popen[bytes], log: IO[str], timeout_s: float = PATIENCE_S) -> None:
    """Wait until an empty job is accepted: the server answers earlier, but refuses or hangs up while the node's agent starts."""
    deadline_s = time.monotonic() + timeout_s
    command = [RAY, "job", "submit", "--no-wait", "--address", server.url, "--", "true"]
    while not answers(server.url):  # this costs nothing; each command is a process that imports Ray
        assert head.poll() is None, f"ray start ended:\n{log.read()}"
        assert time.monotonic() < deadline_s, f"nothing answers after {timeout_s} s:\n{log.read()}"
        time.sleep(0.2)
    while True:
        asked = subprocess.run(command, env=server.env, capture_output=True, text=True, timeout=timeout_s, check=False)
        if asked.returncode == 0:
            return
        assert head.poll() is None, f"ray start ended:\n{log.read()}"
        assert time.monotonic() < deadline_s, f"no job server after {timeout_s} s:\n{log.read()}\n{asked.stdout}\n{asked.stderr}"
        time.sleep(0.5)


def answers(url: str) -> bool:
    """Whether the server and the node's agent behind it have a list of jobs for us, or refuse it to whoever has no token."""
    try:
        with urlopen(f"{url}/api/jobs/", timeout=10):
            return True
    except HTTPError as error:
        return error.code in (401, 403)
    except OSError:
        return False


def ask(server: JobServer, *words: str | Path) -> str:
    """The output of ``ray job ...``; fails unless it succeeded."""
    command = [RAY, "job", words[0], "--address", server.url, *map(str, words[1:])]
    done = subprocess.run(command, env=server.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def submit(server: JobServer, *entrypoint: str | Path) -> str:
    """The output of ``ray job submit`` until the job has ended; fails unless it succeeded."""
    printed = ask(server, "submit", "--working-dir", EXAMPLES, "--", sys.executable, *entrypoint)
    assert re.search(r"Job 'raysubmit_\w+' succeeded", printed), printed
    return printed
