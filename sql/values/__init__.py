"""Values of SQL: expressions, and the functions that compute them for columns at a time. Nothing here knows of collections."""
