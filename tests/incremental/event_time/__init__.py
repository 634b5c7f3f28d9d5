"""Event time in collections: what is late, and what is forgotten."""
