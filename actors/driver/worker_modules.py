"""Finds the parts of a program that cannot be sent to Ray's workers, before an actor is started, and says so in an error.

A function of a module travels by its name. Ray's workers can import what is installed and, on the driver's node, what is in the script's
folder and in the working directory; not what a driver has added to ``sys.path`` itself. Unpickling then fails inside Ray before any
code of Rayad runs, with a C++ stack trace. So what is neither installed nor in those folders is tried in a worker first; most programs
have no such module.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import sysconfig
import time as clock
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError

from rayad.dataflow.plan import ApplyStep, Plan
from rayad.progress import ConfigError, DataflowError, say

CHECK_S = 60.0
"""How long a worker may take to say which modules it has."""


def check_can_travel(plan: Plan) -> float | None:
    """Raise DataflowError that names the operator whose function or object cannot be sent to an actor, ConfigError where a worker cannot
    import a module that one needs. Gives the ``time.time()`` at which a worker was asked for; None: none was."""
    needed: dict[str, str] = {}  # module -> what needs it
    for who, where, value in _what_travels(plan):
        for module in sorted(_modules_of(value, who, where)):
            needed.setdefault(module, f"{who!r} ({where})")
    doubtful = [module for module in needed if not _is_everywhere(module)]
    if not doubtful:
        return None
    asked_s = clock.time()
    asked = ray.remote(num_cpus=0, max_retries=0)(_not_importable).remote(doubtful)
    try:
        failed = ray.get(asked, timeout=CHECK_S)
    except GetTimeoutError:
        return asked_s  # no worker was free for the check: the actors will fail instead, if a module is missing
    for module, why in failed.items():
        raise ConfigError(not_importable(needed[module], module, why))
    return asked_s


def _what_travels(plan: Plan) -> Iterator[tuple[str, str, Any]]:
    for stage in plan.stages:
        yield stage.name, stage.where, stage.op
        for step in stage.steps:
            if isinstance(step, ApplyStep):
                yield step.name, step.where, step.element
    for sink in plan.sinks:
        yield f"sink {sink.key}", sink.where, sink.sink


def not_importable(who: str, module: str, why: str) -> str:
    """The message."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    path = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
    return (
        f"{who} needs the module {module!r} ({path}), which Ray's workers cannot import ({why}): send it along with "
        f"ray.init(runtime_env={{'py_modules': [{path!r}]}}) or ray.cloudpickle.register_pickle_by_value({top}) before run(), or install "
        "it on every node"
    )


class _ByName(cloudpickle.Pickler):
    """Notes the modules of objects that are pickled by name alone."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        out = super().reducer_override(obj)
        if out is NotImplemented and isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self.modules.add(getattr(obj, "__module__", None) or "builtins")
        elif isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        return out


def _modules_of(value: Any, who: str, where: str) -> set[str]:
    """The modules that an object's pickle names."""
    if type(value).__module__.startswith("rayad.integrations"):
        return set()  # holds object references, which Ray itself pickles
    pickler = _ByName()
    try:
        pickler.dump(value)
    except Exception as error:
        raise DataflowError(
            f"{who!r} ({where}) cannot be sent to an actor: {type(error).__name__}: {say(error)}; create connections, locks and open "
            "files inside the operator "
            "(in setup() of a Vertex), not outside of it"
        ) from error
    return pickler.modules


def _is_everywhere(name: str) -> bool:
    """Whether a module is part of Python, installed, or in a folder that Ray gives its workers."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("__main__", "__mp_main__", "rayad", "ray"):
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None:
        return True  # built in, or made at run time and then pickled by value
    script = os.path.dirname(os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", "") or "x"))
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), script, os.getcwd()}
    home = os.path.dirname(os.path.realpath(file))
    if os.path.basename(file) == "__init__.py":
        home = os.path.dirname(home)
    return any(home == os.path.realpath(folder) for folder in folders)


def _not_importable(names: list[str]) -> dict[str, str]:
    """Run in a worker: gives the modules that cannot be imported, and why."""
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {say(error)}"
    return failed
