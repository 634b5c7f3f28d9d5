"""A user's program that changes between two runs: it carries on exactly, or is refused with the call that would do it, which then does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rayad as rd
from tests.saved_state.jobs import begun, counting_down, feed, saved_after

BEFORE = [["a", "bb", "a"], ["a", "ccc"]]
AFTER = [["a", "dd"], ["bb"]]
Program = Callable[[rd.KeyedStream], rd.Stream]


def seen(epochs: list[list[str]], start: dict[str, int] | None = None) -> dict[str, int]:
    """How often each word has come, for the words of these epochs."""
    counts, out = dict(start or {}), {}
    for word in (word for epoch in epochs for word in epoch):
        out[word] = counts[word] = counts.get(word, 0) + 1
    return out


CARRIED, ANEW = seen(AFTER, seen(BEFORE)), seen(AFTER)


def first(words: rd.KeyedStream) -> rd.Stream:
    """The program of the snapshot: counts, in ``out``; and lengths of words by count, in ``lengths``."""
    words.stream.key_by(len).count(name="lengths").collect("lengths")
    return words.count(name="counts")


def with_counts(more: Callable[[rd.KeyedStream], Any], name: str = "counts") -> Program:
    """Counts, and what is made of the words besides."""

    def program(words: rd.KeyedStream) -> rd.Stream:
        more(words)
        return words.count(name=name)

    return program


def nothing(words: rd.KeyedStream) -> None:
    return None


def lengths(words: rd.KeyedStream) -> rd.Stream:
    return words.stream.key_by(len).count(name="lengths").collect("lengths")


def also(make: Callable[[rd.KeyedStream], Any]) -> Program:
    def more(words: rd.KeyedStream) -> None:
        lengths(words)
        make(words)

    return with_counts(more)


CHANGES: dict[str, tuple[Program, str | None, dict[str, dict[Any, int]]]] = {
    "nothing": (first, None, {"out": CARRIED}),
    "a step without state": (
        with_counts(lambda words: words.stream.filter(bool).key_by(len).count(name="lengths").collect("lengths")),
        None,
        {"out": CARRIED, "lengths": {1: 4, 2: 3}},
    ),
    "a new operator": (
        also(lambda words: words.distinct(name="distinct").collect("distinct")),
        "resume='latest', new=['distinct']",
        {"out": CARRIED, "distinct": {"a": "a", "bb": "bb", "dd": "dd"}},  # type: ignore[dict-item]
    ),
    "a new sink": (also(lambda words: words.stream.collect("words")), "resume='latest', new=['words']", {"out": CARRIED}),
    "a removed operator": (with_counts(nothing), "resume='latest', gone=['lengths']", {"out": CARRIED}),
    "a removed sink": (
        with_counts(lambda words: words.stream.key_by(len).count(name="lengths").probe("kept")),
        "resume='latest', gone=['lengths']",
        {"out": CARRIED},
    ),
    "a removed and a new operator": (
        with_counts(lambda words: words.distinct(name="distinct").collect("distinct")),
        "resume='latest', new=['distinct'], gone=['lengths']",
        {"out": CARRIED, "distinct": {"a": "a", "bb": "bb", "dd": "dd"}},  # type: ignore[dict-item]
    ),
    "a renamed operator": (with_counts(lengths, "by word"), "resume=2, map_state={'counts': 'by word'}", {"out": CARRIED}),
    "a renamed operator with its sink, and a new one": (
        with_counts(
            lambda words: [
                words.stream.key_by(len).count(name="by length").collect("by length"),
                words.distinct(name="distinct").collect("distinct"),
            ]
        ),
        "resume=2, map_state={'lengths': 'by length', 'distinct': {}, 'sink:lengths': 'by length', 'sink:distinct': {}}",
        {"out": CARRIED, "by length": {1: 4, 2: 3}, "distinct": {"a": "a", "bb": "bb", "dd": "dd"}},  # type: ignore[dict-item]
    ),
    "a renamed sink": (
        with_counts(lambda words: words.stream.key_by(len).count(name="lengths").collect("by length")),
        "resume=2, map_state={'sink:lengths': 'by length'}",
        {"out": CARRIED, "by length": {1: 4, 2: 3}},
    ),
    "a new loop": (
        also(lambda words: words.stream.map(lambda word: (word, 3)).iterate(counting_down, name="loop").collect("looped")),
        "resume='latest', new=['union', 'looped']",
        {"out": CARRIED, "looped": dict.fromkeys(ANEW, 0)},
    ),
    "a new exchange": (
        with_counts(lambda words: words.stream.rebalance().key_by(len).count(name="lengths").collect("lengths")),
        "resume='latest', new=['rebalance']",
        {"out": CARRIED, "lengths": {1: 4, 2: 3}},
    ),
    "dead letters": (
        also(lambda words: words.stream.map(len, name="len", on_error="skip", max_errors=0).errors.collect("bad")),
        "resume='latest', new=['len.max_errors', 'bad']",
        {"out": CARRIED, "bad": {}},
    ),
    "another input of an operator": (
        with_counts(
            lambda words: words.count(name="by word").as_records().key_by(lambda p: len(p[0])).count(name="lengths").collect("lengths")
        ),
        "resume='latest', new=['by word']",
        {"out": CARRIED},
    ),
}


def told_by(job: Callable[[], Any]) -> str:
    with pytest.raises(rd.SnapshotError) as caught:
        job()
    found = re.search(r"To keep the rest of its state: (.*?)\. Run the dataflow", str(caught.value))
    assert found is not None, caught.value
    return found.group(1)


def latest(job: Any) -> dict[str, dict[Any, Any]]:
    """What the second run shows: by sink, the last value of each key; of what is no pair, the record itself."""
    job.input("words").close()
    result = job.wait()
    pairs = {sink: [record if isinstance(record, tuple) else (record, record) for _, record in result[sink]] for sink in result}
    return {sink: dict(found) for sink, found in pairs.items()}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_changed_program_carries_on_or_is_refused_with_the_call_that_does_it(tmp_path: Path, change: str, replicas: int) -> None:
    program, call, expected = CHANGES[change]
    saved_after(begun(tmp_path, first, parallelism=2), BEFORE)
    options: dict[str, Any] = {"resume": "latest"}
    if call is not None:
        assert told_by(lambda: begun(tmp_path, program, parallelism=replicas, **options)) == call
        options = eval(f"dict({call})")
    job = begun(tmp_path, program, parallelism=replicas, **options)
    feed(job, AFTER)
    shown = latest(job)
    for sink, values in expected.items():
        assert {key: value for key, value in shown[sink].items() if key in values} == values, sink


def summed(words: rd.KeyedStream) -> rd.Stream:
    lengths(words)
    return words.stream.key_by(str).sum(len, name="counts")


def test_another_aggregate_begins_anew_or_with_what_a_function_makes_of_the_old_one(tmp_path: Path) -> None:
    saved_after(begun(tmp_path, first, parallelism=2), BEFORE)
    call = told_by(lambda: begun(tmp_path, summed, resume="latest"))
    assert call == (
        "resume=2, map_state={'counts': function of its table} (a function gets the table of what is kept there, as rd.read_state gives "
        "it; {} begins with nothing)"
    )
    job = begun(tmp_path, summed, parallelism=3, resume=2, map_state={"counts": {}})
    feed(job, AFTER)
    assert {key: latest_of for key, latest_of in latest(job)["out"].items() if key in ANEW} == {"a": 1, "dd": 2, "bb": 2}
    times_length = {"counts": lambda table: table.rename_columns(["key", "sum"])}
    job = begun(tmp_path, summed, parallelism=3, resume=2, map_state=times_length)
    feed(job, AFTER)
    assert {key: latest_of for key, latest_of in latest(job)["out"].items() if key in ANEW} == {"a": 4, "dd": 2, "bb": 3}


def test_an_operator_with_another_input_is_kept_or_begun_anew(tmp_path: Path) -> None:
    def program(words: rd.KeyedStream) -> rd.Stream:
        counts = words.count(name="counts")
        counts.as_records().key_by(lambda pair: len(pair[0])).count(name="lengths").collect("lengths")
        return counts

    saved_after(begun(tmp_path, first), BEFORE)
    call = told_by(lambda: begun(tmp_path, program, resume="latest"))
    assert call == "resume=2, map_state={'lengths': 'lengths'}; or, to begin lengths with nothing, map_state={'lengths': {}}"
    for given, expected in (({"lengths": "lengths"}, {1: 4, 2: 3}), ({"lengths": {}}, {1: 1, 2: 2})):
        job = begun(tmp_path, program, resume=2, map_state=given)
        feed(job, AFTER)
        shown = latest(job)
        assert {key: count for key, count in shown["out"].items() if key in ANEW} == CARRIED
        assert {key: count for key, count in shown["lengths"].items() if key in (1, 2)} == expected


def test_a_name_that_may_be_one_of_several_is_not_guessed(tmp_path: Path) -> None:
    def program(words: rd.KeyedStream) -> rd.Stream:
        lengths(words)
        words.count(name="these")
        return words.count(name="those")

    saved_after(begun(tmp_path, first), BEFORE)
    with pytest.raises(rd.SnapshotError, match="unless map_state= says which of these it is now: 'these' or 'those'"):
        begun(tmp_path, program, resume="latest")
    job = begun(tmp_path, program, resume=2, map_state={"counts": "those"}, new=["these"])
    feed(job, AFTER)
    assert {key: count for key, count in latest(job)["out"].items() if key in ANEW} == CARRIED


def test_new_and_gone_may_stay_for_later_starts(tmp_path: Path) -> None:
    """A job whose command has ``resume="latest", new=..., gone=...`` is started again and again: the change is made once."""

    def program(words: rd.KeyedStream) -> rd.Stream:
        words.count(name="more").collect("more")
        return words.count(name="counts")

    options: dict[str, Any] = {"resume": "latest", "new": ["more"], "gone": ["lengths"]}
    job = begun(tmp_path / "afresh", program, **options)  # there is nothing to resume from
    feed(job, AFTER)
    assert latest(job)["more"] == ANEW
    saved_after(begun(tmp_path, first), BEFORE)
    expected = {"out": dict(seen(BEFORE)), "more": dict[str, int]()}
    for _ in range(3):
        job = begun(tmp_path, program, **options)
        saved_after(job, AFTER)
        expected = {sink: {**counts, **seen(AFTER, counts)} for sink, counts in expected.items()}
    job = begun(tmp_path, program, **options)
    feed(job, AFTER)
    expected = {sink: seen(AFTER, counts) for sink, counts in expected.items()}
    shown = latest(job)
    assert {sink: {key: shown[sink][key] for key in counts} for sink, counts in expected.items()} == expected


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "delta"])
@pytest.mark.parametrize("change", ["a new sink", "another path", "another kind"])
def test_a_job_that_died_before_its_first_snapshot_starts_once_more_as_another_program(tmp_path: Path, kind: str, change: str) -> None:
    """Its sinks were taken for those of the first program: "the output of job .. is gone: what earlier snapshots committed .."."""

    def writes(stream: rd.Stream, kind: str, path: str, name: str) -> None:
        getattr(stream, f"write_{kind}")(str(tmp_path / path), name=name)

    def before(words: rd.KeyedStream) -> rd.Stream:
        counts = words.count(name="counts")
        writes(counts.as_columns("word", "n"), kind, "old", "file")
        return counts

    other = "parquet" if kind == "csv" else "csv"
    now = {
        "a new sink": [(kind, "old", "file"), (kind, "new", "more")],
        "another path": [(kind, "new", "file")],
        "another kind": [(other, "old", "file")],
    }[change]

    def after(words: rd.KeyedStream) -> rd.Stream:
        counts = words.count(name="counts")
        for where in now:
            writes(counts.as_columns("word", "n"), *where)
        return counts

    def start() -> Any:
        return begun(tmp_path, after, resume="latest", new=["more"] if change == "a new sink" else [])

    begun(tmp_path, before).cancel()
    start().cancel()
    job = start()
    feed(job, BEFORE)
    job.input("words").close()
    job.wait()
    for written, path, _ in now:
        found = pl.read_delta(str(tmp_path / path)) if written == "delta" else rd.read_committed(tmp_path / path).to_table()
        assert len(found) == 4, path


def test_a_change_that_is_not_named_is_told_besides_those_that_are(tmp_path: Path) -> None:
    def program(words: rd.KeyedStream) -> rd.Stream:
        words.count(name="more").collect("more")
        return words.count(name="counts")

    saved_after(begun(tmp_path, first), BEFORE)
    with pytest.raises(rd.SnapshotError) as caught:
        begun(tmp_path, program, resume="latest", new=["more"])
    told = str(caught.value)
    assert told.startswith("new=['more'] does not make snapshot 2 in ")
    assert told.endswith("Say what becomes of these, too: gone=['lengths']")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"new": ["count"], "resume": "latest"}, r"new=\['count'\]: the dataflow has no vertex or sink 'count': did you mean 'counts'\?"),
        ({"gone": "lengths", "resume": "latest"}, r"submit\(gone='lengths'\): it takes a list of names"),
        ({"new": [3], "resume": "latest"}, r"submit\(new=\[3\]\): it takes a list of names"),
        ({"new": ["counts"]}, r"new=\['counts'\], gone=\[\] were given with resume=None: say which snapshot is resumed from"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    saved_after(begun(tmp_path, first), BEFORE)
    with pytest.raises(rd.DataflowError, match=told):
        begun(tmp_path, first, **options)
