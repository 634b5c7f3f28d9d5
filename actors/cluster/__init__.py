"""Ray itself: joining a cluster, calls with a bound, what every actor class has in common."""
