"""What lies behind a vertex's outputs in one replica: the fused steps, the routes to other replicas, the sink writers.

Compiled once from the plan into a function for each step, or for several fused into one, because every batch passes here.
"""
