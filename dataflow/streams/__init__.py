"""The fluent API: what a user calls on dataflows and streams. Each call adds nodes to the logical graph."""
