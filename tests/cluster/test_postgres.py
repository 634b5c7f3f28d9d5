"""PostgreSQL -> keyed -> PostgreSQL on real Ray: a replica and the coordinator are killed meanwhile, and each row is written once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

import rayad as rd
from tests.cluster.recovering import kill, surviving, until
from tests.integrations.postgres_server import postgres
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
ROWS = 400
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def test_kills_between_postgres_and_postgres(nothing_left: Callable[[], None], ray_cluster: None, tmp_path: Path) -> None:
    with postgres() as uri, dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE start (n bigint, word text)")
        cursor.execute(f"INSERT INTO start SELECT g, 'w' || g FROM generate_series(1, {ROWS}) AS g")
        cursor.execute("CREATE TABLE finish (n bigint, word text)")

        def written() -> int:
            cursor.execute("SELECT count(*) FROM finish")
            return int(cursor.fetchone()[0])

        def slowly(batch: Any) -> Any:
            time.sleep(0.1)
            return batch

        flow = rd.Dataflow("copy")
        read = flow.read_postgres(uri, "start", key="n", rows_per_part=100, batch_rows=10)
        read.map_batches(slowly).write_postgres(uri, "finish", schema=SCHEMA, name="finish")
        job = flow.submit(surviving(tmp_path, failures=4), parallelism=2)
        seen = 0
        for kind in ("Coordinator", "VertexActor"):
            before = seen
            seen = until(lambda before=before: written() > before and written(), "something more is committed")
            kill(kind, -1)
        result = job.wait(timeout_s=PATIENCE_S)
        assert seen < ROWS, "both were killed before the end"
        assert result.statistics.failures == 2, "the coordinator, and a replica"
        cursor.execute("SELECT n, word FROM finish ORDER BY n")
        assert cursor.fetchall() == [(n, f"w{n}") for n in range(1, ROWS + 1)]
