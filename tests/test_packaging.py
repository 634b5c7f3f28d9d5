"""A wheel and a source distribution hold every package, though the folders reach ``src/rayad`` through symbolic links."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.checkout import PACKAGES, ROOT, python_files

NEEDED = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads: building leaves files behind in the folder that it builds."""
    project = tmp_path_factory.mktemp("project")
    for folder in (*PACKAGES, "src"):
        shutil.copytree(ROOT / folder, project / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in NEEDED:
        shutil.copy(ROOT / name, project / name)
    return project


def expected_modules() -> set[str]:
    in_folders = {f"rayad/{path.relative_to(ROOT).as_posix()}" for path in python_files(*PACKAGES)}
    at_top = {path.relative_to(ROOT / "src").as_posix() for path in python_files("src")}
    return in_folders | at_top | {"rayad/py.typed"}


def build(project: Path, hook: str, out: Path) -> Path:
    """Call a build hook as pip does, in a process of its own, without an index."""
    program = f"import sys, setuptools.build_meta as backend; print(backend.{hook}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(out)], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{hook} failed:\n{done.stdout}\n{done.stderr}"
    return out / done.stdout.splitlines()[-1]


def test_the_wheel_holds_every_module_once_as_part_of_rayad(project: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(project, "build_wheel", tmp_path)) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(expected_modules())


def test_the_source_distribution_holds_every_module_as_a_plain_file(project: Path, tmp_path: Path) -> None:
    with tarfile.open(build(project, "build_sdist", tmp_path)) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
    assert {f"src/{name}" for name in expected_modules()} | set(NEEDED) <= files
