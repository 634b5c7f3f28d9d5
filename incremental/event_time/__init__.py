"""Event time in collections: joins by it, windows of it, and windows that end."""
