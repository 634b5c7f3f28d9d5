"""Collections: records with multiplicities that change, and what is made of them, kept up to date. See docs/collections.md."""

if __name__ != "rayad.incremental":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.incremental, but it was imported as {__name__!r}; install the project (pip install -e .) and import "
        "rayad.incremental"
    )

from rayad.incremental.collection import Collection, KeyedCollection
from rayad.incremental.fixed_points import fixed_point

__all__ = ["Collection", "KeyedCollection", "fixed_point"]
