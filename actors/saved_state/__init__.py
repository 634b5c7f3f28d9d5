"""State of snapshots as tables: read without the job, written for a job to begin with, changed for a changed program."""
