"""Records and batches as values: rows and columns, exact types, event times, stable hashes, calls of users' functions."""
