"""``dir()`` and ``help()``, as an editor or a notebook asks: what is meant for users, all of it documented, and nothing else."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import Job
from tests.checkout import ROOT
from tests.examples.running import environment
from tests.patience import PATIENCE_S

PAGES = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
FORWARDING = re.compile(r"\*args.*\*\*kwargs")


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def documented(cls: type, *attributes: str) -> set[str]:
    """The members that the reference (autodoc, docs/api/) has: those with a text of their own; and attributes that it is made with."""
    return {name for name, value in inspect.getmembers(cls) if not name.startswith("_") and inspect.getdoc(value)} | set(attributes)


def things() -> dict[str, tuple[Any, set[str]]]:
    flow = rd.Dataflow("looked-at")
    stream = flow.from_items([("a", 1)])
    keyed = stream.key_by(lambda record: record[0])
    windowed = stream.assign_timestamps(lambda record: record[1]).window(rd.windows.tumbling(2))
    windowed.count().collect("counts")
    job = flow.submit(runtime="local")
    of_job = {
        name for name in documented(Job, "name") if callable(getattr(Job, name, None)) or isinstance(getattr(Job, name, None), property)
    }
    return {
        "stream": (stream, documented(rd.Stream, "flow")),
        "keyed": (keyed, documented(rd.KeyedStream)),
        "windowed": (windowed, documented(rd.WindowedStream)),
        "late": (windowed.count(), documented(rd.Stream, "flow", "late")),
        "flow": (flow, documented(rd.Dataflow, "name")),
        "job": (job, of_job | {"name", "crash", "step"}),
        "result": (job.wait(), {"get", "items", "keys", "values", "show", "statistics"}),
    }


THINGS = things()


@pytest.mark.parametrize("name", THINGS)
def test_dir_is_what_the_reference_has_and_a_page_tells_of_each(name: str) -> None:
    thing, expected = THINGS[name]
    assert public(thing) == expected
    assert {member for member in expected if not re.search(rf"\b{member}\b", PAGES)} == set(), "no page of docs/ has these"
    assert all(hasattr(thing, member) for member in expected - {"errors"}), "errors is only behind on_error='skip', and says so"


@pytest.mark.parametrize("module", [rd, rd.windows, rd.columns, rd.graphs], ids=lambda module: module.__name__)
def test_dir_of_a_module_is_what_it_exports(module: Any) -> None:
    assert public(module) == set(module.__all__)


def test_public_names_have_signatures_and_texts_of_their_own() -> None:
    functions = [getattr(rd, name) for name in rd.__all__ if inspect.isfunction(getattr(rd, name))]
    methods = [getattr(type(thing), name) for thing, expected in THINGS.values() for name in expected if hasattr(type(thing), name)]
    for function in [*functions, *filter(inspect.isfunction, methods)]:
        assert len(inspect.getdoc(function) or "") > len("placeholder"), function
        assert FORWARDING.search(str(inspect.signature(function))) is None, function


def test_looking_at_names_imports_no_ray_and_importing_not_even_arrow() -> None:
    program = (
        "import inspect, sys, rayad as rd; dir(rd); print('pyarrow' in sys.modules); "
        "inspect.signature(rd.read_state); print('ray' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.split() == ["False", "False"]
