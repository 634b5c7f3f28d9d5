"""Joins by key: what each kind gives, one join, and those that share a side."""
