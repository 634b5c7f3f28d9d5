"""The checkout as the house rules see it: its folders, its files, their syntax trees, and how a breach is told."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("progress", "dataflow", "snapshots", "autoscale", "actors", "graphs", "incremental", "sql", "integrations")
TEXT_FOLDERS = (*PACKAGES, "src", "tests", "examples", "benchmarks", "docs", "scripts", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".yml", ".yaml", ".cfg", ".ini", ".mmd", ".ipynb"}


@dataclass(frozen=True, slots=True)
class Breach:
    """One place that breaks a rule."""

    path: Path
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.what}: {self.instead}"


def refuse(breaches: list[Breach]) -> None:
    """Fail with one line for each breach."""
    if breaches:
        pytest.fail("\n".join(map(str, breaches)), pytrace=False)


def python_files(*folders: str) -> list[Path]:
    """Python files of these root folders; symbolic links are not followed, so each file comes once."""
    return sorted(path for folder in folders for path in files_below(ROOT / folder) if path.suffix == ".py")


def files_below(folder: Path) -> Iterator[Path]:
    """Files below a folder without caches, builds and what symbolic links lead to."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_symlink() or path.name in {"__pycache__", ".ipynb_checkpoints"} or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def text_files() -> list[Path]:
    """Everything that people wrote, beginning with the files of the root itself."""
    at_root = [path for path in sorted(ROOT.iterdir()) if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.name == "Makefile")]
    below = [path for folder in TEXT_FOLDERS for path in files_below(ROOT / folder)]
    return at_root + [path for path in below if path.suffix in TEXT_SUFFIXES or path.parent.name == ".ci"]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return [node.module]
    return []
