"""Who runs which test when tests run side by side (``make test``, pytest-xdist).

Tests on Ray mostly wait: for processes to start, for a heartbeat that is to be missed. The others compute. So of three processes on two
processors two begin with those on Ray and one with the rest, and no processor is idle for long. A process that has nothing left of its
kind takes of the other kind: all end together, however long each kind takes on this machine. The queue is xdist's
(``LoadScopeScheduling``, largest scope first, so the last ones are small); here is what a scope is, and who takes which.

Tests that compute go by files: a file is imported and its fixtures are made in one process, and 15,000 tests are 950 scopes, which
xdist looks through after each test. Tests on Ray go one by one, since one of them may take half a minute.
"""

from __future__ import annotations

from enum import Enum

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ONE_SPARK = frozenset(
    f"tests/cluster/test_{name}.py"
    for name in ("examples_spark", "replay", "spark_log", "spark_reads_files", "spark_sink", "spark_source", "spark_stop", "spark_stream")
)
"""They share a Spark session."""
ALSO_SPARK = frozenset(
    (
        "tests/cluster/test_examples_flights.py",
        "tests/cluster/test_examples_scripts.py::test_the_notebook_of_spark_streams_ends_with_what_plain_python_computes",
        "tests/cluster/test_examples_scripts.py::test_the_whole_notebook_with_ray_and_spark",
    )
)
"""They start a Spark of their own, which alone keeps two processors busy: two of them at the same time run out of time."""
ONE_CLUSTER = frozenset(f"tests/cluster/test_{name}.py" for name in ("commands", "examples_flights", "job_submit"))
"""Each starts a cluster with a job server for its file: a dozen processes, so one after the other, too."""
LONG_TO_MAKE = frozenset(("tests/cluster/test_programs.py",))
"""The tests of each file share the processes of a session."""
TOGETHER = ("tests/machines/", "tests/every_type/")
"""Folders whose tests share a cluster of machines, or a table of what was tried."""


class Kind(Enum):
    """What a test mostly does."""

    ON_RAY = "waits for processes"
    ALONE = "computes"


def scope_of(test: str) -> str:
    """What is given to a process as a whole: tests on Ray that share a fixture which takes long to make, or one test of them, or a file.

    >>> scope_of("tests/cluster/test_commands.py::test_jobs"), scope_of("tests/cluster/test_attach.py::test_names")
    ('tests/cluster/servers', 'tests/cluster/test_attach.py::test_names')
    >>> scope_of("tests/progress/test_laws.py::test_law[3]")
    'tests/progress/test_laws.py'
    """
    path = test.split("::")[0]
    if path in ONE_SPARK or {path, test} & ALSO_SPARK:
        return "tests/cluster/spark"
    if path in ONE_CLUSTER:
        return "tests/cluster/servers"
    if path.startswith(TOGETHER):
        return path.rpartition("/")[0]
    return path if path in LONG_TO_MAKE or kind_of(path) is Kind.ALONE else test


def kind_of(scope: str) -> Kind:
    """By the folder."""
    return Kind.ON_RAY if scope.startswith(("tests/cluster/", "tests/machines")) else Kind.ALONE


def kind_of_process(number: int) -> Kind:
    """What the process begins with: the first one on Ray, the second one alone, and so on."""
    return Kind.ON_RAY if number % 2 == 0 else Kind.ALONE


class FromBothEnds(LoadScopeScheduling):
    """A process that is about to run out of tests gets the largest scope of its kind that waits; when there is none, of the other kind."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = kind_of_process(self.nodes.index(node))
        found = next((scope for scope in self.workqueue if kind_of(scope) is wanted), None)
        if found is not None:
            self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)
