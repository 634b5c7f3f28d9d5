"""Advice for methods that a stream does not have: those of the other kinds of stream, and the names of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_names import NoSuchMethod, advice, by_instead

_KEYED = (
    "a keyed stream has a key and nothing else: first aggregate it (count, sum, reduce, fold, top_k, stateful_map ...), join it or window "
    "it, which gives a stream; or call {name} before key_by"
)
_WINDOWED = "a windowed stream is to be aggregated (count, sum, min, max, mean, reduce, top_k, aggregate) or joined, which gives a stream"
_UNKEYED = "it works for each key: stream.key_by(...).{name}(...); for all records together key_by(lambda record: 0)"

_ELSEWHERE = {
    "KeyedStream": {"Stream": _KEYED, "WindowedStream": "it is one of windows: .window(rd.windows...).{name}(...)"},
    "Stream": {"KeyedStream": _UNKEYED, "WindowedStream": "it is one of windows: .key_by(...).window(rd.windows...).{name}(...)"},
    "WindowedStream": {"Stream": _WINDOWED, "KeyedStream": _WINDOWED},
}
_RESULT = "collect('x'); then result = flow.run() and "
_IN_ORDER = "key_by(...).in_order(by) for the order within a key; result['x'] can be sorted"
_CHOOSE = "filter(...) with a function that chooses, such as lambda record: rd.stable_hash(record['id']) % 100 == 0"
_KEY_BY = ("groupby", "group_by", "groupBy", "groupByKey", "keyBy", "partition_by", "partitionBy", "key_on")
_SAID = {
    "key_by(...)": _KEY_BY,
    f"{_RESULT}result['x'].to_pandas()": ("to_pandas", "toPandas", "to_df", "toDF", "df", "as_pandas"),
    f"{_RESULT}result['x'].to_polars()": ("to_polars", "toPolars"),
    f"{_RESULT}result['x'].to_arrow()": ("to_arrow", "toArrow", "arrow", "to_table"),
    f"{_RESULT}result.show('x'); while it runs inspect(print)": ("show", "display", "head", "limit", "take", "tail", "describe"),
    f"{_RESULT}result['x'], a list": ("to_list", "to_pylist", "tolist", "toList", "iter_rows", "take_all", "collect_all"),
    "flow.run(...), of the dataflow that the stream belongs to": ("run", "execute", "compute", "awaitTermination"),
    "flow.submit(...), of the dataflow that the stream belongs to": ("submit", "start", "writeStream", "execute_async"),
    "flow.explain(), of the dataflow that the stream belongs to": ("explain",),
    "flat_map(...)": ("flatMap",),
    "flat_map(...), which gives a list of none or one": ("filter_map",),
    "map_batches(...)": ("map_partitions", "mapPartitions", "mapInPandas", "mapInArrow", "flat_map_batch"),
    "map(...) on the pairs": ("map_value", "mapValues", "map_values"),
    "map(...) or map_batches(...)": ("apply", "transform"),
    "f(stream), for a function f of yours": ("pipe",),
    "with_columns({...})": ("with_column", "withColumn", "withColumns", "add_column", "assign", "mutate"),
    "rename({...})": ("withColumnRenamed", "rename_columns"),
    "select(...)": ("project",),
    "select(...) with expressions such as rd.col('n') + 1": ("selectExpr",),
    "drop(...)": ("drop_columns",),
    "filter(...)": ("where",),
    "filter(...) with an expression such as rd.col('n') > 1": ("query",),
    "filter(rd.col('n').is_valid())": ("dropna", "drop_nulls", "drop_na"),
    "with_columns({'n': pyarrow.compute.coalesce(rd.col('n'), 0)})": ("fillna", "fill_null", "fill_na"),
    _CHOOSE: ("sample", "random_sample"),
    "assign_timestamps(column, max_delay=...)": ("withWatermark", "with_watermark", "assign_timestamps_and_watermarks"),
    "inspect(...)": ("foreach", "for_each", "tap"),
    "inspect(print)": ("print",),
    "collect(name), write_parquet(...) and so on, or sink(...)": ("output", "write", "save"),
    "sink(...)": ("add_sink", "sink_to", "addSink", "foreachBatch"),
    "write_parquet(...)": ("to_parquet", "sink_parquet"),
    "write_csv(...)": ("to_csv", "sink_csv"),
    "write_json(...)": ("to_json", "sink_ndjson"),
    "write_kafka(...)": ("to_kafka",),
    "write_postgres(...)": ("to_sql", "write_sql"),
    "write_delta(...)": ("to_delta",),
    "write_iceberg(...)": ("to_iceberg",),
    "union(...)": ("concat", "vstack", "unionAll"),
    "union(..., allow_missing_columns=True)": ("unionByName",),
    "union(...), or join(...) by a key": ("merge",),
    "union(...), or flow.vertex(..., inputs=[a, b])": ("connect",),
    "key_by(...).join_asof(...)": ("merge_asof",),
    "key_by(...).count_distinct()": ("nunique", "n_unique", "countDistinct"),
    "key_by(...).distinct()": ("collect_set", "unique", "drop_duplicates", "dropDuplicates"),
    "key_by(...).collect_list()": ("array_agg",),
    "key_by(...).count()": ("value_counts",),
    "key_by(...).aggregate({...})": ("agg",),
    "key_by(...).mean(...)": ("avg", "average"),
    "key_by(...).std(...)": ("stddev",),
    "key_by(...).var(...)": ("variance",),
    "key_by(...).quantile(...)": ("median", "percentile"),
    "key_by(...).reduce(...)": ("reduceByKey", "reduce_final"),
    "key_by(...).count(), with key_by(lambda record: 0) for all records together": ("size", "len"),
    "key_by(...).stateful_map(...), or key_by(...).process(...)": ("stateful", "stateful_flat_map", "map_with_state", "mapWithState"),
    "key_by(...).window(...).aggregate(...)": ("fold_window", "reduce_window"),
    "key_by(...).window(...).collect_list()": ("collect_window",),
    "key_by(...).window(rd.windows.sliding(...))": ("rolling", "group_by_dynamic"),
    "key_by(...).window(rd.windows.tumbling(...))": ("resample",),
    "window(...)": ("window_all", "windowAll"),
    _IN_ORDER: ("sort", "sort_values", "sort_by", "orderBy", "order_by"),
    "the stream twice: it is computed once": ("cache", "persist"),
    "rebalance()": ("repartition", "redistribute", "shuffle", "rescale", "coalesce"),
    "schema": ("columns", "dtypes", "printSchema", "print_schema"),
}
_OTHER_LIBRARIES = by_instead(_SAID)
OF_FLOW = by_instead(
    {
        "run(...)": ("execute", "collect", "start_and_wait", "compute", "run_main", "run_local", "awaitTermination", "cluster_main"),
        "run(...), which gives the results, or submit(...), which gives a handle at once": ("start", "launch", "deploy", "start_job"),
        "submit(...)": ("execute_async", "executeAsync", "run_async"),
        "the job that submit(...) gives: job.stop() or job.cancel()": ("stop", "cancel", "terminate"),
        "the job that submit(...) gives: job.wait()": ("wait", "join"),
        "the job that submit(...) gives: job.status()": ("status", "progress"),
        "the job that submit(...) gives: job.page()": ("page", "dashboard"),
        "from_items(...)": (
            "from_collection", "fromCollection", "from_elements", "fromElements", "from_list", "from_iterable", "from_sequence",
            "parallelize", "createDataFrame", "create_dataframe", "from_records", "from_dicts", "from_pydict", "from_pylist",
        ),
        "from_pandas(frame)": ("from_df", "from_dataframe", "from_data_frame"),
        "from_arrow(...)": ("from_table", "from_duckdb", "from_arrow_refs"),
        "from_ray_dataset(...)": ("from_ray", "from_dataset"),
        "from_kafka(...)": ("read_kafka", "kafka", "readStream", "add_kafka_source"),
        "read_postgres(...)": ("read_sql", "read_jdbc", "read_database", "from_postgres"),
        "read_json(...)": ("read_ndjson", "read_jsonl", "from_json"),
        "read_csv(...)": ("from_csv", "scan_csv"),
        "read_parquet(...)": ("from_parquet", "scan_parquet"),
        "read_text(...)": ("text_file", "textFile", "read_lines", "from_text", "read_text_file"),
        "from_folder(...)": ("watch", "read_files", "monitor"),
        "source(...)": ("add_source", "addSource", "from_source", "read", "custom_source"),
        "the stream: flow.from_items(...).map(...)": ("map", "op", "operator"),
        "the stream: flow.from_items(...).filter(...)": ("filter", "where"),
        "the stream: flow.from_items(...).key_by(...)": ("key_by", "keyBy", "groupby", "group_by", "groupBy"),
        "the stream: stream.collect('x') or stream.write_parquet(...)": ("sink", "output", "write", "capture", "show", "head", "take"),
        "stream.collect('x'), and to_pandas() of result['x']": ("to_pandas", "toPandas"),
        "the stream: a.union(b)": ("union", "concat", "merge"),
        "rd.ScalingConfig in run(...) and submit(...), or their parallelism=": ("set_parallelism", "setParallelism"),
        "RunConfig(snapshots=...) in run(...) and submit(...)": ("enable_checkpointing", "enableCheckpointing", "checkpoint"),
        "to_mermaid(), or the flow as the last line of a cell of a notebook": ("draw", "plot", "visualize", "to_dot", "graphviz"),
    }
)  # fmt: skip
"""What does it here, for names that a Dataflow does not have."""


def no_such_method(stream: Any, name: str) -> AttributeError:
    """The error for an attribute that a stream does not have: a bare one for names that Python itself looks for."""
    kind = next(cls.__name__ for cls in type(stream).__mro__ if cls.__name__ in _ELSEWHERE)
    if name.startswith("_"):
        return AttributeError(f"{type(stream).__name__!r} object has no attribute {name!r}")
    return NoSuchMethod(f"{name} at {users_line()}: a {type(stream).__name__} has no {name!r}{_advice(stream, kind, name)}")


def _advice(stream: Any, kind: str, name: str) -> str:
    from rayad.dataflow.streams.keyed_stream import KeyedStream
    from rayad.dataflow.streams.stream import Stream
    from rayad.dataflow.streams.windowed_stream import WindowedStream

    for cls in (KeyedStream, Stream, WindowedStream):
        elsewhere = _ELSEWHERE[kind].get(cls.__name__)
        if kind == "KeyedStream" and (name == "key_by" or _OTHER_LIBRARIES.get(name) == "key_by(...)"):
            return '; it has a key already: for a key of several parts write key_by(["a", "b"]) or key_by(lambda record: (a, b))'
        if elsewhere is not None and callable(getattr(cls, name, None)):
            return "; " + elsewhere.format(name=name)
    if name in _OTHER_LIBRARIES:
        instead = _OTHER_LIBRARIES[name]
        if kind != "Stream":
            is_of_stream = callable(getattr(Stream, instead.partition("(")[0], None)) and not instead.startswith("key_by(...).")
            if is_of_stream:
                instead = f"{instead}; {_KEYED if kind == 'KeyedStream' else _WINDOWED}".format(name=instead.partition("(")[0])
            instead = instead.removeprefix("key_by(...).").removeprefix("window(...).")
        return f"; use {instead}"
    if name == "late":
        return "; it is there behind windows over event time: .window(rd.windows...).count().late"
    return advice(name, dir(type(stream)), {})


class Advising:
    """A stream that says what to write in place of a method that it does not have."""

    def __dir__(self) -> list[str]:
        """What is meant for users: its class and the dataflow. Where it is in the graph is our affair."""
        return sorted({*dir(type(self)), *({"flow"} & vars(self).keys())})

    if not TYPE_CHECKING:  # a type checker should go on knowing which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise no_such_method(self, name)
