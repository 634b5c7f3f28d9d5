"""What those who read the state of a replica ask it, and what it answers."""
