"""Every Arrow type through every operator, source and sink, as rows and as columns, beside plain Python.

A combination must be *exact* (equal to plain Python in values and types) or *refused* (a ``DataflowError``). ``docs/types.md`` has the
table of all combinations; ``python -m tests.every_type`` writes it, and a test fails if it is out of date.
"""
