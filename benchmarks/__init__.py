"""The benchmarks, one module each: ``python -m benchmarks [NAME ...]``. See docs/benchmarks.md.

Every module has ``TITLE``, ``FULL`` and ``QUICK`` sizes, ``NEEDS_RAY``, and ``run(sizes) -> Measurement``. Compared programs run in the
same run, interleaved, several times; times count only if the results are equal.
"""
