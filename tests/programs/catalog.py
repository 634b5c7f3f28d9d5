"""The one set of test programs: what they are built of, their input, and what they must give.

Every runtime runs all of ``PROGRAMS`` (``tests/programs/test_local.py``, ``tests/cluster``), and the simulation draws from them.
``TOPOLOGIES`` say nothing of how their input comes: the simulation gives them a few epochs, ``make chaos`` paces many. Random programs are
those of ``tests/fuzz``. What only one of these has a use for stands beside it.

For a runtime with other processes, which cannot import these modules: ``cloudpickle.register_pickle_by_value(module)`` for each of
``MODULES``.
"""

from tests.programs import connected, loops, model, ordering, program, projected, relations, topologies, totals, vertices, windowed
from tests.programs.program import Program
from tests.programs.topologies import TOPOLOGIES as TOPOLOGIES

MODULES = (model, program, totals, windowed, projected, relations, vertices, loops, connected, ordering, topologies)
PROGRAMS: list[Program] = [*totals.PROGRAMS, *windowed.PROGRAMS, *projected.PROGRAMS]
PROGRAMS += [*relations.PROGRAMS, *vertices.PROGRAMS, *loops.PROGRAMS, *connected.PROGRAMS, *ordering.PROGRAMS]
