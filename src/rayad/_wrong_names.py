"""What to write in place of names that ``rayad`` does not have: those of its classes, and those of other libraries."""

from __future__ import annotations

from collections.abc import Iterable

from rayad.dataflow.records.wrong_names import by_instead, no_such_name_in

_NOT_HERE = by_instead(
    {
        "rd.Dataflow('name')": (
            "Flow", "DataFlow", "Pipeline", "Graph", "Topology", "StreamExecutionEnvironment", "SparkSession", "StreamingContext", "Job",
            "App", "Context",
        ),
        "flow.run(), of a flow = rd.Dataflow('name')": ("run", "execute", "run_main", "cluster_main"),
        "flow.submit(), of a flow = rd.Dataflow('name')": ("submit", "start"),
        "rd.attach('name of the job')": ("connect", "get_job", "job"),
        "nothing: flow.run() joins the Ray cluster that it is in, else starts one": ("init", "shutdown", "setup"),
        "rd.col('n'), or rd.col('outer', 'inner') for a field of a struct": ("field", "column", "F", "expr"),
        "pyarrow.compute.scalar(value)": ("lit", "literal", "scalar"),
        "pyarrow.compute.if_else(...)": ("when", "if_else", "case_when"),
        "rd.windows.tumbling(size)": ("tumbling", "Tumble", "TumblingWindow", "TumblingEventTimeWindows", "TumblingWindower"),
        "rd.windows.sliding(size, slide)": ("sliding", "Slide", "SlidingWindow", "SlidingEventTimeWindows", "SlidingWindower", "hopping"),
        "rd.windows.session(gap)": ("session", "SessionWindow", "EventTimeSessionWindows", "SessionWindower"),
        "stream.write_parquet(...), and so on": ("write_parquet", "write_csv", "write_json", "write_kafka", "write_delta", "write_iceberg"),
        "RunConfig": ("Config", "Options", "PipelineOptions", "JobConfig"),
        "key_by(...).sum('n') on a stream": ("sum", "min", "max", "mean", "count", "avg"),
        "key_by(...).quantile(...) on a stream": ("median", "quantile"),
    }
)  # fmt: skip


def no_such_name(name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that ``rayad`` does not have."""
    if name in _NOT_HERE or name.startswith("_"):
        return no_such_name_in("rayad", name, known, _NOT_HERE)
    from rayad.dataflow.streams.flow import Dataflow
    from rayad.dataflow.streams.stream import Stream

    of_flow, of_stream = (callable(getattr(cls, name, None)) for cls in (Dataflow, Stream))
    instead = f"flow.{name}(...), of a flow = rd.Dataflow('name')" if of_flow else f"stream.{name}(...)" if of_stream else None
    return no_such_name_in("rayad", name, known, _NOT_HERE if instead is None else {name: instead})


__all__ = ["no_such_name"]
