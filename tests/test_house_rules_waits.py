"""House rules: no call waits without a bound, and every thread has an owner.

A call that may end late or never, because its peer is stopped, gone or busy, has a timeout. Where a wait without a bound is right, the line
says what ends it: ``# ends with ...``. A lock that is held for a few lines is no wait. Threads are made by ``actors/process/threads.py``
alone, so that whoever starts one can end it, and wait for that within a bound.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import Breach, parse, python_files, refuse

BARE = {"wait", "get", "join", "acquire", "result", "recv", "communicate", "poll", "accept"}
"""Methods that, called with nothing (or None), block until something happens: of events, queues, threads, locks, futures, processes."""
CALLS = {"ray.get", "ray.wait", "_get", "_wait", "subprocess.run", "subprocess.check_output", "subprocess.check_call", "subprocess.call"}
"""Functions that block unless they are given ``timeout=``."""
REASON = "# ends with "


def is_bound(node: ast.Call) -> bool:
    given = next((word.value for word in node.keywords if word.arg in ("timeout", "timeout_s")), None)
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def waits_without_a_bound(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or is_bound(node):
            continue
        name = ast.unparse(node.func)
        if name in CALLS:
            yield node
        elif name == "select.poll":
            continue  # makes an object
        elif isinstance(node.func, ast.Attribute) and node.func.attr in BARE:
            first = node.args[0] if node.args else None
            if first is None or (isinstance(first, ast.Constant) and first.value is None):
                yield node


def breaches_of(path: Path) -> list[Breach]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for node in waits_without_a_bound(parse(path)):
        beside = lines[node.lineno - 1 : (node.end_lineno or node.lineno)]
        if not any(REASON in line for line in beside):
            what = f"{ast.unparse(node.func)}() waits without a bound"
            found.append(Breach(path, node.lineno, what, f"give timeout=, or say beside it what ends it: `{REASON}the event loop`"))
    return found


def test_no_call_waits_without_a_bound() -> None:
    refuse([breach for path in python_files("actors", "integrations") for breach in breaches_of(path)])


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("ray.get(ref)", True),
        ("ray.get(ref, timeout=None)", True),
        ("ray.get(refs, timeout=5)", False),
        ("ray.wait([ref], num_returns=1)", True),
        ("event.wait()", True),
        ("event.wait(None)", True),
        ("event.wait(timeout_s)", False),
        ("thread.join()", True),
        ("', '.join(names)", False),
        ("queue.get()", True),
        ("table.get(key)", False),
        ("lock.acquire()", True),
        ("lock.acquire(timeout=2)", False),
        ("future.result()", True),
        ("subprocess.run(['true'])", True),
        ("queue.get()  # ends with the None that close() puts", False),
    ],
)
def test_the_rule_knows_what_waits(tmp_path: Path, line: str, is_refused: bool) -> None:
    path = tmp_path / "waits.py"
    path.write_text(line + "\n")
    assert bool(breaches_of(path)) is is_refused


# -- threads --------------------------------------------------------------------------------------------
THE_PLACE_FOR_THREADS = "actors/process/threads.py"
MAKERS = {"threading.Thread", "threading.Timer", "_thread.start_new_thread"}
"""What makes a thread that nobody need own."""


def threads_made(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where one of MAKERS is named: called, inherited from, or imported by its own name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in MAKERS:
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, name) for alias in node.names if (name := f"{node.module}.{alias.name}") in MAKERS)


def test_every_thread_has_an_owner() -> None:
    files = python_files("progress", "dataflow", "snapshots", "autoscale", "graphs", "incremental", "sql", "actors", "integrations", "src")
    refuse(
        [
            Breach(path, line, f"{name} makes a thread that has no owner", "let an OwnedThread or Threads of rayad.actors.process.threads")
            for path in files
            if not path.as_posix().endswith(THE_PLACE_FOR_THREADS)
            for line, name in threads_made(parse(path))
        ]
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("threading.Thread(target=f).start()", ["threading.Thread"]),
        ("class Mine(threading.Thread): pass", ["threading.Thread"]),
        ("from threading import Lock, Timer", ["threading.Timer"]),
        ("threading.Event()", []),
        ("OwnedThread('name', f).start()", []),
    ],
)
def test_the_rule_knows_what_makes_a_thread(line: str, names: list[str]) -> None:
    assert [name for _, name in threads_made(ast.parse(line))] == names
