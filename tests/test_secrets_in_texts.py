"""What users see of URIs, settings and errors of libraries has no secret in it; hosts and all else are still there."""

from __future__ import annotations

import pickle
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

import rayad as rd
from rayad.actors.lead.failure import failure_of
from rayad.actors.status.journal import Journal
from rayad.actors.status.terminal import echo
from rayad.cli import main
from rayad.dataflow.without_effect import not_acted_on
from rayad.integrations.delta import DeltaSink
from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.iceberg import IcebergSink
from rayad.integrations.kafka import KafkaSink, KafkaSource
from rayad.integrations.paths import find_files
from rayad.integrations.postgres import PostgresSink, PostgresSource
from rayad.progress import ConfigError, DataflowError, SnapshotError, mask, show
from rayad.snapshots.buckets import objects_of
from rayad.snapshots.store import SnapshotStore

SECRET = "hunter2"
S3 = f"s3://AKIA7:{SECRET}@bucket.example/jobs"
WITH_SLASH = f"s3://AKIA7:ab/{SECRET}@bucket.example/jobs"
UNKNOWN = f"nosuch://ann:{SECRET}@host.example/x"
AWAY = "127.0.0.1:1"
SCHEMA = pa.schema([("n", pa.int64())])


def raised(make: Callable[[], Any]) -> str:
    """All that Python prints of an error: its causes and notes, too; but not the lines of source, which are the user's own."""
    try:
        make()
    except Exception as error:
        whole = traceback.TracebackException.from_exception(error)
        told = []
        one: traceback.TracebackException | None = whole
        while one is not None:
            told += one.format_exception_only()
            one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        return "".join(told)
    raise AssertionError("nothing was raised")


def run_config(**options: Any) -> rd.RunConfig:
    return rd.RunConfig(storage_path=S3, name="shop", **options)


