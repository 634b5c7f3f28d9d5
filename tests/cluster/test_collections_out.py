"""A graph that changes on real Ray, kept in every kind of table outside; a process is killed and the layout changes meanwhile."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import rayad as rd
from tests.cluster.recovering import by_value, kill, surviving
from tests.incremental.programs import Shape, history
from tests.incremental.test_ends import tables
from tests.incremental.test_updating_sinks import SCHEMA, asked, created, in_topic
from tests.integrations.broker import broker
from tests.integrations.iceberg_tables import catalog_in, rows_of
from tests.integrations.postgres_server import postgres
from tests.patience import PATIENCE_S

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__]):
        yield


def sizes(edges: rd.Collection) -> rd.Collection:
    """How many nodes each component has, by its smallest node."""
    return rd.graphs.connected_components(edges).key_by(lambda pair: pair[1]).count().map(lambda pair: {"node": pair[0], "n": pair[1]})


def sizes_of(there: Counter[Any]) -> dict[int, int]:
    """The same, by networkx."""
    return {min(nodes): len(nodes) for nodes in nx.connected_components(nx.Graph(list(there)))}


def test_every_table_outside_is_as_the_graph_is(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    changes = history(Shape(8, 9, 12), 5)
    with postgres() as uri, broker() as kafka:
        target, topic, delta, lake = created(uri, "sizes"), kafka.topic(2), tmp_path / "delta", catalog_in(tmp_path / "lake")
        flow = rd.Dataflow("graph-out")
        out = sizes(flow.collection("edges"))
        out.changes().probe("seen")
        out.write_postgres(uri, target, key="node", schema=SCHEMA)
        out.write_kafka(kafka.servers, topic, key=lambda row: str(row["node"]), value=json.dumps)
        out.write_delta(str(delta), key="node", schema=SCHEMA)
        out.write_iceberg("ns.t", key="node", schema=SCHEMA, partition_by="bucket(2, node)", catalog=lake)
        job = flow.submit(surviving(tmp_path / "job"), rd.ScalingConfig(parallelism=1, placement="workers"))
        edges = job.collection("edges")
        for epoch, some in enumerate(changes):
            edges.insert([record for record, weight in some if weight > 0])
            edges.remove([record for record, weight in some if weight < 0])
            edges.advance_to(epoch + 1)
            if epoch == 3:
                kill("WorkerActor", -1)
            if epoch == 5:
                job.rescale("count", 2, timeout_s=PATIENCE_S)
            assert job.probe("seen").wait(epoch, timeout_s=PATIENCE_S)
        edges.close()
        result = job.wait(timeout_s=PATIENCE_S)
        expected = sizes_of(tables(changes)[-1])
        assert dict(asked(uri, f"SELECT node, n FROM {target}")) == expected
        assert {int(key): json.loads(value)["n"] for key, value in in_topic(kafka, topic).items()} == expected
        assert {row["node"]: row["n"] for row in deltalake.DeltaTable(str(delta)).to_pyarrow_table().to_pylist()} == expected
        assert {row["node"]: row["n"] for row in rows_of(lake)} == expected
        assert result.statistics.failures == 1
    nothing_left()
