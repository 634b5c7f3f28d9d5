"""What streams do over event time and processing time: their edges of times, processes by key, and what ends."""
