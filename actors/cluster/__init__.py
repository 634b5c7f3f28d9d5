"""Ray itself: joining a cluster, calls with a timeout, what every actor class has in common."""
