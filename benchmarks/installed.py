"""The wheel in an environment of its own, with its declared dependencies and nothing else; in a second or two.

A full installation takes more than a minute (Ray, pandas and Arrow are 300 MB). So pip installs only the wheel into an empty environment.
Its dependencies, and theirs in turn, are linked from the environment that runs this. A version outside a declared
range is an error, as it would be for pip; a package that is not declared cannot be imported.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.machine import ROOT

NEEDED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")


def copy_project(to: Path) -> Path:
    """Copy the files that a build reads: building leaves files behind in its folder."""
    linked = [link.name for link in (ROOT / "src" / "rayad").iterdir() if link.is_symlink()]
    for folder in (*linked, "src"):
        shutil.copytree(ROOT / folder, to / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in NEEDED:
        shutil.copy(ROOT / name, to / name)
    return to


def build(project: Path, hook: str, out: Path) -> Path:
    """Call a build hook (``build_wheel``, ``build_sdist``) as pip does, in a process of its own, without an index."""
    program = f"import sys, setuptools.build_meta as backend; print(backend.{hook}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(out)], cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{hook} failed:\n{done.stdout}\n{done.stderr}")
    return out / done.stdout.splitlines()[-1]


def requirements_of(wheel: Path) -> list[str]:
    """The declared dependencies of a wheel, without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """The installed distributions of requirements and of theirs, by normalised name. Raises RuntimeError for a version out of range."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(each), "") for each in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted, extra = waiting.pop()
        if (wanted.marker and not wanted.marker.evaluate({"extra": extra})) or (str(wanted), extra) in seen:
            continue
        seen.add((str(wanted), extra))
        there = distribution(wanted.name)
        if not wanted.specifier.contains(there.version, prereleases=True):
            raise RuntimeError(f"{wanted.name} {there.version} is installed, {wanted} is declared")
        found[re.sub(r"[-_.]+", "-", wanted.name).lower()] = there
        waiting += [(Requirement(each), one) for each in there.requires or [] for one in ("", *wanted.extras)]
    return found


def environment_with(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with the wheel, its dependencies, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    for there in closure(requirements_of(wheel)).values():
        tops = {file.parts[0] for file in there.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in sorted(tops):
            if not (site / top).exists():
                os.symlink(Path(str(there.locate_file(top))), site / top)
    install = ["--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, env={**os.environ, "PYTHONPATH": ""})
    return python
