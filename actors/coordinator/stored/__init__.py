"""What of a job its store has, and the thread that calls the store: the same on Ray and in the local runtime."""
