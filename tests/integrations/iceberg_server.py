"""A server that speaks the REST protocol of Iceberg's catalogs, as much of it as ``write_iceberg`` needs, over a catalog in a file.

It has what other catalogs have not: tables are staged on the server, which decides where they are, at another place for each table; a
commit is judged by its requirements alone; and answers can be lost after the commit was made.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import CommitTableRequest

from tests.integrations.iceberg_tables import catalog_in
from tests.served import served

STATUS = {NoSuchTableError: 404, CommitFailedException: 409, TableAlreadyExistsError: 409}


class CatalogServer(ThreadingHTTPServer):
    """``lose``: how many of the next commits are made and not answered; ``commits``: how many were made."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.lose, self.commits = folder, 0, 0
        self.lock = threading.Lock()
        self.behind: Any = load_catalog(**catalog_in(folder))

    @property
    def properties(self) -> dict[str, str]:
        """How clients reach it."""
        return {"name": "rest", "type": "rest", "uri": f"http://127.0.0.1:{self.server_address[1]}"}

    def load(self, name: str) -> dict[str, Any]:
        """The answer that has a table."""
        return answer_of(self.behind.load_table(name))

    def stage(self, namespace: str, body: bytes) -> dict[str, Any]:
        """A table that is not there yet, and where it will be."""
        asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
        assert asked.stage_create
        if self.behind.table_exists(f"{namespace}.{asked.name}"):
            raise TableAlreadyExistsError(f"{namespace}.{asked.name} exists")
        place = asked.location or f"file://{self.folder}/warehouse/{asked.name}-{uuid.uuid4().hex[:8]}"
        made = self.behind.create_table_transaction(
            f"{namespace}.{asked.name}", asked.table_schema, place, asked.partition_spec or PartitionSpec(), properties=asked.properties
        )
        return {"metadata-location": None, "metadata": json.loads(made.table_metadata.model_dump_json()), "config": {}}

    def commit(self, namespace: str, name: str, body: bytes) -> dict[str, Any]:
        """The table behind a commit, which is made if its requirements are met."""
        asked = CommitTableRequest.model_validate_json(body)
        with self.lock:
            self.behind.commit_table(_Named((namespace, name)), asked.requirements, asked.updates)
            self.commits += 1
        return self.load(f"{namespace}.{name}")


class _Named:
    """What the catalog behind asks of a table."""

    def __init__(self, identifier: tuple[str, str]) -> None:
        self._identifier = identifier

    def name(self) -> tuple[str, str]:
        return self._identifier


def answer_of(table: Any) -> dict[str, Any]:
    """As the protocol has a table."""
    return {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()), "config": {}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CatalogServer

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        """Configuration, a namespace, a table."""
        match self.path.partition("?")[0].strip("/").split("/"):
            case ["v1", "config"]:
                self._answer(200, {"defaults": {}, "overrides": {}})
            case ["v1", "namespaces", name]:
                found = self.server.behind.namespace_exists(name)
                self._answer(200 if found else 404, {"namespace": [name], "properties": {}} if found else error_of("NoSuchNamespace"))
            case ["v1", "namespaces", namespace, "tables", name]:
                self._try(lambda: self.server.load(f"{namespace}.{name}"))

    def do_POST(self) -> None:
        """A table is made or changed."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path.strip("/").split("/"):
            case ["v1", "namespaces", namespace, "tables"]:
                self._try(lambda: self.server.stage(namespace, body))
            case ["v1", "namespaces", namespace, "tables", name]:
                self._try(lambda: self.server.commit(namespace, name, body), commits=True)

    def _try(self, act: Any, *, commits: bool = False) -> None:
        try:
            made = act()
        except tuple(STATUS) as error:
            self._answer(STATUS[type(error)], error_of(str(error)))
            return
        if commits and self.server.lose > 0:
            self.server.lose -= 1
            self.close_connection = True
            return
        self._answer(200, made)

    def _answer(self, status: int, plain: dict[str, Any]) -> None:
        text = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def error_of(told: str) -> dict[str, Any]:
    """As the protocol has an error."""
    return {"error": {"message": told, "type": "Error", "code": 400}}


@contextmanager
def serving_catalog(folder: Path) -> Iterator[CatalogServer]:
    """A server; its tables are in the folder."""
    server = CatalogServer(folder)
    with served(server):
        yield server
