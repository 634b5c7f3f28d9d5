"""What the coordinator's actor does with the others: start, watch, snapshots, changes of layout, recovery."""
