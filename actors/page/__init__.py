"""The page of a job in a browser: one HTML file, and the server that sends it and the frames for it."""
