"""State by slot: a number that a key, or a row, keeps as long as it is here."""
