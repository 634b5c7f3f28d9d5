"""House rule: what is kept in files is changed through a :class:`rayad.snapshots.port.Port` alone (docs/design/fence.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import Breach, parse, python_files, refuse

FOLDERS = ("snapshots", "actors/store", "integrations/file_output")
THE_PORT = ("snapshots/port.py", "snapshots/create.py", "snapshots/buckets.py")
RECORDS = ("actors/store/line_file.py",)
"""Lines for people, which nobody resumes from: they are appended to, which no port can do."""
CHANGES = {"open_output_stream", "open_append_stream", "create_dir", "delete_dir", "delete_file", "copy_file", "move"}
"""Methods of pyarrow's file systems."""
OF_OS = {"link", "symlink", "rename", "replace", "renames", "remove", "unlink", "rmdir", "removedirs", "mkdir", "makedirs", "truncate"}
ADVICE = "use the store's or the sink's port: create, write, move, delete"


def changes_of_files(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            is_port = receiver.rpartition(".")[2].lstrip("_") == "port" or receiver.startswith("Port(")
            if (node.func.attr in CHANGES and not is_port) or (receiver == "os" and node.func.attr in OF_OS):
                yield node, called
        elif called == "open" and len(node.args) > 1 and any(letter in ast.unparse(node.args[1]) for letter in "wax+"):
            yield node, called


def breaches_of(path: Path) -> list[Breach]:
    return [Breach(path, node.lineno, f"{called}() changes a file", ADVICE) for node, called in changes_of_files(parse(path))]


def test_files_are_changed_through_the_port_alone() -> None:
    kept = [path for path in python_files(*FOLDERS) if not str(path).endswith((*THE_PORT, *RECORDS))]
    assert len(kept) > 20
    refuse([breach for path in kept for breach in breaches_of(path)])


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("self.filesystem.move(a, b)", True),
        ("home.delete_file(path)", True),
        ("self.port.move(a, b)", False),
        ("log._port.delete(name)", False),
        ("os.replace(a, b)", True),
        ("open(path, 'wb')", True),
        ("open(path)", False),
        ("os.path.join(a, b)", False),
    ],
)
def test_what_the_rule_refuses(line: str, is_refused: bool) -> None:
    assert bool(list(changes_of_files(ast.parse(line)))) is is_refused
