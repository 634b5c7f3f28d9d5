"""Sorted runs: rows in columns that are written once, sorted by key-group, and merged geometrically."""
