"""Joins by key, without windows and within them; rows and columns."""
