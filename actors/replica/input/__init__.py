"""Where a replica without inputs gets its records: the parts of a source, or a live input."""
