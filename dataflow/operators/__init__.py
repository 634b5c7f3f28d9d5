"""Stateful operators of the high-level API, each a :class:`rayad.dataflow.vertex.Vertex`."""
