"""A schema registry that speaks Confluent's protocol, by the client of ``confluent-kafka``: schemas by id, by subject, and new ones.

What an id stands for never changes, so answers are kept for the life of the process, for all steps in it. A registry that does not answer
is asked again for ``wait_s`` seconds; then the job fails, and no record is set aside for it. An id that it does not know is an error of
the message that has it.

Credentials in an address are taken out of it: the client's HTTP library logs addresses.
"""

from __future__ import annotations

import base64
import functools
import logging
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from rayad.integrations.avro.schemas import AvroType, parsed
from rayad.progress import ConfigError, DataflowError, arguments, mask, say, show, without_secrets

T = TypeVar("T")
Version = int | Literal["latest"]
ANSWER_S = 10.0
"""How long one answer may take, unless ``timeout`` is set."""
PAUSE_S, PAUSE_S_MAX = 0.1, 2.0
UNKNOWN_ASKED = 3
"""How often an id is asked for before it counts as unknown: one that was just registered may not be everywhere yet."""
UNKNOWN_S = 10.0
"""How long an id counts as unknown without being asked for."""
_USER_INFO = "basic.auth.user.info"
_NO_SUCH_SCHEMA = 40403
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which asking again may help."""
_SECRET = ("password", "secret", "token")
_log = logging.getLogger("rayad.avro")

Key = tuple[tuple[str, str], ...]
KNOWN: dict[Key, dict[int, AvroType]] = {}
"""The schemas of ids, by the settings of the registry that said so: of all steps of a process."""
_unknown: dict[Key, dict[int, float]] = {}


class UnknownSchema(ValueError):
    """The registry does not know an id, or what it stands for is no schema of Avro."""


def library(where: str) -> Any:
    """``confluent_kafka.schema_registry``. Raises ConfigError where it, or what it needs, is not installed."""
    try:
        import confluent_kafka.schema_registry
        import confluent_kafka.schema_registry.error
    except ImportError as error:
        raise ConfigError(
            f"{where} needs confluent-kafka with its client of schema registries: pip install 'rayad[avro]' ({error})"
        ) from error
    return confluent_kafka.schema_registry


class Registry:
    """Where schemas are.

    Args:
        registry: its address, or a dict of the client's settings, of which ``url`` is one.
        wait_s: how long it is asked again while it does not answer.
        where: how errors name who asks.
    """

    def __init__(self, registry: Any, wait_s: Any, where: str) -> None:
        library(where)
        self._where = where
        self._wait_s = arguments.number(wait_s, f"{where}: wait_s", zero=True, error=ConfigError)
        self._settings = _checked(registry, where)
        self._secrets = _secrets_of(self._settings)
        with self._client():
            pass  # it says what is wrong with the settings while the program is written

    def __repr__(self) -> str:
        return f"Registry({self.address!r})"

    @property
    def address(self) -> str:
        """Where it is, without credentials."""
        return mask(str(self._settings["url"]))

    def by_id(self, number: int) -> AvroType:
        """The schema of an id. Raises :class:`UnknownSchema`, or DataflowError where the registry does not say."""
        known, unknown = KNOWN.setdefault(self._key(), {}), _unknown.setdefault(self._key(), {})
        if number in known:
            return known[number]
        if clock.monotonic() < unknown.get(number, 0.0):
            raise self._no_such(number)
        what = f"the schema of id {number}"
        for asked in range(UNKNOWN_ASKED):
            try:
                found = self._ask(what, lambda client: client.get_schema(number))
                break
            except _NotThere as error:
                if error.code != _NO_SUCH_SCHEMA:
                    raise DataflowError(f"{self._said(what)}: {error}: is this the address of a schema registry?") from None
                clock.sleep(PAUSE_S * asked)
        else:
            unknown[number] = clock.monotonic() + UNKNOWN_S
            raise self._no_such(number)
        references = self._referenced(found, what)
        try:
            known[number] = self._tree(found, what, references)
        except DataflowError as error:
            raise UnknownSchema(str(error)) from error
        return known[number]

    def by_subject(self, subject: str, version: Version) -> AvroType:
        """The schema of a subject. Raises DataflowError where there is none."""
        what = f"the schema of subject {subject!r}, version {version!r}"
        try:
            found = self._ask(what, lambda client: client.get_version(subject, version))
        except _NotThere as error:
            raise DataflowError(f"{self._said(what)}: {error}: check the subject's name, or register its schema first") from None
        return self._tree(found.schema, what, self._referenced(found.schema, what))

    def id_of(self, subject: str, schema: str, *, register: bool) -> int:
        """The id of a schema under a subject, where it is registered if it is not there. Raises DataflowError where it is refused."""
        made = library(self._where).Schema(schema, "AVRO")
        what = f"{'registering' if register else 'the id of'} a schema under subject {subject!r}"
        try:
            if register:
                return int(self._ask(what, lambda client: client.register_schema(subject, made)))
            return int(self._ask(what, lambda client: client.lookup_schema(subject, made)).schema_id)
        except _NotThere as error:
            more = "" if register else "; register=True would register it"
            raise DataflowError(f"{self._said(what)}: {error}{more}; the schema: {show(schema, 300)}") from None

    def _tree(self, found: Any, what: str, references: list[Any]) -> AvroType:
        if (found.schema_type or "AVRO") != "AVRO":
            raise DataflowError(f"{self._said(what)}: it is a schema of {found.schema_type}, not of Avro")
        return parsed(found.schema_str, f"{self._where}: {what} in {self.address}", references)

    def _referenced(self, found: Any, what: str, inside: int = 0) -> list[Any]:
        """The schemas that it refers to, each behind those that that one refers to."""
        if inside > 50:
            raise DataflowError(f"{self._said(what)}: its references have no end")
        out: list[Any] = []
        for one in found.references or ():
            named = f"{what}, of which {one.name!r} is version {one.version} of subject {one.subject!r}"
            try:
                inner = self._ask(named, functools.partial(_version_of, one)).schema
            except _NotThere as error:
                raise DataflowError(f"{self._said(named)}: {error}") from None
            out += [*self._referenced(inner, named, inside + 1), inner.schema_str]
        return list(dict.fromkeys(out))

    def _ask(self, what: str, ask: Callable[[Any], T]) -> T:
        """The answer to a question; asked again while there is none. Raises DataflowError, and :class:`_NotThere`."""
        errors = library(self._where).error
        deadline_s, pause_s = clock.monotonic() + self._wait_s, PAUSE_S
        while True:
            try:
                with self._client() as client:
                    return ask(client)
            except errors.SchemaRegistryError as error:
                status, told = error.http_status_code, self._told(error)
                if status == 404:
                    raise _NotThere(told, error.error_code) from None  # its own text may quote what it was sent
                if status not in _LATER:
                    hint = ": see the settings of registry=" if status in (401, 403) else ""
                    raise DataflowError(f"{self._said(what)}: {told}{hint}") from None
            except Exception as error:  # of the HTTP library that the client has; its classes differ by version
                if isinstance(error, DataflowError | ConfigError):
                    raise
                told = self._told(error)
            if clock.monotonic() + pause_s > deadline_s:
                raise DataflowError(
                    f"{self._said(what)}: no answer within {self._wait_s:g} s (wait_s): {told}; start it, or check it, then resume: "
                    "no message has been lost or set aside for it"
                )
            _log.warning("%s: no answer yet: %s; asking again", self._said(what), told)
            clock.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A client for one question: they are few, and none keeps a connection open."""
        try:
            client = library(self._where).SchemaRegistryClient({"timeout": ANSWER_S, "max.retries": 0, **self._settings})
        except Exception as error:  # ValueError, TypeError, OSError and ssl.SSLError, by what is wrong
            told = f"{self._where}: the settings of registry={self.address!r} are refused: {self._told(error)}"
            raise ConfigError(told) from without_secrets(error, self._secrets)
        with client:
            yield client

    def _key(self) -> Key:
        return tuple(sorted((name, repr(value)) for name, value in self._settings.items()))

    def _said(self, what: str) -> str:
        return f"{self._where}: {what} in the registry at {self.address}"

    def _told(self, error: Exception) -> str:
        return mask(say(error) or type(error).__name__, self._secrets)

    def _no_such(self, number: int) -> UnknownSchema:
        return UnknownSchema(
            f"the registry at {self.address} has no schema of id {number}: it is no Avro in Confluent's format, or was written with "
            "another registry"
        )


