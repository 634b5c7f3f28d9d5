"""State in rows: Python values by key."""
