"""The side of a job that is in the user's process: the handle, live inputs, the line to the coordinator, SIGTERM."""
