"""A process of its own for what a large heap makes slow: looking at Python's allocator visits every pool, so it takes 0.1 ms in a young
process and ten times as much in one that has run thousands of tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module gives in a process that has imported that module and done nothing else; what it raises is raised here."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
