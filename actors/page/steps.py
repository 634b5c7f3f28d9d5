"""What a page may ask of its job, and which requests are the page's own. Pure: the server gives headers and text, a shell carries out.

A step changes the job, so a request for one has to come from this page and no other: its token is in the address, its ``Origin`` is the
address that the server is called by, and its body is JSON that names the job. A form or an image of another site can send none of the last
two, and a script of another site neither reads an answer nor gets past the ``Origin``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from rayad.progress import ConfigError, arguments, show

REPLICAS_MOST = 100_000
BODY_BYTES_MAX = 4_096


class Kind(Enum):
    """What can be asked."""

    SAVEPOINT = "savepoint"
    RESCALE = "rescale"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """One step that somebody has asked for and confirmed; ``vertex`` and ``replicas`` are those of a rescale."""

    kind: Kind
    vertex: str = ""
    replicas: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.vertex} to {self.replicas}" if self.kind is Kind.RESCALE else self.kind.value


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step came to: a path or a sentence, or the text of the error."""

    is_done: bool
    told: str


CarryOut = Callable[[Step], Awaitable[Answer]]
"""Carries out a step on the job, and raises nothing."""


def step_in(body: str, job: str) -> Step:
    """The step that the text of a request asks for. Raises ConfigError, which says what is wrong.

    >>> step_in('{"job": "words", "step": "rescale", "vertex": "counts", "replicas": 3}', "words")
    Step(kind=<Kind.RESCALE: 'rescale'>, vertex='counts', replicas=3)
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise ConfigError(f"a step is asked for as a JSON object, with job and step; this is {show(body, 60)}")
    if asked.get("job") != job:
        raise ConfigError(f"this is the page of job {job!r}, and the step is for {show(asked.get('job'))}: open the page of that job")
    kinds = [kind.value for kind in Kind]
    if asked.get("step") not in kinds:
        raise ConfigError(f"step is {show(asked.get('step'))}: it must be one of {kinds}")
    kind = Kind(asked["step"])
    if kind is not Kind.RESCALE:
        return Step(kind)
    vertex: Any = asked.get("vertex")
    if not isinstance(vertex, str) or not vertex:
        raise ConfigError(f"rescale: vertex is {show(vertex)}: it must be the name of a vertex")
    count = arguments.whole(asked.get("replicas"), "rescale: replicas", least=1, most=REPLICAS_MOST, error=ConfigError)
    return Step(kind, vertex, count)


def why_foreign(headers: Mapping[str, str]) -> str:
    """Why a request that would change the job is not one of this page's own; "" where it is one.

    >>> own = {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Content-Type": "application/json"}
    >>> why_foreign(own)
    ''
    >>> why_foreign({**own, "Origin": "http://evil.example"})
    'it comes from http://evil.example, and this page is localhost:8080'
    """
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    if not host or parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
        return f"it comes from {origin or 'an unknown place'}, and this page is {host}"
    if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return f"the browser says that it comes from another place ({headers['Sec-Fetch-Site']})"
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return "its body is not JSON"
    return ""


__all__ = ["BODY_BYTES_MAX", "Answer", "CarryOut", "Kind", "Step", "step_in", "why_foreign"]
