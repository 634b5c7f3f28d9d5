"""What aggregates compute: accumulators, exact sums, and combining before the exchange."""
