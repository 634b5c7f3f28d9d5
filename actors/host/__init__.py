"""The event loops around a replica core and around the progress core: frames of the data plane in, frames out. They do not use Ray."""
