"""Collections in columns: batches of changes, what is kept of them in sorted runs, and moments computed for all keys at once."""
