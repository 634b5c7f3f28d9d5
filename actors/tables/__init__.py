"""State of a running job as others read it: ``job.table(...)`` (docs/design/state.md, 10)."""
