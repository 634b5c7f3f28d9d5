"""How much code is protocol of keyed state: the lines of methods that store, restore, give and take, class by class.

    python scripts/state_protocol.py [FOLDER ...]      by default dataflow

A class counts where it derives from ``KeyedState``, and where it has ``checkpoint`` and ``restore``, or ``give`` and ``take``, of its own:
the parts of such states. Vertices do not count, and not what has no code (``Protocol``). Of its methods those with one of the names of
``PROTOCOL`` count, and private ones that these alone call, from the first decorator to the last line, docstrings and what is abstract
included.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PROTOCOL = frozenset(
    {
        *("checkpoint", "restore", "take_changes", "restore_changes", "forget_changes"),
        *("index", "give", "take", "gave", "index_held", "give_held", "take_held", "gave_held", "rows_stored", "restore_rows"),
        *("inline", "fits", "entries", "put_entries"),
        *("changed", "named", "shaped", "unshaped", "put_in", "left", "empty", "renumber"),
        *("learn", "goes_with", "marks", "marked", "bits", "put_bits"),
    }
)
"""What a state has to say of itself for snapshots, increments, other replicas and tables, and what its form asks it for these."""

PAIRS = ({"checkpoint", "restore"}, {"give", "take"})


def classes_in(folders: Iterable[Path]) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class at the top of a file."""
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        yield from ((path, node) for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))


def bases_of(node: ast.ClassDef) -> set[str]:
    """The names of the classes that it derives from."""
    named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {base.id for base in named if isinstance(base, ast.Name)}


def deriving(root: str, classes: list[tuple[Path, ast.ClassDef]]) -> set[str]:
    """The names of a class and of all that derive from it."""
    found: set[str] = set()
    more = {root}
    while more:
        found |= more
        more = {node.name for _, node in classes if bases_of(node) & found} - found
    return found


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Its methods by name."""
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def of_protocol(methods: dict[str, ast.FunctionDef]) -> set[str]:
    """The names of those that are protocol."""
    found = methods.keys() & PROTOCOL
    users: dict[str, set[str]] = {name: set() for name in methods if name.startswith("_") and not name.startswith("__")}
    for name, method in methods.items():
        for each in ast.walk(method):
            if isinstance(each, ast.Attribute) and each.attr in users and each.attr != name:
                users[each.attr].add(name)
    while more := {name for name, by in users.items() if by and by <= found} - found:
        found |= more
    return found


def lines_of(method: ast.FunctionDef) -> int:
    """How many lines it has."""
    return (method.end_lineno or 0) - min([method.lineno, *(each.lineno for each in method.decorator_list)]) + 1


def protocol_lines(folders: Iterable[Path]) -> dict[tuple[str, str], tuple[int, int]]:
    """By file and class: lines of the protocol, and of the class."""
    classes = list(classes_in(folders))
    states, others = deriving("KeyedState", classes), deriving("Vertex", classes) | deriving("Protocol", classes)
    out = {}
    for path, node in classes:
        methods = methods_of(node)
        if node.name not in others and (node.name in states or any(pair <= methods.keys() for pair in PAIRS)):
            lines = sum(lines_of(methods[name]) for name in of_protocol(methods))
            out[str(path), node.name] = (lines, (node.end_lineno or 0) - node.lineno + 1)
    return out


def main(folders: list[str]) -> None:
    """Print the table, the most lines first."""
    found = protocol_lines(map(Path, folders or ["dataflow"]))
    for (path, name), (lines, of) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(f"{lines:5} of {of:4}  {name:24} {path}")
    with_own = sum(lines > 0 for lines, _ in found.values())
    total, all_lines = (sum(each[at] for each in found.values()) for at in (0, 1))
    print(f"{total} of {all_lines} lines of {len(found)} classes, {with_own} with some")


if __name__ == "__main__":
    main(sys.argv[1:])
