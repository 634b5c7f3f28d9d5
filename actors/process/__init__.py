"""What every process of a job has: a mailbox into its event loop, its allocator, and a thread that tells what it is doing."""
