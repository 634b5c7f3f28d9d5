"""Processes that stay when a job is complete, for the next job of the same driver: as Spark's executors do."""
