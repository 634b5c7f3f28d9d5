"""Spark in and out through PySpark and RayDP: the session, its Java, DataFrames as sources and results, streams by micro-batch."""
