"""A server that speaks the REST protocol of Confluent's schema registry, as much of it as ``parse_avro`` and ``format_avro`` need.

Source: Confluent's "Schema Registry API Reference". ``karapace``, a registry on its own, is not on PyPI.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from rayad.integrations.avro import registry
from tests.served import served


@dataclass
class Registered:
    """One schema, as it was registered: text, type, references."""

    schema: str
    kind: str = "AVRO"
    references: list[Any] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        """As the protocol has it, which leaves out what is usual."""
        out: dict[str, Any] = {"schema": self.schema}
        if self.kind != "AVRO":
            out["schemaType"] = self.kind
        return {**out, "references": self.references} if self.references else out


class RegistryServer(ThreadingHTTPServer):
    """``away``: so many of the next questions are answered by ``status``; ``asked``: the paths of all; ``user``: who may (name:password).

    ``later``: so many of the next questions for an id are answered as if it were unknown.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[Registered] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.away, self.status, self.later = 0, 503, 0
        self.user: str | None = None
        self.token: str | None = None
        self.is_strict = False
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema; gives its id, which is that of an equal one."""
        made = Registered(schema if isinstance(schema, str) else json.dumps(schema), kind, list(references))
        with self.lock:
            known = next((at for at, one in enumerate(self.schemas) if one == made), None)
            if known is None:
                self.schemas.append(made)
                known = len(self.schemas) - 1
            versions = self.subjects.setdefault(subject, [])
            if known + 1 not in versions:
                versions.append(known + 1)
            return known + 1

    def found(self, subject: str, number: int, version: int) -> dict[str, Any]:
        """The answer that has a version of a subject."""
        return {"subject": subject, "id": number, "version": version, **self.schemas[number - 1].answer()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        """A schema by its id, or by its subject."""
        if not self._let_in():
            return
        server = self.server
        match [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")]:
            case ["schemas", "ids", number] if number.isdigit():
                if server.later > 0 or not 0 < int(number) <= len(server.schemas):
                    server.later -= 1
                    self._answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})
                else:
                    self._answer(200, server.schemas[int(number) - 1].answer())
            case ["subjects", subject, "versions", version]:
                ids = server.subjects.get(subject)
                at = len(ids or ()) if version == "latest" else int(version)
                if not ids:
                    self._answer(404, {"error_code": 40401, "message": f"Subject '{subject}' not found."})
                elif at > len(ids):
                    self._answer(404, {"error_code": 40402, "message": f"Version {version} not found."})
                else:
                    self._answer(200, server.found(subject, ids[at - 1], at))
            case _:
                self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def do_POST(self) -> None:
        """A schema is registered, or looked up."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._let_in():
            return
        server = self.server
        match [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")]:
            case ["subjects", subject, "versions"]:
                if server.is_strict and subject in server.subjects:
                    self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"})
                else:
                    self._answer(
                        200, {"id": server.add(subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ()))}
                    )
            case ["subjects", subject]:
                ids = server.subjects.get(subject, [])
                wanted = json.loads(body["schema"])
                at = next((at for at, one in enumerate(ids) if json.loads(server.schemas[one - 1].schema) == wanted), None)
                if at is None:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})
                else:
                    self._answer(200, server.found(subject, ids[at], at + 1))

    def _let_in(self) -> bool:
        """Whether it answers; else it has answered."""
        server, said = self.server, self.headers.get("Authorization", "")
        server.asked.append(self.path)
        if server.away > 0:
            server.away -= 1
            if not server.status:
                self.close_connection = True
            else:
                self._answer(server.status, {"error_code": 50003, "message": f"Error while forwarding; you said {said!r}"})
            return False
        wanted = f"Bearer {server.token}" if server.token else None
        if server.user is not None:
            wanted = f"Basic {base64.b64encode(server.user.encode()).decode()}"
        if wanted not in (None, said):
            self._answer(401, {"error_code": 401, "message": f"Unauthorized, {said!r}"})
            return False
        return True

    def _answer(self, status: int, plain: dict[str, Any]) -> None:
        text = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def serving_registry() -> Iterator[RegistryServer]:
    """A server for the duration of the context. Nothing is known of one that had its port before."""
    server = RegistryServer()
    registry.KNOWN.clear()
    registry._unknown.clear()
    with served(server):
        yield server
