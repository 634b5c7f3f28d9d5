"""Every example in the docstrings of rayad.progress runs."""

import doctest
import importlib
import pkgutil

import pytest

import rayad.progress

MODULES = [info.name for info in pkgutil.walk_packages(rayad.progress.__path__, "rayad.progress.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
