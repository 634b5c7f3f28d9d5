"""What collections are given to: streams of changes, callbacks, tables of sinks that update, and tables at the end."""
