"""What editors and type checkers know of programs."""
