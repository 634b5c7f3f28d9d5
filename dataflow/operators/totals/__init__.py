"""Running totals by key, over all epochs or of each epoch; rows and columns."""
