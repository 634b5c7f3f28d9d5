"""What is measured, one module a benchmark: ``python -m benchmarks [NAME ...]``. See docs/benchmarks.md.

Every module has ``TITLE``, ``FULL`` and ``QUICK`` sizes, ``NEEDS_RAY``, and ``run(sizes) -> Measurement``. Compared programs run in one
go, interleaved, several times; results are checked to be equal before any time counts.
"""
