"""README is a landing page: short, and each program on it runs alone and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.examples.snippets import Snippet, snippets_of

BYTES_MAX = 8192
SNIPPETS = snippets_of("README.md")


def test_it_fits_a_landing_page() -> None:
    size = (ROOT / "README.md").stat().st_size
    assert size <= BYTES_MAX, f"README.md has {size} bytes, at most {BYTES_MAX}: move what is long to a page in docs/ and link to it"


def test_it_shows_a_count_a_loop_and_a_recovery_with_what_they_print() -> None:
    assert [snippet.name for snippet in SNIPPETS] == ["wordcount", "collatz", "sales"]
    assert all(snippet.printed for snippet in SNIPPETS)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.name)
def test_a_program_prints_what_stands_below_it(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert snippet.run() == snippet.printed


def test_each_document_for_users_is_one_click_away() -> None:
    links = set(re.findall(r"\]\((docs/[a-z_]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8")))
    beside = {"changelog.md", "contributing.md", "index.md", "security.md"}  # these are README and files at the root, for the site
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.name not in beside}
    assert pages - links == set()
