"""Live inputs, as all runtimes have them."""
