"""Keyed state: by key-group, with what changed since the last snapshot, as snapshots store it."""
