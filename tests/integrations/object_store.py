"""An S3 server in this process; its contents end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from moto.server import ThreadedMotoServer
from pyarrow import fs


@dataclass(frozen=True)
class ObjectStore:
    """A bucket on a server."""

    endpoint: str
    bucket: str

    def uri(self, path: str) -> str:
        """The URI of an object in the bucket, with all that any process needs to open it."""
        return f"s3://key:secret@{self.bucket}/{path}?endpoint_override={self.endpoint}&scheme=http&region=us-east-1"

    def paths(self) -> list[str]:
        """Paths of all objects, without the bucket."""
        filesystem, root = fs.FileSystem.from_uri(self.uri("").replace("/?", "?"))
        found = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
        return sorted(info.path.removeprefix(f"{self.bucket}/") for info in found if info.type == fs.FileType.File)


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """A server with one empty bucket, at an address of this host.

    All servers of a process have the same buckets (moto keeps them in globals), so each call makes one of its own.
    """
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"{host}:{port}", bucket=f"rayad-{uuid4().hex}")
        given = {"access_key": "key", "secret_key": "secret", "endpoint_override": store.endpoint, "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(**given, allow_bucket_creation=True).create_dir(store.bucket)
        yield store
    finally:
        server.stop()
