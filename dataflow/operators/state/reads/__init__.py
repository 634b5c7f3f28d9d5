"""What forms of keyed state were at epochs that others may still read (docs/design/state.md, 10)."""
