"""The processes of a job: which there have to be, where they are, which are spare, and how they leave a node."""
