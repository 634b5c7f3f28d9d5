"""Names that are not there: each error says what was meant, or what does it here."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import Job
from rayad.dataflow.records.wrong_names import NoSuchMethod
from rayad.dataflow.streams import misplaced


def parts() -> dict[str, Any]:
    flow = rd.Dataflow("names")
    stream = flow.from_items([("a", 1)])
    stream.collect("x")
    job = flow.submit(runtime="local")
    keyed = stream.key_by(lambda record: record[0])
    result = job.wait()
    windowed = keyed.per_epoch()
    return {
        "rd": rd,
        "windows": rd.windows,
        "flow": flow,
        "stream": stream,
        "keyed": keyed,
        "windowed": windowed,
        "job": job,
        "result": result,
    }


PARTS = parts()


@pytest.mark.parametrize(
    ("of", "name", "said"),
    [
        ("rd", "Dataflw", "; did you mean 'Dataflow'?"),
        ("rd", "Flow", "; use rd.Dataflow('name')"),
        ("rd", "read_csv", "; use flow.read_csv(...), of a flow = rd.Dataflow('name')"),
        ("rd", "key_by", "; use stream.key_by(...)"),
        ("rd", "field", "; use rd.col('n'), or rd.col('outer', 'inner') for a field of a struct"),
        ("windows", "tumblin", "; did you mean 'tumbling'?"),
        ("windows", "SlidingEventTimeWindows", "; use sliding(size, slide)"),
        ("flow", "from_itms", "; did you mean 'from_items'?"),
        ("flow", "nmae", "; did you mean 'name'?"),
        ("flow", "execute", "; use run(...)"),
        ("flow", "start", "; use run(...), which gives the results, or submit(...), which gives a handle at once"),
        ("flow", "stop", "; use the job that submit(...) gives: job.stop() or job.cancel()"),
        ("flow", "createDataFrame", "; use from_items(...)"),
        ("flow", "groupby", "; use the stream: flow.from_items(...).key_by(...)"),
        ("stream", "to_arrow", "; use collect('x'); then result = flow.run() and result['x'].to_arrow()"),
        ("stream", "toPandas", "; use collect('x'); then result = flow.run() and result['x'].to_pandas()"),
        ("stream", "groupby", "; use key_by(...)"),
        ("stream", "group_by", "; use key_by(...)"),
        ("stream", "withColumn", "; use with_columns({...})"),
        ("stream", "where", "; use filter(...)"),
        ("stream", "show", "; use collect('x'); then result = flow.run() and result.show('x'); while it runs inspect(print)"),
        ("stream", "execute", "; use flow.run(...), of the dataflow that the stream belongs to"),
        ("stream", "output", "; use collect(name), write_parquet(...) and so on, or sink(...)"),
        ("stream", "head", "; it works for each key: stream.key_by(...).head(...); for all records together key_by(lambda record: 0)"),
        ("stream", "fliter", "; did you mean 'filter'?"),
        ("keyed", "agg", "; use aggregate({...})"),
        ("keyed", "avg", "; use mean(...)"),
        ("windowed", "avg", "; use mean(...)"),
        ("job", "savepont", "; did you mean 'savepoint'?"),
        ("job", "awaitTermination", "; use wait()"),
        ("job", "stats", "; use status()"),
        ("result", "to_pandas", "; use to_pandas() of one of them: result['x'].to_pandas()"),
        ("result", "shwo", "; did you mean 'show'?"),
        ("result", "x", "; use result['x']"),
    ],
)
def test_the_error_has_the_line_and_the_right_name(of: str, name: str, said: str) -> None:
    with pytest.raises(NoSuchMethod) as caught:
        getattr(PARTS[of], name)
    assert str(caught.value).endswith(said)
    assert f"{name} at test_wrong_names.py:" in str(caught.value)
    assert not hasattr(PARTS[of], name)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_share_of_the_records_is_no_name() -> None:
    with pytest.raises(AttributeError, match=r"use filter\(\.\.\.\) with a function that chooses"):
        PARTS["stream"].sample(0.1)


@pytest.mark.parametrize("of", PARTS)
def test_names_for_python_itself_have_a_bare_error(of: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute '__nothing__'") as caught:
        getattr(PARTS[of], "__nothing__")  # noqa: B009
    assert not isinstance(caught.value, rd.DataflowError)


@pytest.mark.parametrize("of", PARTS)
def test_an_unlike_name_is_answered_with_those_that_there_are(of: str) -> None:
    with pytest.raises(AttributeError, match="; it has ") as caught:
        getattr(PARTS[of], "qqqqq")  # noqa: B009
    listed = str(caught.value).partition("; it has ")[2].split(", ")
    assert listed
    assert set(listed) <= {*dir(PARTS[of]), *vars(PARTS[of])}
    assert not any(name.startswith("_") for name in listed)


def test_no_advice_is_about_a_name_that_is_there() -> None:
    """Such a line of a table would never be read."""
    assert not [name for name in misplaced.OF_FLOW if hasattr(rd.Dataflow, name)]
    assert not [name for name in Job._not_here if hasattr(Job, name)]
    assert all(misplaced.OF_FLOW.values())


def test_copies_and_pickles_of_a_dataflow_still_work() -> None:
    flow = rd.Dataflow("copied")
    flow.from_items([1]).collect("x")
    assert pickle.loads(pickle.dumps(flow)).name == "copied"


def test_columns_in_expressions() -> None:
    flow = rd.Dataflow("columns")
    stream = flow.from_items([{"n": 1, "a": {"b": 5}}, {"n": 3, "a": {"b": 7}}])
    stream.filter(rd.col("n") > 1).with_columns({"y": rd.col("a", "b") + 1}).collect("rows")
    stream.as_columns(name="c").filter((rd.col("n") == 1) | rd.col("n").is_null()).select("n").collect("columns")
    result = flow.run(runtime="local")
    assert result["rows"] == [(rd.Timestamp(0), {"n": 3, "a": {"b": 7}, "y": 8})]
    assert result["columns"] == [(rd.Timestamp(0), {"n": 1})]
    with pytest.raises(rd.DataflowError, match=r"rd\.col: the name of a column is 3"):
        rd.col(3)  # type: ignore[arg-type]


def test_the_columns_of_kafka_are_known() -> None:
    pytest.importorskip("confluent_kafka")
    stream = rd.Dataflow("kafka").from_kafka("localhost:1", "t", headers=True)
    assert stream.schema is not None
    assert stream.schema.names == ["key", "value", "partition", "offset", "timestamp", "headers"]
    with pytest.raises(rd.DataflowError, match=r"there is no column 'valu' .*did you mean 'value'"):
        stream.key_by("valu")
