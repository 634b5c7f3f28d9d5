"""Rayad as its peers are run: ``python -m benchmarks.ours '<JSON>'``, a process that joins the running Ray (``RAY_ADDRESS``).

Input: ``{"module": name, "arguments": {..}}``; ``benchmarks.<name>.one(**arguments)`` runs and measures. Output: one line like that of a
peer's script, ``{"seconds": s, "digest": d, "version": ..}`` and the other fields that ``one`` gave.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import ray

import rayad as rd
from benchmarks.clock import first_use


def main() -> None:
    """Join Ray, warm up, run once, print the result."""
    request = json.loads(sys.argv[1])
    module: Any = importlib.import_module(f"benchmarks.{request['module']}")
    ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    first_use()
    told: dict[str, Any] = module.one(**request["arguments"])
    print(json.dumps({**told, "version": f"rayad {rd.__version__}"}))


if __name__ == "__main__":
    main()
