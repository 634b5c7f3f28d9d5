"""House rules for what people read: decisions, commands and links in documents, docstrings of public names."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.checkout import ROOT, Breach, files_below, refuse, text_files

DECISION_NAME = re.compile(r"(\d{3})-[a-z0-9]+(-[a-z0-9]+)*\.md")


def test_decisions_are_numbered_without_gaps() -> None:
    paths = sorted(path for path in files_below(ROOT / "docs" / "decisions") if path.name != "README.md")
    unnumbered = [path for path in paths if not DECISION_NAME.fullmatch(path.name)]
    refuse([Breach(path, 1, "has no number", "name it NNN-title.md, in lower case") for path in unnumbered])
    numbers = [int(path.name[:3]) for path in paths]
    first = min(numbers, default=0)
    assert numbers == list(range(first, first + len(numbers))), f"docs/decisions/: a number is missing or used twice: {numbers}"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def code_in(markdown: str) -> str:
    """The fenced blocks and inline code of a page."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(fenced + inline)


PAGES = [path for path in text_files() if path.suffix == ".md"]


def line_of(text: str, part: str) -> int:
    """The number of the first line that has it."""
    return text[: text.index(part)].count("\n") + 1


def test_make_targets_in_documents_exist() -> None:
    targets = make_targets()
    breaches = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        mentioned = set(re.findall(r"^\s*\$?\s*make ([a-z][a-z-]*)", code_in(text), flags=re.MULTILINE))
        breaches += [
            Breach(page, line_of(text, f"make {target}"), f"speaks of `make {target}`", f"the Makefile has {sorted(targets)}")
            for target in sorted(mentioned - targets)
        ]
    refuse(breaches)


FILES = [path.relative_to(ROOT).as_posix() for path in (*text_files(), *(ROOT / "examples").glob("*.ipynb"))]


def test_links_between_documents_lead_somewhere() -> None:
    breaches = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
        missing = [link for link in links if not (page.parent / link).exists()]
        breaches += [Breach(page, line_of(text, f"]({link}"), f"links to {link}", "which does not exist") for link in missing]
    refuse(breaches)


def test_files_that_documents_name_are_there() -> None:
    """By a path, or by the end of one: ``operators/distinct.py``."""
    breaches = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        text = page.read_text(encoding="utf-8")
        named = sorted(set(re.findall(r"`([a-z_]+/[a-z0-9_/]+\.(?:py|ipynb))", text)))
        missing = [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in FILES)]
        breaches += [Breach(page, line_of(text, f"`{name}"), f"names {name}", "where is it now?") for name in missing]
    refuse(breaches)


def test_sources_are_cited_as_papers() -> None:
    """A number of a file that only some of us have says nothing to a reader."""
    pages = [path for path in text_files() if not path.is_relative_to(ROOT / "tests") and path.suffix in {".md", ".py", ".ipynb"}]
    refuse(
        [
            Breach(path, number, match[0], "cite the paper, as in Naiad, SOSP 2013, 2.3")
            for path in pages
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            for match in re.finditer(r"\bseed 0\d\d\b|\bthe seed's\b", line)
        ]
    )


def test_the_readme_shows_how_to_run_the_demo_and_the_tests() -> None:
    readme = ROOT / "README.md"
    assert readme.is_file(), "README.md is missing; the package cannot be built without it either"
    text = readme.read_text(encoding="utf-8")
    missing = [target for target in ("make demo", "make test") if target not in text]
    assert not missing, f"README.md does not mention {missing}"


def is_documented(value: Any) -> bool:
    """Modules, classes and functions by their own docstring; an alias of types speaks for itself, a constant by its class."""
    if isinstance(value, types.UnionType | types.GenericAlias) or type(value).__module__ == "typing":
        return True
    if inspect.ismodule(value) or inspect.isclass(value) or callable(value):
        return bool((value.__doc__ or "").strip()) and not _has_generated_docstring(value)
    return type(value).__module__.partition(".")[0] in {"rayad", "builtins"}


def _has_generated_docstring(value: Any) -> bool:
    """A dataclass or an enum without a docstring gets one like ``Point(x: int)``."""
    return inspect.isclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}(")


def undocumented(module: Any) -> list[str]:
    names = [name for name in module.__all__ if not is_documented(getattr(module, name))]
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) and value.__module__.startswith("rayad"):
            names += [f"{name}.{method}" for method in undocumented_methods(value)]
    return names


def undocumented_methods(owner: type) -> list[str]:
    """Public methods and properties written in this class without a docstring here or in a base class."""
    return [
        name
        for name, member in vars(owner).items()
        if not name.startswith("_")
        and isinstance(member, Callable | property | classmethod | staticmethod)  # type: ignore[arg-type]
        and not inspect.isclass(member)
        and not inspect.getdoc(getattr(owner, name))
    ]


@pytest.mark.parametrize("name", ["rayad", "rayad.autoscale"])
def test_public_names_are_documented(name: str) -> None:
    package = importlib.import_module(name)
    assert hasattr(package, "__all__"), f"{name} lacks __all__: list the public names"
    missing = undocumented(package)
    assert not missing, f"write one sentence, then shapes, units, laws, errors for: {', '.join(missing)}"


def test_public_names_have_no_duplicates() -> None:
    package = importlib.import_module("rayad")
    names = list(getattr(package, "__all__", []))
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"src/rayad/__init__.py: listed twice in __all__: {twice}"


def test_docstrings_are_text_and_not_strings_side_by_side() -> None:
    """Seven once showed quotes in the middle of a sentence, where a tool had cut a line as it cuts a string."""
    pasted = re.compile(r'[^"] "\n\s+"[^"\n][^\n]*"""')
    found = [(path, path.read_text(encoding="utf-8")) for path in text_files() if path.suffix == ".py"]
    wrong = [
        Breach(path, text[: hit.start()].count("\n") + 1, "a cut string in a docstring", "write the sentence on")
        for path, text in found
        for hit in pasted.finditer(text)
    ]
    refuse(wrong)
