"""The peers: other systems, each in a Python environment and in processes of its own, ended with all that they started.

**To add a peer** ``NAME``: make the folder ``benchmarks/peers/NAME/``. With a ``requirements.txt`` in it (everything pinned, as by
``pip freeze``) it gets an environment of its own, ``.cache/peers/NAME``, made when it is first needed and again when that file
changes. Without one its scripts run in the project's environment. For each workload put a script ``WORKLOAD.py`` there. It imports
neither rayad nor benchmarks and gets its arguments as one JSON object in ``sys.argv[1]``. The last JSON object that it prints is
``{"seconds": s, "digest": d, "version": "name 1.2.3"}``: seconds by the clock of :mod:`benchmarks.clock` (from everything started to the
result in the form that was asked for; the script's docstring says how), a digest of the result that all compute in the same way, and the
version that ran. More fields are kept in :attr:`PeerRun.told`. Code that the scripts of a peer share is in ``_NAME.py`` beside them;
scripts are run by path, so that they can import it.

**To run it**: ``run_peer("NAME", "WORKLOAD", {...}, timeout_s=120)``. It raises :class:`PeerUnavailable` when the environment cannot be
made, :class:`PeerUnfinished` when the time is over, :class:`PeerFailed` when the script fails or prints something else; all are
:class:`NoFigure` and say in one line why there is no figure. :mod:`benchmarks.side_by_side` does this for whole benchmarks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, python_path

PEERS = ROOT / "benchmarks" / "peers"
ENVIRONMENTS = ROOT / ".cache" / "peers"
LAUNCHER = ROOT / "benchmarks" / "peer_launcher.py"
INSTALL_TIMEOUT_S = 900.0


class NoFigure(Exception):
    """A peer gave no figure; the message says why, in one line."""


class PeerUnavailable(NoFigure):
    """Its environment cannot be made."""


class PeerUnfinished(NoFigure):
    """It did not finish in the time that it was given."""


class PeerFailed(NoFigure):
    """Its script failed, or printed no result."""


@dataclass(frozen=True, slots=True)
class PeerRun:
    """The output of a peer's script: ``seconds`` of the work, the ``digest`` of its result, the ``version`` that ran, and all fields
    (``told``).

    ``wall_s`` and ``cpu_s`` are those of all its processes, with start and end of the interpreter and the engine.
    """

    seconds: float
    digest: Any
    version: str
    wall_s: float
    cpu_s: float
    told: dict[str, Any]


def available_peers(peers: Path = PEERS) -> tuple[str, ...]:
    """The names of all peers."""
    return tuple(sorted(path.name for path in peers.iterdir() if path.is_dir() and path.name != "__pycache__"))


def workloads_of(peer: str, peers: Path = PEERS) -> tuple[str, ...]:
    """The workloads for which a peer has a script; files ``_*.py`` are code that its scripts share."""
    return tuple(sorted(path.stem for path in (peers / peer).glob("[!_]*.py")))


# -- environments ----------------------------------------------------------------------------------
def python_of(peer: str, peers: Path = PEERS, environments: Path = ENVIRONMENTS) -> Path:
    """The interpreter that runs a peer's scripts; makes its environment when there is none for the current requirements.

    Raises PeerUnavailable, with the reason in one line, when it cannot be made. Two processes may ask for the same one at once.
    """
    requirements = peers / peer / "requirements.txt"
    if not requirements.is_file():
        return Path(sys.executable)
    home = environments / peer
    python, stamp = home / "bin" / "python", home / ".made-from"
    made_from = hashlib.sha256(requirements.read_bytes() + platform.python_version().encode()).hexdigest()
    with _alone(environments / f"{peer}.lock"):
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == made_from and python.exists():
            return python
        shutil.rmtree(home, ignore_errors=True)
        print(f"(making the environment of {peer} in {_shown(home)}, once)", file=sys.stderr, flush=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
        for command in ([sys.executable, "-m", "venv", str(home)], pip):
            _install(peer, command)
        stamp.write_text(made_from, encoding="utf-8")
    return python


def _install(peer: str, command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_TIMEOUT_S, env=_environment())
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"not installed: took longer than {INSTALL_TIMEOUT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise PeerUnavailable(f"not installed: {_last_line(error.stderr or error.stdout)}") from error
    except OSError as error:
        raise PeerUnavailable(f"not installed: {error}") from error


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    """The caller's environment variables, without those by which a peer would find the project's packages or Ray."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "RAY_ADDRESS", "SPARK_HOME", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, "RAY_USAGE_STATS_ENABLED": "0"}


