"""Snapshots and committed Parquet files on a server that speaks S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import fs

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import Manifest, ReplicaPart
from rayad.snapshots.port import Entry, Port
from rayad.snapshots.store import MANIFEST, SnapshotStore
from tests.integrations.object_store import ObjectStore, serving

EPOCHS = [[(n * 7 + epoch) % 11 for n in range(20)] for epoch in range(30)]


@pytest.fixture
def objects() -> Iterator[ObjectStore]:
    with serving() as store:
        yield store


def test_servers_of_one_process_share_nothing(objects: ObjectStore) -> None:
    store = SnapshotStore(objects.uri("shared"))
    store.write_part(1, "count", 0, [b"state"])
    assert objects.paths() == ["shared/000000000001/count-0-0.part"]
    with serving() as other:
        assert other.paths() == []


def manifest_of(number: int, part: Any) -> Manifest:
    return Manifest(number, "job", {}, 128, (ReplicaPart("count", 0, (part,)),))


def test_snapshots_come_and_go(objects: ObjectStore) -> None:
    store = SnapshotStore(objects.uri("plain"), secret=b"of sixteen bytes")
    assert store.numbers() == []
    for number in (1, 2, 3):
        part = store.write_part(number, "count", 0, [b"state ", str(number).encode()])
        store.publish(manifest_of(number, part), after=number - 1)
    assert store.numbers() == [1, 2, 3]
    with pytest.raises(SnapshotError, match="snapshot 2 is there already"):
        store.publish(manifest_of(2, store.write_part(2, "count", 0, [b"other"], attempt="9")), after=1)
    found, refused = store.latest()
    assert found is not None
    assert (found.number, refused) == (3, [])
    assert store.read_part(found.parts[0].files[0]) == b"state 3"
    assert store.retain(3, []) == [1, 2]
    assert [key for key in objects.paths() if key.endswith((MANIFEST, ".part"))] == [
        f"plain/{3:012d}/count-0-0.part",
        f"plain/{3:012d}/{MANIFEST}",
    ]


def test_a_changed_object_is_refused(objects: ObjectStore) -> None:
    store = SnapshotStore(objects.uri("changed"))
    part = store.write_part(1, "count", 0, [b"state"])
    store.publish(manifest_of(1, part), after=0)
    with store.filesystem.open_output_stream(f"{store.folder}/{part.path}", compression=None) as stream:
        stream.write(b"stale")
    found, refused = store.latest()
    assert found is None
    assert "is not what was written" in refused[0]


def counting(out: str) -> rd.Dataflow:
    flow = rd.Dataflow("counting")
    counts = flow.from_epochs(EPOCHS, batch_rows=4).key_by(lambda n: n).count(name="counts")
    counts.map(lambda pair: {"key": pair[0], "count": pair[1]}).write_parquet(out, epoch_column="epoch", spark_log=True)
    return flow


def rows_of(out: str) -> list[tuple[int, int, int]]:
    rows = rd.read_committed(out).to_table().to_pylist()
    return sorted((row["epoch"], row["key"], row["count"]) for row in rows)


def expected() -> list[tuple[int, int, int]]:
    seen: dict[int, int] = {}
    out = []
    for epoch, numbers in enumerate(EPOCHS):
        for n in numbers:
            seen[n] = seen.get(n, 0) + 1
        out += [(epoch, n, seen[n]) for n in sorted(set(numbers))]
    return sorted(out)


def config(objects: ObjectStore, **more: Any) -> rd.RunConfig:
    failures = rd.FailureConfig(max_failures=3)
    return rd.RunConfig(storage_path=objects.uri("jobs"), snapshots=rd.SnapshotConfig(interval_s=0.5), failures=failures, **more)


def test_a_job_resumes_after_a_crash_and_another_from_its_savepoint(objects: ObjectStore) -> None:
    out = objects.uri("crashed")
    job = counting(out).submit(config(objects), runtime="local", seed=3, parallelism=2)
    assert isinstance(job, LocalJob)
    path = job.savepoint()
    job.crash()
    job.wait()
    assert rows_of(out) == expected()
    assert any(key.startswith("jobs/counting/snapshots/") for key in objects.paths())
    job = counting(out).submit(config(objects, resume=path), runtime="local", seed=4, parallelism=2)
    job.wait()
    assert rows_of(out) == expected()
    assert told_to_spark(objects, "crashed") == [f"s3a://{objects.bucket}/crashed/{name}" for name in rd.committed_files(out).files]


def told_to_spark(objects: ObjectStore, folder: str) -> list[str]:
    """The files in the log from its compact entry on: the resume took back what had been committed after the savepoint."""
    home, _ = fs.FileSystem.from_uri(objects.uri(folder))
    log = [key for key in objects.paths() if key.startswith(f"{folder}/_spark_metadata/")]
    numbers = {int(key.rsplit("/", 1)[1].removesuffix(".compact")): key for key in log}
    compact = max(number for number, key in numbers.items() if key.endswith(".compact"))
    told = []
    for key in (key for number, key in sorted(numbers.items()) if number >= compact):
        with home.open_input_stream(f"{objects.bucket}/{key}") as stream:
            version, *lines = stream.read().decode().split("\n")
        assert version == "v1"
        told += [json.loads(line)["path"] for line in lines]
    return sorted(told)


def test_files_of_a_snapshot_are_looked_at_by_one_listing_of_each_folder(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(objects.uri("listed"))
    files = [store.write_part(1 + at % 2, "count", 0, [bytes(at)], attempt=str(at)) for at in range(12)]
    listed: list[str] = []
    real = Port.entries

    def entries(self: Port, name: str = "", *, recursive: bool = False) -> list[Entry]:
        listed.append(name)
        return real(self, name, recursive=recursive)

    monkeypatch.setattr(Port, "entries", entries)
    names = [file.path for file in files]
    found = store.port.files([*names, "000000000001/gone.part", "000000000003/alone.part"])
    assert [entry and (entry.name, entry.size) for entry in found] == [*((file.path, file.size) for file in files), None, None]
    assert listed == ["000000000001", "000000000002"]
