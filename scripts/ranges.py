"""Try the package at both ends of the ranges in pyproject.toml. This is ``make lowest``.

    python scripts/ranges.py                              # both ends, each in an environment of its own below .cache/ranges
    python scripts/ranges.py --end lowest tests/dataflow  # one end, other tests

``lowest`` has the lowest version of every dependency and of every extra for users; ``newest`` what pip gives somebody who installs the
package today. The tools of the tests come from requirements.lock at both ends. Each environment is made anew when what goes into it has
changed. Nothing but the standard library: it runs before there is any environment.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "ranges"
TOOLS = ("flask", "flask-cors", "hypothesis", "matplotlib", "moto", "networkx", "psutil", "pytest", "pytest-timeout", "scipy", "setuptools")
EXTRAS = {"lowest": ["spark", "java", "polars", "sql", "demo", "video", "notebook"], "newest": ["polars", "sql"]}
"""Spark keeps pandas below 3, so the newest end is without it; the newest versions of the other extras are those of requirements.lock."""
SHOWN = ("ray", "numpy", "pandas", "pyarrow", "obstore", "cloudpickle", "click", "rich", "xxhash", "aiohttp", "pyspark")
TESTS = (
    *(f"tests/dataflow/test_{name}.py" for name in ("key_hashing", "exact", "keys_and_names", "column_results", "dense_groups", "sums")),
    *(
        "tests/dataflow/test_map_batches.py",
        "tests/actors/test_wire.py",
        "tests/actors/test_batches.py",
        "tests/actors/test_page_server.py",
        "tests/snapshots/test_create.py",
        "tests/snapshots/test_store.py",
        "tests/sql/test_tables.py",
        "tests/test_cli.py",
    ),
    *(f"tests/integrations/test_{name}.py" for name in ("arrow_source", "arrow_sink", "file_sources", "parquet_sink", "spark_types")),
    "tests/cluster/test_runtime.py",  # the one on Ray
)
"""What touches numpy, Arrow, click, pickles and Ray at most places for its seconds."""
SPARK_TESTS = ("tests/cluster/test_spark_sink.py",)


def name_of(requirement: str) -> str:
    """``"ray[data]>=2,<3"`` gives ``"ray"``."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def lowest_of(requirement: str) -> str | None:
    """``"ray[data]>=2.44,<3"`` gives ``"ray==2.44"``; None where no lower end is given."""
    found = re.search(r">=\s*([\w.]+)", requirement)
    return f"{name_of(requirement)}=={found[1]}" if found else None


def lowest_versions(project: dict[str, object]) -> list[str]:
    """Constraints for pip: the lowest of every dependency and of the extras for users. Raises SystemExit where a range has no lower end."""
    dependencies = list(project["dependencies"])  # type: ignore[call-overload]
    extras = project["optional-dependencies"]
    for extra in EXTRAS["lowest"]:
        dependencies += extras[extra]  # type: ignore[index]
    bounds = {name_of(each): lowest_of(each) for each in reversed(dependencies)}  # an extra may narrow a dependency; its lowest stays
    open_ended = sorted(name for name, bound in bounds.items() if bound is None)
    if open_ended:
        raise SystemExit(f"pyproject.toml gives no lowest version of {', '.join(open_ended)}: write name>=version,<version")
    return sorted(bound for bound in bounds.values() if bound)


def locked_tools() -> list[str]:
    """The tools of the tests as requirements.lock has them."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if name_of(line).lower() in TOOLS]


def environment(end: str, python: str) -> Path:
    """The Python of an environment at one end, made unless it is there from the same files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = locked_tools() + (lowest_versions(project) if end == "lowest" else [])
    package = f"{ROOT}[{','.join(EXTRAS[end])}]" if EXTRAS[end] else str(ROOT)
    tools = ["moto[s3]" if name == "moto" else name for name in map(name_of, locked_tools())]
    stamp, folder = "\n".join([python, package, *project["dependencies"], *bounds]), FOLDER / end
    made, executable = folder / "made-from", folder / "bin" / "python"
    if made.is_file() and made.read_text() == stamp:
        return executable
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(bounds) + "\n")
    pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(constraints)]
    subprocess.run([*pip, *tools, "--editable", package], check=True)
    made.write_text(stamp)
    return executable


def try_end(end: str, python: str, tests: list[str]) -> bool:
    """Make the environment, say what is in it, run the tests; whether they passed."""
    began_s = time.monotonic()
    executable = environment(end, python)
    freeze = [str(executable), "-m", "pip", "freeze", "--disable-pip-version-check"]
    there = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.splitlines()
    shown = " ".join(line for name in SHOWN for line in there if name_of(line) == name)
    print(f"{end}: {shown} (ready after {time.monotonic() - began_s:.0f} s)", flush=True)
    wanted = tests or [*TESTS, *(SPARK_TESTS if "spark" in EXTRAS[end] else ())]
    command = [str(executable), "-m", "pytest", "--quiet", "-m", "not soak", "-o", f"cache_dir={FOLDER / end / 'pytest'}", *wanted]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}, check=False).returncode == 0


def main() -> None:
    """Both ends, or the one that is asked for; ends with 1 unless all tests passed."""
    parser = argparse.ArgumentParser(description="Try the package at both ends of the ranges in pyproject.toml.")
    parser.add_argument("tests", nargs="*", help="files of tests instead of the usual ones")
    parser.add_argument("--end", choices=list(EXTRAS), help="one end only")
    asked = parser.parse_args()
    passed = {end: try_end(end, sys.executable, asked.tests) for end in ([asked.end] if asked.end else EXTRAS)}
    for end, good in passed.items():
        print(f"{end}: {'passed' if good else 'FAILED'}")
    sys.exit(not all(passed.values()))


if __name__ == "__main__":
    main()
