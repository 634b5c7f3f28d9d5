"""Collections: records with multiplicities that change, and what is made of them, kept up to date. See docs/collections.md."""

from rayad.incremental.collection import Collection, KeyedCollection, fixed_point

__all__ = ["Collection", "KeyedCollection", "fixed_point"]
