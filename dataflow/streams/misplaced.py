"""Advice for methods that a stream does not have: those of the other kinds of stream, and the names of other libraries."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from rayad.dataflow.records.users_line import users_line
from rayad.progress import DataflowError

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
_OTHER_LIBRARIES = {
    "groupby": "key_by(...)",
    "group_by": "key_by(...)",
    "keyBy": "key_by(...)",
    "flatMap": "flat_map(...)",
    "with_column": "with_columns({...})",
    "withColumn": "with_columns({...})",
    "withColumnRenamed": "rename({...})",
    "project": "select(...)",
    "assign": "with_columns({...})",
    "where": "filter(...)",
    "apply": "map(...) or map_batches(...)",
    "foreach": "inspect(...)",
    "for_each": "inspect(...)",
    "print": "inspect(print)",
    "show": "collect(name), and look at the result of flow.run()",
    "to_list": "collect(name), and look at the result of flow.run()",
    "take": "collect(name), and look at the result of flow.run()",
    "concat": "union(...)",
    "merge": "union(...), or join(...) by a key",
    "nunique": "key_by(...).count_distinct()",
    "n_unique": "key_by(...).count_distinct()",
    "countDistinct": "key_by(...).count_distinct()",
    "collect_set": "key_by(...).distinct()",
    "array_agg": "key_by(...).collect_list()",
    "unique": "key_by(...).distinct()",
    "drop_duplicates": "key_by(...).distinct()",
    "value_counts": "key_by(...).count()",
    "agg": "key_by(...).aggregate({...})",
    "avg": "mean(...)",
    "average": "mean(...)",
    "reduceByKey": "key_by(...).reduce(...)",
    "repartition": "rebalance()",
    "shuffle": "rebalance()",
    "run": "flow.run(...), of the dataflow that the stream belongs to",
    "submit": "flow.submit(...), of the dataflow that the stream belongs to",
}


class NoSuchMethod(DataflowError, AttributeError):
    """A stream was asked for a method that it does not have. ``hasattr`` gives False, as for every attribute that is not there."""


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
        advice = _ELSEWHERE[kind].get(cls.__name__)
        if name == "key_by" and cls is Stream:
            return '; it has a key already: for a key of several parts write key_by(["a", "b"]) or key_by(lambda record: (a, b))'
        if advice is not None and callable(getattr(cls, name, None)):
            return "; " + advice.format(name=name)
    if name in _OTHER_LIBRARIES:
        return f"; use {_OTHER_LIBRARIES[name]}"
    if name == "late":
        return "; it is there behind windows over event time: .window(rd.windows...).count().late"
    near = difflib.get_close_matches(name, [method for method in dir(type(stream)) if not method.startswith("_")], n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {_methods(type(stream))}"


def _methods(cls: type) -> str:
    return ", ".join(method for method in dir(cls) if not method.startswith("_"))


class Advising:
    """A stream that says what to write in place of a method that it does not have."""

    def __dir__(self) -> list[str]:
        """What is meant for users: its class and the dataflow. Where it is in the graph is our affair."""
        return sorted({*dir(type(self)), *({"flow"} & vars(self).keys())})

    if not TYPE_CHECKING:  # a type checker should go on knowing which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise no_such_method(self, name)
