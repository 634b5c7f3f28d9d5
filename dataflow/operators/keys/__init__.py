"""Keys of records: selected from rows and columns, grouped, packed and matched."""
