"""The data plane: frames between processes over authenticated FIFO connections; credits, and queues that spill to disk."""
