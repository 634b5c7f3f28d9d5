"""Twelve tasks as a new user would try them: each program of docs/recipes.md prints what stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.snippets import snippets_of

PAGE = "docs/recipes.md"
RECIPES = {snippet.name: snippet for snippet in snippets_of(PAGE)}


def test_each_recipe_is_a_program_with_its_output() -> None:
    assert len(RECIPES) == len(snippets_of(PAGE)) == 12
    assert all(recipe.printed for recipe in RECIPES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_stands_below_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RECIPES[name].run() == RECIPES[name].printed