def _with_java(environment: dict[str, str]) -> dict[str, str]:
    """JAVA_HOME and PATH with the Java that Rayad itself gives to Spark, if there is one."""
    from rayad.integrations.spark.java import find_java, use_java
    from rayad.progress import ConfigError

    try:
        use_java(find_java(), environment)
    except ConfigError as error:
        print(f"(no Java for the peers: {error})", file=sys.stderr)
    return environment


# -- runs ------------------------------------------------------------------------------------------
def run_peer(
    peer: str,
    workload: str,
    arguments: dict[str, Any],
    *,
    timeout_s: float = 300.0,
    nice: int | None = None,
    peers: Path = PEERS,
    environments: Path = ENVIRONMENTS,
) -> PeerRun:
    """Run ``peers/<peer>/<workload>.py`` with ``arguments`` at this ``nice`` level (at least the caller's); all its processes end with
    it."""
    script = peers / peer / f"{workload}.py"
    if not script.is_file():
        raise PeerUnavailable(f"no script {_shown(script)}")
    command = [str(python_of(peer, peers, environments)), str(script), json.dumps(arguments)]
    return _launch(command, _with_java(_environment()), timeout_s, nice)


def run_ours(module: str, arguments: dict[str, Any], *, ray_address: str, timeout_s: float = 300.0, nice: int | None = None) -> PeerRun:
    """Run Rayad's side of a benchmark (``benchmarks.<module>.one(**arguments)``) as a peer is run: a process of its own that joins the
    Ray at ``ray_address``. Raises as :func:`run_peer` does."""
    command = [sys.executable, "-m", "benchmarks.ours", json.dumps({"module": module, "arguments": arguments})]
    return _launch(command, {**_environment(), "PYTHONPATH": python_path(), "RAY_ADDRESS": ray_address}, timeout_s, nice)


def _launch(command: list[str], environment: dict[str, str], timeout_s: float, nice: int | None) -> PeerRun:
    """Run a command whose last printed JSON object is its result."""
    with tempfile.TemporaryDirectory(prefix="rayad-peer-") as folder:
        out, err = Path(folder, "stdout"), Path(folder, "stderr")
        request = {"command": command, "timeout_s": timeout_s, "nice": nice, "stdout": str(out), "stderr": str(err)}
        launch = [sys.executable, str(LAUNCHER), json.dumps(request)]
        work = Path(folder, "work")
        work.mkdir()
        launched = subprocess.run(launch, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if launched.returncode:
            raise PeerFailed(f"failed: its launcher: {_last_line(launched.stderr)}")
        ended = json.loads(launched.stdout)
        printed, complaint = out.read_text(encoding="utf-8", errors="replace"), err.read_text(encoding="utf-8", errors="replace")
    if ended["returncode"] is None:
        raise PeerUnfinished(f"did not finish in {timeout_s:.0f} s")
    if ended["returncode"]:
        raise PeerFailed(f"failed (exit code {ended['returncode']}): {_error_line(complaint)}")
    return _told(printed, ended)


def _told(printed: str, ended: dict[str, Any]) -> PeerRun:
    try:
        # Lines that a peer's daemons print after it (Ray's warnings) are ignored.
        told = json.loads([line for line in printed.splitlines() if line.startswith('{"')][-1])
        return PeerRun(float(told["seconds"]), told["digest"], str(told["version"]), ended["wall_s"], ended["cpu_s"], told)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PeerFailed(f"failed: its last line is no result: {_last_line(printed)!r}") from error


def _error_line(text: str) -> str:
    """The last line that names an exception, else the last line."""
    named = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return _last_line("\n".join(named) or text)


def _last_line(text: str, most: int = 300) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].replace(f"{ROOT}/", "")[:most] if lines else "it said nothing"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
