"""Records in the order of their source again, behind operators that run side by side."""
