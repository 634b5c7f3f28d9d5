"""What the facts of a machine mean: a finding for each rule, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rayad.checkup.finding import Finding, fail, ok, warn
from rayad.checkup.machine import OF_SPARK, PACKAGES, SOCKETS_BELOW, Facts

PYTHON_LEAST = (3, 11)
MEMORY_LEAST_BYTES = 2_000_000_000
SOCKET_PATH_MOST = 107
"""Bytes of the path of a Unix socket, on Linux."""
OPEN_FILES_LEAST = 4096
OBJECT_STORE_SHARE = 0.3
"""Of the memory, what Ray takes for its object store, in /dev/shm."""


def judge(facts: Facts) -> list[Finding]:
    """A finding for each rule, in a fixed order."""
    return [rule(facts) for rule in RULES]


def _python(facts: Facts) -> Finding:
    least = ".".join(map(str, PYTHON_LEAST))
    if tuple(map(int, facts.python.split(".")[:2])) < PYTHON_LEAST:
        return fail("python", facts.python, f"install Python {least} or later, and Rayad in an environment of it")
    return ok("python", facts.python)


def _packages(facts: Facts) -> Finding:
    seen = ", ".join(f"{name} {facts.packages.get(name) or 'missing'}" for name in PACKAGES)
    if not facts.misfits:
        return ok("packages", seen)
    wrong = ", ".join(f"{name} {facts.packages.get(name) or ''}".strip() for name in facts.misfits)
    wanted = " ".join(f"'{name}{takes}'" for name, takes in facts.misfits.items())
    return fail("packages", f"{wrong} does not fit", f"pip install {wanted}")


def _java(facts: Facts) -> Finding:
    if facts.java is not None:
        return ok("java", facts.java)
    return warn("java", facts.java_trouble.partition(". Install")[0], "only for Spark: pip install 'rayad[java]', or install Java 17")


def _spark(facts: Facts) -> Finding:
    missing = [name for name in OF_SPARK if facts.packages.get(name) is None]
    if missing:
        return warn("spark", f"no {' and no '.join(missing)}", "only for Spark: pip install 'rayad[spark]'")
    return ok("spark", ", ".join(f"{name} {facts.packages[name]}" for name in OF_SPARK))


def _cpus(facts: Facts) -> Finding:
    if facts.cpus < 2:
        return warn("cpus", str(facts.cpus), "replicas share one CPU: a job gets no faster with more of them; give the machine 2 or more")
    return ok("cpus", str(facts.cpus))


def _memory(facts: Facts) -> Finding:
    seen = _gb(facts.memory_bytes)
    if facts.memory_bytes < MEMORY_LEAST_BYTES:
        return warn("memory", seen, f"Ray and a small job take {_gb(MEMORY_LEAST_BYTES)}: give the machine or the container more")
    return ok("memory", seen)


def _shared_memory(facts: Facts) -> Finding:
    if facts.shared_memory_bytes is None or facts.shared_memory_free_bytes is None:
        return warn("shared memory", "no /dev/shm", "Ray's object store is then on the disk, and slow: mount a tmpfs at /dev/shm")
    seen = f"{_gb(facts.shared_memory_free_bytes)} of {_gb(facts.shared_memory_bytes)} free in /dev/shm"
    wanted = OBJECT_STORE_SHARE * facts.memory_bytes
    if facts.shared_memory_free_bytes < wanted:
        more = f"make room for {_gb(wanted)}: docker run --shm-size, or in Kubernetes an emptyDir with medium: Memory at /dev/shm"
        return warn("shared memory", seen, f"Ray's object store is then on the disk, and slow: {more}")
    return ok("shared memory", seen)


def _open_files(facts: Facts) -> Finding:
    if 0 <= facts.open_files < OPEN_FILES_LEAST:
        return warn("open files", f"at most {facts.open_files}", "replicas connect to each other: ulimit -n 65536 before Ray starts")
    return ok("open files", "no limit" if facts.open_files < 0 else f"at most {facts.open_files:,}")


def _temporary(facts: Facts) -> Finding:
    what = "temporary folder"
    other = "give Ray another one: RAY_TMPDIR=/tmp, or ray start --temp-dir"
    if facts.temporary_trouble:
        return fail(what, f"{facts.temporary} cannot be written: {facts.temporary_trouble}", other)
    length = len(f"{facts.temporary}/ray{SOCKETS_BELOW}".encode())
    if length > SOCKET_PATH_MOST:
        seen = f"{facts.temporary}: the paths of Ray's sockets in it have {length} bytes, of {SOCKET_PATH_MOST}"
        return fail(what, seen, f"{other}: its path must be shorter by {length - SOCKET_PATH_MOST}")
    return ok(what, facts.temporary)


def _loopback(facts: Facts) -> Finding:
    if facts.loopback_trouble:
        mend = "let processes of this machine connect to each other: ip link set lo up; a sandbox must allow Unix sockets"
        return fail("loopback", facts.loopback_trouble, mend)
    return ok("loopback", "TCP and Unix sockets connect")


def _token(facts: Facts) -> Finding:
    what, mode = "token", (facts.token_mode or "").lower()
    if mode == "token" and not facts.has_token:
        mend = f"ray get-auth-token --generate on one node, and the same file on all others: {facts.token_file}"
        return fail(what, "RAY_AUTH_MODE=token, and there is no token", mend)
    if facts.others_may_read_token and mode != "disabled":
        return warn(what, f"others may read {facts.token_file}", f"chmod 600 {facts.token_file}")
    if mode == "disabled":
        mend = "where others reach the network: ray get-auth-token --generate, and RAY_AUTH_MODE=token on all nodes"
        return warn(what, "RAY_AUTH_MODE=disabled: who reaches Ray's ports can run code", mend)
    return ok(what, f"of {facts.token_file}" if facts.has_token else "none; Ray's version decides whether a cluster asks for one")


def _encryption(facts: Facts) -> Finding:
    """Jobs do as Ray does, by the environment of the driver."""
    what = "encryption"
    if not facts.tls:
        seen = "none between nodes: RAY_USE_TLS is not set for Ray; a job's own frames are encrypted with RunConfig(encrypt=True) only"
        return ok(what, seen)
    if facts.tls_trouble:
        mend = "name files that can be read, the same CA on all nodes, before Ray starts"
        return fail(what, f"RAY_USE_TLS={facts.tls}, but {facts.tls_trouble}", mend)
    return ok(what, f"RAY_USE_TLS={facts.tls}: Ray encrypts between nodes, and so do jobs their frames, by RunConfig(encrypt=None)")


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


RULES: Sequence[Callable[[Facts], Finding]] = (
    _python, _packages, _java, _spark, _cpus, _memory, _shared_memory, _open_files, _temporary, _loopback, _token, _encryption,
)  # fmt: skip


def compare(here: Facts, there: Iterable[tuple[str, Facts]]) -> list[Finding]:
    """Whether the nodes of a cluster have the versions of this machine."""
    mine = {"python": here.python, **{name: here.packages.get(name) for name in PACKAGES}}
    found = []
    for node, facts in there:
        theirs = {"python": facts.python, **{name: facts.packages.get(name) for name in PACKAGES}}
        different = {name: theirs[name] for name in mine if mine[name] != theirs[name]}
        if different:
            seen = ", ".join(f"{name} {version or 'missing'} (here {mine[name]})" for name, version in different.items())
            found.append(fail(f"versions on {node}", seen, "install the same versions on all nodes: one image, or one requirements.lock"))
    return found or [ok("versions", "equal on all nodes")]


__all__ = ["compare", "judge"]
