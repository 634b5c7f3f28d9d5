"""Schemas from a registry: by id in the middle of a stream, by subject when the program is written; a registry that is away; secrets."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations.avro import registry as registries
from rayad.integrations.avro.registry import Registry, UnknownSchema
from rayad.progress import ConfigError, DataflowError

pytest.importorskip("fastavro")
from tests.integrations.avro_schemas import encoded, parsing, read, set_aside
from tests.integrations.registry_server import RegistryServer, serving_registry
from tests.test_secrets_in_texts import raised

SECRET = "hunter2"
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"], "default": None}, {"name": "more", "type": "double"}],
}
READ = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "long"], "default": 7}],
}
READ["fields"][1]["type"] = ["long", "null"]  # type: ignore[index]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving_registry() as one:
        yield one


def old(at: int, number: int) -> bytes:
    return encoded(OLD, {"id": at, "gone": "x" * at}, number)


def new(at: int, number: int) -> bytes:
    return encoded(NEW, {"id": at, "n": None if at % 2 else at, "more": 0.5}, number)


def test_each_message_is_read_with_the_schema_of_its_id(server: RegistryServer) -> None:
    first, second = server.add("orders-value", OLD), server.add("orders-value", NEW)
    values = [old(1, first), new(2, second), None, old(3, first), new(5, second)]
    wanted = [{"id": 1, "n": 7}, {"id": 2, "n": 2}, None, {"id": 3, "n": 7}, {"id": 5, "n": None}]
    for kind in (None, pa.binary()):
        assert read(parsing(READ, registry=server.url), values, kind) == wanted
    columns = pa.schema([("id", pa.int32()), ("n", pa.int8())])
    assert [row and row["n"] for row in read(parsing(columns, registry=server.url), values, pa.binary())] == [None, 2, None, None, None]
    assert server.asked == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"], "each is asked for once in a process"


def test_a_subject_says_what_is_read_when_the_program_is_written(server: RegistryServer) -> None:
    first, second = server.add("orders-value", OLD), server.add("orders-value", READ)
    table = pa.table({"value": pa.array([old(1, first)], pa.binary())})
    stream = rd.Dataflow("subject").from_arrow(table).parse_avro("value", registry=server.url, subject="orders-value")
    assert stream.schema == pa.schema([("value", pa.struct([("id", pa.int64()), ("n", pa.int64())]))])
    server.add("orders-value", NEW)
    stream.unnest("value").collect("out")
    assert [row for _, row in stream.flow.run(runtime="local")["out"]] == [{"id": 1, "n": 7}]
    pinned = parsing(None, registry=server.url, subject="orders-value", version=2)
    assert pinned.kind == pa.struct([("id", pa.int64()), ("n", pa.int64())])
    assert parsing(None, registry=server.url, subject="orders-value").kind.get_field_index("more") == 2
    assert second == 2


def test_schemas_that_refer_to_others(server: RegistryServer) -> None:
    inner = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    middle = {"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "shop.Money"}]}
    outer = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "line", "type": "shop.Line"}, {"name": "sum", "type": "shop.Money"}],
    }
    server.add("money", inner)
    server.add("line", middle, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    number = server.add(
        "order",
        outer,
        references=[{"name": one, "subject": at, "version": 1} for one, at in (("shop.Line", "line"), ("shop.Money", "money"))],
    )
    step = parsing(None, registry=server.url, subject="order")
    assert read(step, [b"\0" + number.to_bytes(4, "big") + b"\x06\x04"], pa.binary()) == [
        {"line": {"price": {"cents": 3}}, "sum": {"cents": 2}}
    ]


def test_what_is_no_message_of_the_registry_is_set_aside(server: RegistryServer) -> None:
    number = server.add("orders-value", OLD)
    other = server.add("other", {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "int"}]})
    proto = server.add("proto", 'syntax = "proto3";', "PROTOBUF")
    good = old(1, number)
    values = [
        good,
        b"",
        b"\0\0\0",
        b"\x01" + good[1:],
        b'{"id": 1}',
        good[:-1],
        old(2, 999),
        old(3, other),
        old(4, proto),
        None,
        old(2, number),
    ]
    kept, bad = set_aside(values, schema=READ, registry=server.url)
    assert kept == {0: {"id": 1, "n": 7}, 9: None, 10: {"id": 2, "n": 7}}
    for at, says in {
        1: "its bytes end before",
        3: "does not begin with the byte 0",
        4: "does not begin with the byte 0",
        5: "(schema id 1) does not fit: its bytes end before",
        6: f"the registry at {server.url} has no schema of id 999",
        7: f"the schema of id {other} in {server.url}: value was written as record 'Other', and is read as record 'Order': their names",
        8: "it is a schema of PROTOBUF, not of Avro",
    }.items():
        assert says in bad[at]


def test_an_id_that_is_unknown_is_not_asked_for_again_for_each_message(server: RegistryServer) -> None:
    number = server.add("orders-value", OLD)
    kept, bad = set_aside([old(at, 999 if at % 2 else number) for at in range(20)], schema=READ, registry=server.url)
    assert (len(kept), len(bad)) == (10, 10)
    assert server.asked.count("/schemas/ids/999") == registries.UNKNOWN_ASKED


def test_an_id_that_is_not_everywhere_yet_is_asked_for_again(server: RegistryServer) -> None:
    number = server.add("orders-value", OLD)
    server.later = registries.UNKNOWN_ASKED - 1
    assert read(parsing(READ, registry=server.url), [old(1, number)], pa.binary()) == [{"id": 1, "n": 7}]


@pytest.mark.parametrize("status", [503, 429, 500, 0])
def test_a_registry_that_is_away_for_a_while_is_asked_again(status: int, server: RegistryServer) -> None:
    number = server.add("orders-value", OLD)
    server.away, server.status = 3, status
    assert read(parsing(READ, registry=server.url), [old(1, number)], pa.binary()) == [{"id": 1, "n": 7}]
    assert len(server.asked) == 4


def test_no_record_is_set_aside_for_a_registry_that_does_not_answer(server: RegistryServer) -> None:
    """Nor for a wrong address, or refused credentials: the job fails, and can resume."""
    number = server.add("orders-value", OLD)
    options: dict[str, Any] = {"schema": READ, "registry": server.url, "wait_s": 0.3}
    server.away = 1_000
    with pytest.raises(rd.DataflowError, match=rf"the schema of id 1 in the registry at {server.url}: no answer within 0.3 s") as told:
        set_aside([old(1, number)], **options)
    assert "start it, or check it, then resume: no message has been lost or set aside" in str(told.value)
    server.away = 0
    with pytest.raises(rd.DataflowError, match="is this the address of a schema registry"):
        set_aside([old(1, number)], **{**options, "registry": f"{server.url}/elsewhere"})
    server.user = "ann:other"
    with pytest.raises(rd.DataflowError, match=r"Unauthorized.*see the settings of registry="):
        set_aside([old(1, number)], **options)
    server.user = None
    assert set_aside([old(1, number)], **options) == ({0: {"id": 1, "n": 7}}, {})


def test_a_subject_that_is_not_there(server: RegistryServer) -> None:
    with pytest.raises(
        DataflowError, match=r"the schema of subject 'nix', version 'latest' in the registry at .*: Subject 'nix' not found"
    ):
        parsing(None, registry=server.url, subject="nix")
    server.add("orders-value", OLD)
    with pytest.raises(DataflowError, match="Version 9 not found"):
        parsing(None, registry=server.url, subject="orders-value", version=9)
    with pytest.raises(DataflowError, match="version, a number or 'latest'"):
        parsing(None, registry=server.url, subject="orders-value", version=0)


def test_a_replica_elsewhere_asks_for_itself(server: RegistryServer) -> None:
    """The step as it travels has no client and no schemas of ids: another process fetches them."""
    number = server.add("orders-value", OLD)
    step = parsing(READ, registry=server.url)
    assert read(step, [old(1, number)], pa.binary()) == [{"id": 1, "n": 7}]
    forget()
    assert read(pickle.loads(pickle.dumps(step)), [old(1, number)], pa.binary()) == [{"id": 1, "n": 7}]
    assert len(server.asked) == 2


def forget() -> None:
    """As a new process, which knows no schema."""
    registries.KNOWN.clear()


def secrets(server: RegistryServer) -> dict[str, Any]:
    plain = server.url.removeprefix("http://")
    return {
        "in the address": f"http://ann:{SECRET}@{plain}",
        "in a setting": {"url": server.url, "basic.auth.user.info": f"ann:{SECRET}"},
        "a token": {
            "url": server.url,
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": SECRET,
            "bearer.auth.logical.cluster": "c",
            "bearer.auth.identity.pool.id": "p",
        },
    }


@pytest.mark.parametrize("how", ["in the address", "in a setting", "a token"])
def test_secrets_let_it_in_and_are_shown_nowhere(how: str, server: RegistryServer, caplog: pytest.LogCaptureFixture) -> None:
    number = server.add("orders-value", OLD)
    given = secrets(server)[how]
    if how == "a token":
        server.token = SECRET
    else:
        server.user = f"ann:{SECRET}"
    with caplog.at_level(logging.DEBUG):
        server.away = 1
        flow = rd.Dataflow("secrets")
        table = pa.table({"value": pa.array([old(1, number)], pa.binary())})
        stream = flow.from_arrow(table).parse_avro("value", READ, registry=given, wait_s=5.0)
        stream.collect("out")
        shown = [flow.explain(), flow.to_mermaid(), repr(parsing(READ, registry=given)), repr(Registry(given, 1.0, "x"))]
        assert [row for _, row in flow.run(runtime="local")["out"]] == [{"value": {"id": 1, "n": 7}}]
        server.away, server.status = 1_000, 503
        forget()
        shown.append(raised(lambda: read(parsing(READ, registry=given), [old(1, number)], pa.binary())) if how != "a token" else "")
        server.away, server.user, server.token = 0, "ann:another", None
        shown.append(raised(lambda: parsing(None, registry=given, subject="orders-value")))
    shown += [record.getMessage() for record in caplog.records]
    assert any("asking again" in one for one in shown)
    for one in shown:
        assert SECRET not in one
        assert "YW5uOmh1bnRlcjI" not in one, "nor as basic authentication has it"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (5, "registry is of type int: give its address"),
        ("localhost:8081", "it must begin with http:// or https://"),
        ({"url": "http://a", "no.such": 1}, "are refused: Unrecognized properties: no.such"),
        ({"url": f"http://ann:{SECRET}@a", "basic.auth.user.info": "x:y"}, "credentials in its url and in 'basic.auth.user.info'"),
        ({"url": "http://a", "basic.auth.user.info": SECRET}, "are refused"),
        ({"url": "https://a", "ssl.ca.location": "/no/such/file"}, "are refused"),
        ({"url": "http://a", "ssl.key.location": "x"}, "are refused: ssl.certificate.location required"),
    ],
)
def test_settings_are_checked_when_the_program_is_written(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parsing(READ, registry=given)
    assert SECRET not in raised(lambda: parsing(READ, registry=given))


def test_errors_travel() -> None:
    error = UnknownSchema("no")
    assert str(pickle.loads(pickle.dumps(error))) == "no"


def test_a_job_that_crashes_reads_each_message_once(server: RegistryServer, tmp_path: Path) -> None:
    """With a new id in the middle, snapshots, and a registry that is away at times; nothing of schemas is in a snapshot."""
    numbers = [server.add("orders-value", OLD), server.add("orders-value", NEW)]
    epochs = [[{"value": (old if epoch < 3 else new)(epoch * 10 + at, numbers[epoch >= 3])} for at in range(5)] for epoch in range(6)]
    flow = rd.Dataflow("crashing")
    parsed = flow.from_epochs(epochs, batch_rows=2, parts=2).parse_avro("value", READ, registry=server.url).unnest("value")
    parsed.map(lambda row: (row["id"] % 3, row["id"])).key_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).collect("out")
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism=2, seed=3)
    for step in range(400):
        if not job.step():
            break
        if step % 40 == 20:
            job.savepoint()
        if step % 60 == 50:
            forget()
            server.away = 2
            job.crash()
    result = job.wait()
    totals = {key: total for _, (key, total) in sorted(result["out"])}
    wanted: dict[int, int] = {}
    for epoch in range(6):
        for at in range(5):
            number = epoch * 10 + at
            wanted[number % 3] = wanted.get(number % 3, 0) + number
    assert totals == wanted
    assert json.dumps(wanted)
