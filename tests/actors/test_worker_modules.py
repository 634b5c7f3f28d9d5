"""Which modules a program pickles by name, and the error for one that workers cannot import.

Issue 11: "a module unknown to workers gives 83 lines of C++ stack". The real thing is in ``tests/cluster/test_endings.py``.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.driver import worker_modules


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "only_the_drivers.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("only_the_drivers")
    del sys.modules["only_the_drivers"]


def asked(flow: rd.Dataflow, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a worker is asked to import."""
    names: list[str] = []

    class Task:
        def remote(self, given: list[str]) -> dict[str, str]:
            names.extend(given)
            return dict.fromkeys(given, "ModuleNotFoundError: No module named 'only_the_drivers'")

    monkeypatch.setattr(worker_modules.ray, "remote", lambda **_: lambda _: Task())
    monkeypatch.setattr(worker_modules.ray, "get", lambda answer, timeout: answer)
    worker_modules.check_can_travel(flow.plan())
    return names


@pytest.mark.parametrize("place", ["map", "key", "captured", "state"])
def test_a_module_that_only_the_driver_has_is_named(place: str, module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flow = rd.Dataflow("modules")
    items = flow.from_items([1], name="items")
    if place == "map":
        items.map(module.double, name="here")
    elif place == "key":
        items.key_by(module.double).count(name="here")
    elif place == "captured":
        items.map(lambda x: module.double(x), name="here")
    else:
        items.key_by(str).fold(0, lambda total, x: total + module.double(x), name="here")
    with pytest.raises(rd.ConfigError) as caught:
        asked(flow, monkeypatch)
    told, path = str(caught.value), str(tmp_path / "only_the_drivers.py")
    assert told.split(" needs ")[1] == (
        f"the module 'only_the_drivers' ({path!s}), which Ray's workers cannot import (ModuleNotFoundError: No module named "
        f"'only_the_drivers'): send it along with ray.init(runtime_env={{'py_modules': [{path!r}]}}) or "
        "ray.cloudpickle.register_pickle_by_value(only_the_drivers) before run(), or install it on every node"
    )
    assert "(test_worker_modules.py:" in told


def test_modules_by_value_and_installed_modules_are_not_checked(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    worker_modules.cloudpickle.register_pickle_by_value(module)
    try:
        flow = rd.Dataflow("modules")
        flow.from_items([1]).map(module.double).map(lambda x: np.sum(x)).map(str).key_by(lambda x: x).count().collect("out")
        assert asked(flow, monkeypatch) == []
    finally:
        worker_modules.cloudpickle.unregister_pickle_by_value(module)


def test_objects_that_cannot_be_pickled_are_named() -> None:
    flow, lock = rd.Dataflow("locks"), threading.Lock()
    flow.from_items([1]).map(lambda x: (x, lock), name="locked")
    with pytest.raises(rd.DataflowError, match=r"^'locked' \(.*\) cannot be sent to an actor: TypeError: cannot pickle '_thread.lock'"):
        worker_modules.check_can_travel(flow.plan())
