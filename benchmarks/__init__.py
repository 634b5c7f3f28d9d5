"""The benchmarks, one module each: ``python -m benchmarks [NAME ...]``. See docs/benchmarks.md.

Every module has ``TITLE``, ``FULL`` and ``QUICK`` sizes, ``NEEDS_RAY``, and ``run(sizes) -> Measurement``. Compared programs run in the
same run, interleaved, several times; times count only if the results are equal.
"""

import os
import sys

# Bytecode is kept, as pip and make keep it: where PYTHONDONTWRITEBYTECODE is set, as in many images, each process of ours would compile our
# modules anew within its time, and those of installed peers would not.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