def command(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    return result.output + (repr(result.exception) if result.exception is not None else "")


def journal_line() -> str:
    journal = Journal(lambda: 0.0)
    lines: list[str] = []
    journal.keep((), lines.append)
    journal.note("failure", f"cannot read {S3}", why=f"no answer of {S3}")
    return lines[0]


def with_note() -> None:
    error = DataflowError("the replica ended")
    error.add_note(f'File "a.py": OSError: no answer of {S3}')
    raise error


def wrapped_in_user_code() -> None:
    flow = rd.Dataflow("shop")

    def fails(record: int) -> int:
        raise OSError(f"no answer of {S3}")

    flow.from_items([1]).map(fails).collect("out")
    flow.run(runtime="local")


def libraries_quote_options() -> None:
    sink = DeltaSink.__new__(DeltaSink)
    sink.path, sink.uri, sink.handle = "bucket.example/t", "s3://bucket.example/t", None
    sink.storage_options = {"AWS_SECRET_ACCESS_KEY": SECRET}
    with sink._reading():
        raise OSError(f"signature of bucket.example with {SECRET} was refused")


def catalog_quotes_properties() -> None:
    IcebergSink("a.b", catalog={"type": "sql", "uri": f"nosuch+x://ann:{SECRET}@host.example/db", "name": "c"})


def bucket_quotes_options() -> None:
    home = fs.S3FileSystem(access_key="AKIA7", secret_key=SECRET, endpoint_override=AWAY, scheme="http", region="x")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(f"bucket.example: {SECRET} is no key")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("obstore.put", refuse)
        objects_of(home, "bucket.example/x").put("bucket.example/x", b"")


@dataclass
class Probe:
    what: str
    make: Callable[[], str]
    still: str
    """What the text says all the same."""


PROBES = [
    # -- texts of settings
    Probe("repr of RunConfig", lambda: repr(run_config()), "bucket.example/jobs', resume="),
    Probe("str of RunConfig", lambda: f"{run_config()}", "bucket.example"),
    Probe("repr of RunConfig with a slash", lambda: repr(rd.RunConfig(storage_path=WITH_SLASH)), "bucket.example/jobs"),
    Probe("RunConfig in a list", lambda: repr([run_config(resume="latest")]), "resume='latest'"),
    Probe("repr of resume", lambda: repr(run_config(resume=f"{S3}/shop/snapshots/000000000003")), "shop/snapshots/000000000003"),
    Probe("repr of SnapshotConfig", lambda: repr(rd.SnapshotConfig(secret=f"{SECRET}-and-so-on".encode())), "SnapshotConfig("),
    Probe("repr of ScalingConfig", lambda: repr(rd.ScalingConfig(journal=S3)), "bucket.example"),
    Probe(
        "settings that do nothing", lambda: "".join(not_acted_on(rd.RunConfig(), rd.ScalingConfig(journal=S3), "local")), "bucket.example"
    ),
    Probe("a setting that is wrong", lambda: raised(lambda: rd.RunConfig(storage_path=[S3])), "storage_path is ['s3://***@bucket.example"),
    Probe("resume that is wrong", lambda: raised(lambda: rd.RunConfig(resume=(S3,))), "bucket.example"),
    # -- stores and files
    Probe("a store that cannot be opened", lambda: raised(lambda: SnapshotStore(UNKNOWN)), "host.example"),
    Probe("a store with a slash", lambda: raised(lambda: SnapshotStore(WITH_SLASH)), "bucket.example"),
    Probe("a sink's directory", lambda: raised(lambda: open_directory(UNKNOWN, None, "write_parquet")), "host.example"),
    Probe("a sink's directory with a slash", lambda: raised(lambda: open_directory(WITH_SLASH, None, "write_csv")), "bucket.example"),
    Probe("a source's path", lambda: raised(lambda: find_files(UNKNOWN, None, "from_files")), "host.example"),
    Probe("a source's paths", lambda: raised(lambda: find_files([WITH_SLASH], None, "from_files")), "bucket.example"),
    Probe("a bucket", lambda: raised(bucket_quotes_options), "bucket.example"),
    Probe("options of Delta", lambda: raised(libraries_quote_options), "bucket.example"),
    Probe("a Delta table", lambda: raised(lambda: DeltaSink(UNKNOWN, schema=SCHEMA)), "host.example"),
    Probe("an Iceberg catalog", lambda: raised(catalog_quotes_properties), "'c' cannot be opened"),
    Probe("properties of Iceberg", lambda: raised(lambda: IcebergSink("a.b", properties=[("token", SECRET), ("x", 7)])), "('x', 7)"),
    # -- PostgreSQL
    *(
        Probe(f"PostgreSQL, {what}", lambda uri=uri, make=make: raised(lambda: make(uri)), "no connection to the database")
        for what, uri in {
            "URI": f"postgresql://ann:{SECRET}@{AWAY}/shop",
            "percent-encoded": f"postgresql://ann:a%2F{SECRET}%40@{AWAY}/shop",
            "a raw %": f"postgresql://ann:%{SECRET}@{AWAY}/shop",
            "a raw /": f"postgresql://ann:ab/{SECRET}@{AWAY}/shop",
            "a / behind": f"postgresql://ann:{SECRET}/ab@{AWAY}/shop",
            "a raw @": f"postgresql://ann:ab@{SECRET}@{AWAY}/shop",
            "a question mark": f"postgresql://ann:{SECRET}?ab@{AWAY}/shop",
            "a space": f"postgresql://ann:a {SECRET}@{AWAY}/shop",
            "a parameter": f"postgresql://{AWAY}/shop?user=ann&password={SECRET}&port=x",
            "words": f"host=127.0.0.1 port=1 user=ann password={SECRET}",
            "quoted words": f"host=127.0.0.1 port=1 password='a\\' {SECRET}' user=ann",
            "broken words": f"host=127.0.0.1 password = '{SECRET}",
        }.items()
        for make in (lambda uri: PostgresSource(uri, "t", key="k"), lambda uri: PostgresSink(uri, "t", schema=SCHEMA).check())
    ),
    # -- Kafka
    Probe(
        "options of Kafka as a list",
        lambda: raised(lambda: KafkaSource("k.example:1", "t", options=[("client.id", "rayad"), ("sasl.password", SECRET)])),  # type: ignore[arg-type]
        "'client.id', 'rayad'",
    ),
    Probe(
        "options of Kafka as lists",
        lambda: raised(lambda: KafkaSink("k.example:1", "t", options=[["sasl.password", SECRET], ["client.id", "rayad"]])),  # type: ignore[arg-type]
        "'client.id', 'rayad'",
    ),
    Probe(
        "options of Kafka as text",
        lambda: raised(lambda: KafkaSource("k.example:1", "t", options=f"client.id=rayad,sasl.password={SECRET}")),  # type: ignore[arg-type]
        "client.id=rayad",
    ),
    Probe(
        "options of Kafka as they are",
        lambda: raised(lambda: KafkaSource("k:1", "t", options={"sasl.password": SECRET, "x.y": "1"}).list_parts()),
        "x.y",
    ),
    Probe(
        "servers of Kafka",
        lambda: raised(lambda: KafkaSource({"k.example": 1, "sasl.password": SECRET}, "t")),  # type: ignore[arg-type]
        "k.example",
    ),
    # -- errors, and what is made of them
    Probe("a message", lambda: raised(lambda: (_ for _ in ()).throw(ConfigError(f"no {S3}"))), "bucket.example"),
    Probe("an error that has travelled", lambda: str(pickle.loads(pickle.dumps(SnapshotError(f"no {S3}")))), "bucket.example"),
    Probe("a note", lambda: raised(with_note), "bucket.example"),
    Probe("a failure", lambda: failure_of("'map'[0]", OSError(f"no {S3}")).message, "bucket.example"),
    Probe("an error of a function", lambda: raised(wrapped_in_user_code), "bucket.example"),
    Probe("a value in an error", lambda: show({"url": S3, "client.secret": SECRET}, 60), "'url'"),
    Probe("the journal", journal_line, "bucket.example"),
    # -- the command line
    Probe("rayad snapshots", lambda: command("snapshots", UNKNOWN), "host.example"),
    Probe("rayad state", lambda: command("state", WITH_SLASH), "bucket.example"),
    Probe("rayad doctor", lambda: command("doctor", "--storage", UNKNOWN), "host.example"),
    Probe("rayad doctor --json", lambda: command("doctor", "--json", "--storage", WITH_SLASH), "bucket.example"),
    Probe("rayad report", lambda: command("report", UNKNOWN), "host.example"),
]


def test_there_are_enough_probes() -> None:
    assert len(PROBES) >= 28


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.what)
def test_a_text_shows_no_secret_and_all_else(probe: Probe) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = probe.make()
    assert SECRET not in text
    assert probe.still in text


