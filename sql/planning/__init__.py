"""From the text of a query to plans of DataFusion. Nothing here knows of collections."""
