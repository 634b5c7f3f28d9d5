"""A job's snapshots on a file system: parts, manifests, what sinks publish, what live inputs have to send again."""
