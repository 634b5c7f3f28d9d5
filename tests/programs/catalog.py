"""The set of test programs; every runtime runs all of them (``tests/programs/test_local.py``, ``tests/cluster``).

For a runtime with other processes, which cannot import these modules: ``cloudpickle.register_pickle_by_value(module)`` for each of
``MODULES``.
"""

from tests.programs import connected, loops, model, ordering, program, relations, totals, vertices, windowed
from tests.programs.program import Program

MODULES = (model, program, totals, windowed, relations, vertices, loops, connected, ordering)
PROGRAMS: list[Program] = [*totals.PROGRAMS, *windowed.PROGRAMS]
PROGRAMS += [*relations.PROGRAMS, *vertices.PROGRAMS, *loops.PROGRAMS, *connected.PROGRAMS, *ordering.PROGRAMS]
