"""Every Arrow type through every operator, source and sink, as rows and as columns, beside plain Python.

A combination is *exact* (equal to plain Python, type by type) or *refused* (a ``DataflowError``); nothing else. ``docs/types.md`` is the
table of all, written by ``python -m tests.every_type``, and a test holds that it is true.
"""
