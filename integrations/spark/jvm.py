"""The Java side of PySpark's objects.

PySpark 3.5 has no public access to them, but RayDP's conversion and Arrow tables need it. All private names of PySpark that Rayad uses are
here, once each, so that only this file depends on the version of PySpark. The functions give py4j objects, whose methods are Spark's public
Java API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa


def java_packages(spark: Any) -> Any:
    """Java classes by their full name: ``java_packages(spark).java.lang.System``."""
    return spark._jvm


def java_session(spark: Any) -> Any:
    """The ``org.apache.spark.sql.SparkSession`` of a session."""
    return spark._jsparkSession


def persistent_rdds(spark: Any) -> dict[int, Any]:
    """Spark's persistent RDDs, by number."""
    found = java_session(spark).sparkContext().getPersistentRDDs()
    return dict(java_packages(spark).scala.collection.JavaConverters.mapAsJavaMapConverter(found).asJava())


def java_frame(frame: Any) -> Any:
    """The ``Dataset`` of a DataFrame."""
    return frame._jdf


def session_of_this_process() -> Any:
    """The last session that any thread of this process made; None if it was stopped, or there is none."""
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def arrow_batches_to_java(spark: Any, batches: Sequence[pa.RecordBatch]) -> Any:
    """The batches as Java's iterator over serialized batches: through a file, or a socket where Spark encrypts what it writes."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    java = java_packages(spark)
    read: Callable[[str], Any] = java.PythonSQLUtils.readArrowStreamFromFile
    return spark.sparkContext._serialize_to_jvm(batches, ArrowStreamSerializer(), read, java.ArrowIteratorServer)


__all__ = ["arrow_batches_to_java", "java_frame", "java_packages", "java_session", "persistent_rdds", "session_of_this_process"]
