"""Which modules of this process are not on disk any more as they were imported."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache


def changed_modules(since_s: float) -> list[str]:
    """Modules of this process, without those that are installed, whose files have changed since a ``time.time()``."""
    installed = _installed()
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(installed):
            try:
                changed_s = os.stat(file).st_mtime
            except OSError:
                continue  # it is in an archive, or has been removed
            if changed_s > since_s:
                found.append(name)
    return found


@cache
def _installed() -> tuple[str, ...]:
    """Where Python keeps what is installed. It takes milliseconds to work out."""
    return tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


__all__ = ["changed_modules"]
