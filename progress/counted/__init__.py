"""Counted sets of times and their least elements: the data structures under frontiers."""
