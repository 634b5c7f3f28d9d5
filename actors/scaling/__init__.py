"""What the autoscaler's actor does around the pure core in `autoscale/`: readings in, changes out, its journal and metrics."""
