"""Windows over event time: assigned before the exchange, merged and fired behind it; rows and columns."""
