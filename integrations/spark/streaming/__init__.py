"""Spark Structured Streaming as an input, exactly once: a micro-batch is an epoch. See docs/design/streams.md.

``stream.py`` runs the Spark query beside the job, ``feed.py`` decides what is done with each micro-batch, ``kept.py`` keeps its rows until
nobody can want them again. Only ``stream.py`` knows PySpark.
"""

from rayad.integrations.spark.streaming.stream import SparkStream, is_stream

__all__ = ["SparkStream", "is_stream"]
