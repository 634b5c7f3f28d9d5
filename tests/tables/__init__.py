"""Tables of running jobs."""
