"""The two runtimes: every Ray actor of a job (replicas, progress, coordinator, autoscaler), the data plane between them, and the
local runtime that drives the same cores in one process."""

if __name__ != "rayad.actors":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.actors, but it was imported as {__name__!r}; install the project (pip install -e .) and import rayad.actors"
    )
