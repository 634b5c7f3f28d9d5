"""Pure: a worker, one loop around replicas of several vertices (Murray et al., SOSP 2013, 3.2), without socket, thread or clock."""
