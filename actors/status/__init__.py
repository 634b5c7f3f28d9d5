"""Pure: what is known of a running job at one moment, as plain data, and how it is shown: as text, as HTML."""
