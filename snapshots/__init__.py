"""Snapshots: barriers and their alignment, what is pending, the store, the interval model (docs/design/snapshots.md)."""

if __name__ != "rayad.snapshots":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.snapshots, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.snapshots"
    )
