"""Graph algorithms on collections of edges, made of their operators: what follows from an edge goes when the edge goes. ``rayad.graphs``
calls them; see docs/graphs.md."""

from rayad.incremental.graphs.cohesion import k_core, triangles
from rayad.incremental.graphs.components import connected_components, strongly_connected_components
from rayad.incremental.graphs.paths import bfs, closure, reachable, shortest_paths
from rayad.incremental.graphs.ranks import pagerank

__all__ = [
    "bfs",
    "closure",
    "connected_components",
    "k_core",
    "pagerank",
    "reachable",
    "shortest_paths",
    "strongly_connected_components",
    "triangles",
]
