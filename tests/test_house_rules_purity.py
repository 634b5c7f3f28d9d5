"""House rule: a pure core touches no clock, network, thread, environment or chance. The messages say what to do instead."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.checkout import ROOT, Breach, imported_modules, python_files, refuse

PURE_FOLDERS = ("progress", "dataflow", "snapshots", "autoscale", "actors/replica", "actors/lead")

# What a core calls and a simulation replaces whole: the world itself, one step of it.
PORTS = {"snapshots/create.py": "a file gets a name that nobody else has before it gets its own; the name decides nothing"}

ENTRY_TAKES_TIME = "take `now_s` as an argument; the shell in actors/ reads the clock"
ENTRY_TAKES_SETTING = "take the value as an argument or a field of a config class; actors/ and integrations/ read the environment"
EFFECT = "return an effect that the shell in actors/ executes"

# What a pure core must not import, with what it does instead.
IMPURE_MODULES = {
    "asyncio": EFFECT,
    "concurrent": EFFECT,
    "getpass": ENTRY_TAKES_SETTING,
    "multiprocessing": EFFECT,
    "psutil": "take the measurements as an argument; the replicas report them",
    "pyspark": "put it into a function of integrations/",
    "queue": "use collections.deque: a core has one caller at a time",
    "ray": EFFECT,
    "raydp": "put it into a function of integrations/",
    "requests": EFFECT,
    "sched": ENTRY_TAKES_TIME,
    "secrets": "take the token or key as an argument",
    "select": EFFECT,
    "selectors": EFFECT,
    "signal": EFFECT,
    "socket": EFFECT,
    "subprocess": EFFECT,
    "threading": "a core has one caller at a time; the lock belongs into the shell in actors/",
    "time": ENTRY_TAKES_TIME,
    "zmq": EFFECT,
}

SEEDED = "make a generator from a seed that the caller gives: random.Random(seed) or numpy.random.default_rng(seed)"

# The same for single names, written out as an importer would have to.
IMPURE_NAMES = {
    "datetime.date.today": ENTRY_TAKES_TIME,
    "datetime.datetime.now": ENTRY_TAKES_TIME,
    "datetime.datetime.today": ENTRY_TAKES_TIME,
    "datetime.datetime.utcnow": ENTRY_TAKES_TIME,
    "os.environ": ENTRY_TAKES_SETTING,
    "os.getenv": ENTRY_TAKES_SETTING,
    "os.getpid": "take an identity as an argument",
    "os.urandom": SEEDED,
    "uuid.uuid1": "take the identifier as an argument, or count",
    "uuid.uuid4": "take the identifier as an argument, or count",
}

# Random generators: allowed when they get a seed.
SEEDABLE = {"random.Random", "numpy.random.default_rng", "numpy.random.Generator", "numpy.random.PCG64", "numpy.random.SeedSequence"}


def full_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: ``import numpy as np`` gives np -> numpy, ``from os import environ`` environ -> os.environ."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def full_name(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted name that an expression stands for, or None where it is no chain of names from an import."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, names)
        return f"{owner}.{node.attr}" if owner else None
    return None


def impurities(path: Path, source: str) -> list[Breach]:
    """Imports and names by which a core would touch the world, with what to do instead."""
    tree = ast.parse(source)
    names = full_names(tree)
    imports = [
        Breach(path, node.lineno, f"a pure core imports {module}", instead)
        for node in ast.walk(tree)
        for module in imported_modules(node)
        if (instead := IMPURE_MODULES.get(module.partition(".")[0]))
    ]
    uses = [
        Breach(path, node.lineno, f"a pure core uses {name}", IMPURE_NAMES[name])
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and (name := full_name(node, names)) in IMPURE_NAMES
    ]
    return imports + uses + unseeded_draws(path, tree, names)


def unseeded_draws(path: Path, tree: ast.Module, names: dict[str, str]) -> list[Breach]:
    """Uses of the module-wide generators, and generators made without a seed."""
    without_seed = {id(call.func) for call in ast.walk(tree) if isinstance(call, ast.Call) and not call.args and not call.keywords}
    return [
        Breach(path, node.lineno, f"a pure core draws from {name} without a seed", SEEDED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and (name := full_name(node, names) or "").startswith(("random.", "numpy.random."))
        and (name not in SEEDABLE or id(node) in without_seed)
    ]


def test_pure_folders_touch_no_clock_network_thread_environment_or_chance() -> None:
    cores = [path for path in python_files(*PURE_FOLDERS) if path.relative_to(ROOT).as_posix() not in PORTS]
    refuse([breach for path in cores for breach in impurities(path, path.read_text(encoding="utf-8"))])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time", "a pure core imports time"),
        ("from time import monotonic", "a pure core imports time"),
        ("def f():\n    import ray.util", "a pure core imports ray.util"),
        ("from concurrent.futures import Future", "a pure core imports concurrent.futures"),
        ("import os\nos.environ.get('A')", "a pure core uses os.environ"),
        ("from os import environ as e\ne['A']", "a pure core uses os.environ"),
        ("import datetime as dt\ndt.datetime.now()", "a pure core uses datetime.datetime.now"),
        ("from datetime import datetime\nf = datetime.now", "a pure core uses datetime.datetime.now"),
        ("import random\nrandom.choice([1])", "a pure core draws from random.choice without a seed"),
        ("import random\nrandom.Random()", "a pure core draws from random.Random without a seed"),
        ("from random import shuffle\nshuffle([1])", "a pure core draws from random.shuffle without a seed"),
        ("import numpy as np\nnp.random.default_rng()", "a pure core draws from numpy.random.default_rng without a seed"),
        ("import numpy as np\nnp.random.rand(3)", "a pure core draws from numpy.random.rand without a seed"),
    ],
)
def test_the_purity_rule_catches(source: str, expected: str) -> None:
    assert [breach.what for breach in impurities(ROOT / "planted.py", source)] == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.path.join('a', 'b')",
        "import random\nrandom.Random(7).random()",
        "import random\nassert isinstance(1, random.Random)",
        "import random\ndef f(generator: random.Random) -> random.Random: return generator",
        "import numpy as np\nnp.random.default_rng(seed=7)",
        "from datetime import datetime, timedelta\ndatetime(2020, 1, 1) + timedelta(1)",
        "from rayad.progress import Timestamp\ntime = Timestamp(0)",
        "from typing import TYPE_CHECKING",
    ],
)
def test_the_purity_rule_lets_pass(source: str) -> None:
    assert impurities(ROOT / "planted.py", source) == []
