"""One replica of a stage as a pure state machine: no clock, no thread, no socket. Both runtimes drive it."""
