"""What leads a job, as pure steps: which layouts a change goes through, who has been silent for too long."""
