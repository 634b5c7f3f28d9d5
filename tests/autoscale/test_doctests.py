"""Every example in the docstrings of rayad.autoscale runs."""

import doctest
import importlib
import pkgutil

import pytest

import rayad.autoscale

MODULES = [f"rayad.autoscale.{info.name}" for info in pkgutil.iter_modules(rayad.autoscale.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_every_public_name_has_a_docstring() -> None:
    types_of_functions = {"Policy"}  # an alias: the text behind it says what it is
    names = set(rayad.autoscale.__all__) - types_of_functions
    missing = [name for name in sorted(names) if not (getattr(rayad.autoscale, name).__doc__ or "").strip()]
    assert missing == []
