"""Graph algorithms as dataflows in loops, kept up to date from epoch to epoch. See docs/graphs.md.

>>> from rayad.dataflow import Dataflow
>>> flow = Dataflow("roads")
>>> edges = flow.from_epochs([[("a", "b"), ("c", "d")], [("b", "c")]])
>>> connected_components(edges).collect("networks").name
'components.changed'
"""

if __name__ != "rayad.graphs":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.graphs, but it was imported as {__name__!r}; install the project (pip install -e .) and import rayad.graphs"
    )

from rayad.graphs.bfs import bfs
from rayad.graphs.changing import closure, k_core, reachable, shortest_paths, triangles
from rayad.graphs.components import connected_components
from rayad.graphs.pagerank import pagerank
from rayad.graphs.pregel import pregel
from rayad.graphs.scc import strongly_connected_components
from rayad.graphs.vertex_program import ProgramVertex, VertexProgram

__all__ = [
    "ProgramVertex",
    "VertexProgram",
    "bfs",
    "closure",
    "connected_components",
    "k_core",
    "pagerank",
    "pregel",
    "reachable",
    "shortest_paths",
    "strongly_connected_components",
    "triangles",
]


def __dir__() -> list[str]:
    return __all__
