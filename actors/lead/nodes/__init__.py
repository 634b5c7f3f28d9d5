"""The nodes of a cluster as a job knows them: which a process goes to, and which it has to leave. Pure."""
