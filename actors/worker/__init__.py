"""Pure: a worker, which is one loop around replicas of several vertices (Murray et al., SOSP 2013, 3.2). It has no socket, thread or clock."""
