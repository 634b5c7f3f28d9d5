"""What runs a vertex in its replica: its callbacks, what it may do in them, and what waits for its time."""