def test_lines_on_a_terminal_show_no_secrets_but_in_data(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"is saved in 4; submit it again with storage_path={S3!r}")
    echo(f"{{'url': {S3!r}}}", is_data=True)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "is saved in 4; submit it again with storage_path='s3://***@bucket.example/jobs'"
    assert S3 in second


def test_what_is_used_to_connect_stays_as_it_was_given() -> None:
    assert run_config().storage_path == S3
    assert pickle.loads(pickle.dumps(run_config())) == run_config()
    source = KafkaSource("k.example:1", "t", options={"sasl.password": SECRET})
    assert source.settings["sasl.password"] == SECRET
    error = SnapshotError("no", path=S3)
    assert pickle.loads(pickle.dumps(error)).path == S3


@pytest.mark.parametrize(
    "text",
    [
        "http://host:9000/bucket/file@v2",
        "s3://bucket/file@v1",
        "file:///data/a@b",
        "abfss://container@account.dfs.core.windows.net/x",
        "http://[::1]:9000/a@b",
        "RunConfig(secret=...)",
        "written with another secret",
        "password=None",
        "max_tokens=5",
        "no such token, 'x'",
        "there is no topic 'secret', or you may not see it",
        "it has ['id', 'token', 'size']",
        "column 'password': cast it",
        "user@host.example",
        "key='a'",
        "s3://***@bucket/x",
    ],
)
def test_texts_without_secrets_stay_as_they_are(text: str) -> None:
    assert mask(text) == text


@given(st.text(st.characters(codec="utf-8"), min_size=8))
def test_a_quoted_value_is_masked_whatever_it_is(secret: str) -> None:
    quoted = repr(secret)
    shown = mask(f"{{'sasl.password': {quoted}, 'client.id': 'rayad'}}")
    assert shown == f"{{'sasl.password': {quoted[0]}***{quoted[0]}, 'client.id': 'rayad'}}"


@given(st.text(st.sampled_from("abz09/@:?#%&=+ '\\\""), min_size=1))
def test_the_password_of_a_uri_is_masked_whatever_it_is(password: str) -> None:
    encoded = f"s3://user:x{quote(password, '')}y@host.example/a"
    assert mask(f"at {encoded!r}") == "at 's3://***@host.example/a'"
    raw = f"s3://user:x{password}{SECRET}@host.example/a"
    assert SECRET not in mask(f"at {raw!r}: no such place", raw)


@given(st.text())
def test_masking_again_changes_nothing(text: str) -> None:
    assert mask(mask(text)) == mask(text)