def _version_of(one: Any, client: Any) -> Any:
    return client.get_version(one.subject, one.version)


class _NotThere(Exception):
    def __init__(self, told: str, code: int | None) -> None:
        super().__init__(told)
        self.code = code


def _checked(registry: Any, where: str) -> dict[str, Any]:
    """Settings of the client, without credentials in the address."""
    if isinstance(registry, str):
        registry = {"url": registry}
    if not isinstance(registry, Mapping) or not all(isinstance(name, str) for name in registry):
        raise ConfigError(
            f"{where}: registry is of type {type(registry).__name__}: give its address, 'http://localhost:8081', or a dict of the client's "
            "settings: {'url': ..., 'basic.auth.user.info': 'user:password'}"
        )
    settings = dict(registry)
    url = settings.get("url")
    if not isinstance(url, str) or not all(one.strip().startswith(("http://", "https://")) for one in url.split(",")):
        raise ConfigError(f"{where}: registry has the url {mask(show(url, 120))}: it must begin with http:// or https://")
    plain, found = [], None
    for one in map(str.strip, url.split(",")):
        parts = urlsplit(one)
        info, at, host = parts.netloc.rpartition("@")
        if at:
            found = found or unquote(info)
        plain.append(urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment)))
    if found is not None:
        if _USER_INFO in settings:
            raise ConfigError(f"{where}: registry has credentials in its url and in {_USER_INFO!r}: leave one of them out")
        settings[_USER_INFO] = found if ":" in found else f"{found}:"
    return {**settings, "url": ",".join(plain)}


def _secrets_of(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of a name and a secret, as ``mask`` takes them."""
    found = [value for name, value in settings.items() if any(word in name for word in _SECRET) and isinstance(value, str)]
    info = settings.get(_USER_INFO)
    if isinstance(info, str):
        found += [info, info.partition(":")[2], base64.b64encode(info.encode()).decode()]
    proxy = settings.get("proxy")
    return [("password", value) for value in found if value] + ([("proxy", proxy)] if isinstance(proxy, str) else [])


__all__ = ["Registry", "UnknownSchema", "Version"]
