"""What pyright and mypy tell of programs that use Rayad: each planted mistake, and nothing of programs that are right.

Both read the programs as a user's editor does; pyright in its mode "basic", mypy with ``--strict`` where the program is about types.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.examples.running import environment
from tests.examples.snippets import snippets_of
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
MISTAKES = HERE / "mistakes.py"
KNOWN = HERE / "known.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MISTAKES_LEAST = 20
MADE_WHEN_IMPORTED = re.compile(r'is not a known attribute of module "pyarrow\.compute"|Module "pyarrow\.compute" has no attribute')
"""pyarrow makes these functions as it is imported, and has no stubs: no checker sees them."""

Found = dict[str, dict[int, list[str]]]
"""Errors by file name and line."""


def run(arguments: Sequence[object], where: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=where,
        env=environment() | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]  # 1: errors were found
    return done.stdout


def by_pyright(programs: Sequence[Path], where: Path) -> Found:
    config = {
        "extraPaths": [str(ROOT / "src"), str(ROOT / "examples")],
        "typeCheckingMode": "basic",
        "pythonVersion": "3.11",
    }
    (where / "pyrightconfig.json").write_text(json.dumps(config))
    told = json.loads(run(["pyright", "-p", where, "--pythonpath", sys.executable, "--outputjson", *programs], where))
    assert told["summary"]["filesAnalyzed"] == len(programs)
    found: Found = {}
    for one in told["generalDiagnostics"]:
        if one["severity"] == "error" and not MADE_WHEN_IMPORTED.search(one["message"]):
            found.setdefault(Path(one["file"]).name, {}).setdefault(one["range"]["start"]["line"] + 1, []).append(one["message"])
    return found


def by_mypy(programs: Sequence[Path], where: Path) -> Found:
    """With the settings of `make lint`, whose cache has Rayad itself: reading that takes half a minute."""
    of_readme = [program.stem for program in programs if program.parent == where]  # a newcomer writes no annotations
    others = [MISTAKES.stem, KNOWN.stem, *(f"tests.types.{own.stem}" for own in (MISTAKES, KNOWN)), *(each.stem for each in EXAMPLES)]
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.mypy]")[2]
    settings = re.split(r"^\[tool\.(?!mypy)|^\[(?!tool|\[)", settings, flags=re.MULTILINE)[0]
    settings = re.sub(r"^packages = .*$", "", settings.replace('mypy_path = "src"', 'mypy_path = "src:examples"'), flags=re.MULTILINE)
    untyped = json.dumps(["import-untyped", "import-not-found", "untyped-decorator"])
    (where / "mypy.toml").write_text(
        f"[tool.mypy]{settings}\n"
        f"[[tool.mypy.overrides]]\nmodule = {json.dumps([*others, *of_readme])}\ndisable_error_code = {untyped}\n"
        f"[[tool.mypy.overrides]]\nmodule = {json.dumps(of_readme)}\ndisallow_untyped_defs = false\ndisallow_untyped_calls = false\n",
        encoding="utf-8",
    )
    told = run(["mypy", "--config-file", where / "mypy.toml", "--no-error-summary", "--show-absolute-path", *programs], ROOT)
    found: Found = {}
    for line in told.splitlines():
        parts = re.match(r"(.+?):(\d+): error: (.*)", line)
        if parts is not None and not MADE_WHEN_IMPORTED.search(parts[3]):
            found.setdefault(Path(parts[1]).name, {}).setdefault(int(parts[2]), []).append(parts[3])
    return found


CHECKERS = {"pyright": by_pyright, "mypy": by_mypy}


@pytest.fixture(scope="module", params=CHECKERS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What a checker finds in all programs, read at once: most of its time goes into Rayad itself."""
    where = tmp_path_factory.mktemp(request.param)
    programs = [MISTAKES, KNOWN, *EXAMPLES]
    for snippet in snippets_of("README.md"):
        programs.append(where / f"readme_{snippet.name}.py")
        programs[-1].write_text(snippet.code, encoding="utf-8")
    return CHECKERS[request.param](programs, where)


def test_each_planted_mistake_is_found_at_its_line_and_nothing_else(found: Found) -> None:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    planted = [number for number, line in enumerate(lines, 1) if "# mistake: " in line]
    assert len(planted) >= MISTAKES_LEAST
    assert sorted(found[MISTAKES.name]) == planted


def test_records_have_the_types_that_are_said(found: Found) -> None:
    assert found.get(KNOWN.name, {}) == {}


def test_examples_and_the_programs_of_the_readme_have_no_mistake(found: Found) -> None:
    assert {name: told for name, told in found.items() if name not in (MISTAKES.name, KNOWN.name)} == {}
