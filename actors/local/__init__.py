"""The local runtime: the same cores as on Ray in one process, one event at a time, in an order that follows from a seed."""
