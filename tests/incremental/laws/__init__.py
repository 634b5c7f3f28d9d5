"""Laws of collections: random programs with loops in loops, over random histories, give what is computed from scratch."""
