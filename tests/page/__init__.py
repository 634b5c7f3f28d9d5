"""The page of a job in a real browser."""
