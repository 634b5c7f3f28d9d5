"""What a snapshot has of a replica, as files: how they are written, and read back."""
