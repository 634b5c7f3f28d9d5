"""An S3 server, in this process or in one of its own; its contents end with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any
from uuid import uuid4

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from pyarrow import fs

_ONE_PUT = RLock()
_put_object = S3Response.put_object


def _put_object_in_one_step(self: S3Response) -> Any:
    """S3 checks a condition and puts the object in one step. Moto does so in two, between which another thread may put."""
    with _ONE_PUT:
        return _put_object(self)


S3Response.put_object = _put_object_in_one_step


@dataclass(frozen=True)
class ObjectStore:
    """A bucket on a server."""

    endpoint: str
    bucket: str
    pid: int = 0
    """Of the server's process, where it has one of its own."""

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
        yield with_bucket(f"{host}:{port}")
    finally:
        server.stop()


@contextmanager
def serving_apart(address: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """The same in a process of its own: for libraries that keep Python's lock while they wait for an answer."""
    served = "from tests.integrations.object_store import serve; serve()"
    with subprocess.Popen([sys.executable, "-c", served, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield replace(with_bucket(process.stdout.readline().strip()), pid=process.pid)
        finally:
            process.stdin.close()  # which it waits for


def serve() -> None:
    """What the process does: say where the server is, and end it with the input."""
    server = ThreadedMotoServer(ip_address=sys.argv[1], port=0, verbose=False)
    server.start()
    print(*server.get_host_and_port(), sep=":", flush=True)
    sys.stdin.read()  # ends with the process that started this one
    server.stop()


def with_bucket(endpoint: str) -> ObjectStore:
    """One more empty bucket on a server."""
    store = ObjectStore(endpoint, bucket=f"rayad-{uuid4().hex}")
    given = {"access_key": "key", "secret_key": "secret", "endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
    fs.S3FileSystem(**given, allow_bucket_creation=True).create_dir(store.bucket)
    return store
