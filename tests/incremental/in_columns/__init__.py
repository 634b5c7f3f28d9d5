"""Operators of collections in columns."""
