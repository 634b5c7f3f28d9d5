"""Error messages name the user's line, whether the code is in a file, a notebook cell or a string."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rayad
import rayad as rd
from rayad.dataflow.records.users_line import users_line

CODE = """
def make(flow):
    return flow.from_items([1]).map(abs).key_by(
        abs
    ).count()
"""


def where_of(code: str, filename: str, **names: Any) -> list[str]:
    """The lines that are noted for the nodes which a piece of user code makes."""
    space: dict[str, Any] = dict(names)
    exec(compile(code, filename, "exec"), space)
    flow = rd.Dataflow()
    space["make"](flow)
    return [node.where for node in flow.graph.nodes]


def test_in_a_test() -> None:
    flow = rd.Dataflow()
    here = inspect.currentframe()
    assert here is not None
    flow.from_items([1]).iterate(lambda inner: (inner.map(abs), inner))
    assert {node.where for node in flow.graph.nodes} == {f"test_users_line.py:{here.f_lineno - 1}"}


def test_in_a_script(tmp_path: Path) -> None:
    assert where_of(CODE, str(tmp_path / "script.py")) == ["script.py:3", "script.py:3", "script.py:5", "script.py:5"]


@pytest.mark.parametrize("filename", ["<stdin>", "<string>", "<ipython-input-3-0a1b2c>", "<doctest x[0]>"])
def test_in_code_without_a_file(filename: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(rayad.__file__).parent / "dataflow")  # a made-up file name is not a path of Rayad's, in any current folder
    assert where_of(CODE, filename)[0] == f"{filename}:3"


def test_in_a_notebook() -> None:
    """IPython's kernel compiles each cell as a file of its own, and knows its number."""
    cell = "/tmp/ipykernel_4711/1234567.py"
    ipython = SimpleNamespace(compile=SimpleNamespace(format_code_name=lambda name: ("Cell", "In[7]") if name == cell else None))
    assert where_of(CODE, cell, get_ipython=lambda: ipython)[0] == "In[7]:3"
    assert where_of(CODE, cell)[0] == "1234567.py:3"


@pytest.mark.parametrize("folder", ["", "dataflow", "graphs", "incremental", "sql", "integrations", "actors"])
def test_rayads_own_lines_are_skipped_with_and_without_symbolic_links(folder: str) -> None:
    package = Path(rayad.__file__).parent / folder
    for path in {package / "made_up.py", package.resolve() / "made_up.py"}:
        assert set(where_of(CODE, str(path))) == {f"test_users_line.py:{_line_of_make()}"}


def _line_of_make() -> int:
    lines, first = inspect.getsourcelines(where_of)
    return first + next(i for i, line in enumerate(lines) if 'space["make"](flow)' in line)


def test_a_folder_beside_ours_with_a_similar_name_is_the_users() -> None:
    ours = (Path(rayad.__file__).parent / "graphs").resolve()
    assert where_of(CODE, str(ours.parent / "graphs_of_mine" / "mine.py"))[0] == "mine.py:3"


def test_without_any_line_of_a_user() -> None:
    assert users_line().startswith("test_users_line.py:")
