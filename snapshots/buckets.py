"""Conditional puts into buckets: what pyarrow's file systems of S3, GCS and Azure lack.

Pyarrow writes an object over what is there. `obstore` (object_store, in Rust) puts it with the condition that nothing is there
(``If-None-Match: *``). So a pyarrow file system is translated into a store of obstore, by the options that it pickles with. The two could
come to different places, and a server may take no notice of the condition. Both would be a fence with a gap. So the first create in a
bucket tries it out (`rayad.snapshots.create`).

What obstore reads from the environment and pyarrow does not (endpoints among it) is set here, whatever the environment says.

A process that was forked from one that has used a bucket cannot use it (as with pyarrow's S3): its threads are not there.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import quote

from pyarrow import fs

from rayad.progress import ConfigError, say

BUCKETS = frozenset(("s3", "gcs", "abfs"))
"""The ``type_name`` of pyarrow's file systems that are buckets: S3, Google Cloud Storage, Azure Blob Storage."""

REQUEST_S, RETRY_S, RETRIES = 15, 20, 3
"""A request to a server ends after REQUEST_S. Obstore repeats it RETRIES times at most, none begun later than RETRY_S after the first."""
_ERRORS = {"PermissionDeniedError": PermissionError, "UnauthenticatedError": PermissionError, "AlreadyExistsError": FileExistsError}
"""What obstore's errors are in Python, beside those that are an OSError already."""
_DEBUG = "\n\nDebug source:"
"""Behind this, obstore's messages say it all again, in Rust."""


class Objects(Protocol):
    """What a bucket must do. Paths are those that pyarrow takes: ``bucket/folder/name``. Errors are OSErrors without secrets."""

    is_tried_out: bool
    """Whether the server is known to heed the condition."""

    def put(self, path: str, data: bytes) -> None:
        """Put an object if there is none; any error may mean that it is there, by this call or another."""

    def holds(self, path: str, data: bytes) -> bool | None:
        """Is this what the object holds? None: there is no object."""

    def remove(self, path: str) -> None:
        """Remove an object."""


def objects_of(filesystem: fs.FileSystem, path: str) -> Objects:
    """The bucket of a path in one of pyarrow's file systems, by obstore; the same object for the same options and bucket."""
    return _opened(pickle.dumps(filesystem), path.partition("/")[0])


def fsspec_objects_of(filesystem: fs.PyFileSystem, path: str) -> Objects:
    """The bucket of a path in a file system of s3fs or gcsfs; the same object for the same file system and bucket."""
    return _opened_by_fsspec(filesystem.handler.fs, path.partition("/")[0])


@lru_cache(maxsize=64)
def _opened(pickled: bytes, bucket: str) -> Objects:
    filesystem = pickle.loads(pickled)
    options, make = _options(filesystem), store_of(filesystem, bucket, bucket)
    try:
        return _ByObstore(make(), options)
    except Exception as error:  # of botocore and azure.identity, which look for credentials; of obstore, which checks what it is given
        why = f"{type(error).__name__}: {say(error, options)}".partition(_DEBUG)[0]
        raise ConfigError(f"{bucket}: this bucket cannot be opened to make files only where none is: {why}") from None


@lru_cache(maxsize=64)
def _opened_by_fsspec(filesystem: Any, bucket: str) -> Objects:
    return _ByFsspec(filesystem)


def store_of(filesystem: fs.FileSystem, bucket: str, where: str) -> Callable[[], Any]:
    """What makes obstore's store for a bucket of a pyarrow file system. Called, it may look for credentials; this asks no server.

    Raises ConfigError, which begins with ``where``, if the file system has options that obstore has not.
    """
    return {"s3": _s3, "gcs": _gcs, "abfs": _azure}[filesystem.type_name](_options(filesystem), bucket, where)


def _options(filesystem: fs.FileSystem) -> dict[str, Any]:
    """What the file system is pickled with: the arguments of its constructor; None for those that only later versions have."""
    return defaultdict(lambda: None, filesystem.__reduce__()[1][0])


class _ByObstore:
    """Objects by a store of obstore."""

    is_tried_out = False

    def __init__(self, store: Any, options: dict[str, Any]) -> None:
        self._store = store
        self._options = options

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with self._told(path) as key:
            obstore.put(self._store, key, data, mode="create")

    def holds(self, path: str, data: bytes) -> bool | None:
        import obstore

        try:
            with self._told(path) as key:
                found = obstore.get(self._store, key)
                return found.meta["size"] == len(data) and bytes(found.bytes()) == data
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        import obstore

        with self._told(path) as key:
            obstore.delete(self._store, key)

    @contextmanager
    def _told(self, path: str) -> Iterator[str]:
        """The key of a path; what obstore raises becomes an OSError that shows no secret."""
        try:
            yield path.partition("/")[2]
        except Exception as error:
            kind = type(error) if isinstance(error, OSError) else _ERRORS.get(type(error).__name__, OSError)
            raise kind(say(error, self._options).partition(_DEBUG)[0]) from None


class _ByFsspec:
    """Objects by s3fs or gcsfs, which have the condition as a mode."""

    is_tried_out = False

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def put(self, path: str, data: bytes) -> None:
        with _as_os_errors():
            self._filesystem.pipe_file(path, data, mode="create")

    def holds(self, path: str, data: bytes) -> bool | None:
        with _as_os_errors():
            try:
                return bool(self._filesystem.cat_file(path) == data)
            except FileNotFoundError:
                return None

    def remove(self, path: str) -> None:
        with _as_os_errors():
            self._filesystem.rm_file(path)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # of aiohttp, botocore, google.auth
        raise OSError(f"{type(error).__name__}: {say(error)}") from error


# -- what pyarrow's options are in obstore ---------------------------------------------------------------


def _s3(options: dict[str, Any], bucket: str, where: str) -> Callable[[], Any]:
    scheme, region = options["scheme"] or "https", options["region"] or "us-east-1"
    endpoint = options["endpoint_override"] or f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    scheme, endpoint = endpoint.split("://", 1) if "://" in endpoint else (scheme, endpoint)
    is_virtual = bool(options["force_virtual_addressing"])
    if options["role_arn"] and find_spec("boto3") is None:
        raise ConfigError(f"{where}: the role {options['role_arn']!r} is assumed by boto3, which is not installed: pip install boto3")

    def credentials() -> Any:
        if options["anonymous"]:
            return None
        if options["access_key"]:
            keys = {"access_key_id": options["access_key"], "secret_access_key": options["secret_key"]}
            return _Fixed({**keys, "token": options["session_token"] or None, "expires_at": None})
        if find_spec("boto3") is None:
            return None  # obstore looks into the environment, and asks the machine
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider

        session = boto3.Session(region_name=region)
        if options["role_arn"]:
            named = {"RoleArn": options["role_arn"], "RoleSessionName": options["session_name"] or "rayad"}
            named |= {"ExternalId": options["external_id"]} if options["external_id"] else {}
            return StsCredentialProvider(session, **named, DurationSeconds=max(900, options["load_frequency"]))
        if session.get_credentials() is None:
            return None
        return Boto3CredentialProvider(session, ttl=timedelta(minutes=10))  # boto3 renews what ends in 10: the default of 30 is too long

    def store() -> Any:
        from obstore.store import S3Store

        return S3Store(
            bucket,
            region=region,
            aws_endpoint_url_s3=f"{scheme}://{bucket}.{endpoint}" if is_virtual else f"{scheme}://{endpoint}",
            virtual_hosted_style_request=is_virtual,
            skip_signature=options["anonymous"],
            conditional_put="etag",
            disable_bulk_delete=True,
            credential_provider=credentials(),
            **_client(options, scheme),
        )

    return store


def _gcs(options: dict[str, Any], bucket: str, where: str) -> Callable[[], Any]:
    if options["target_service_account"]:
        raise ConfigError(
            f"{where}: files cannot be made only where none is as the service account {options['target_service_account']!r} that "
            "target_service_account= names; give access_token=, or run with its credentials (GOOGLE_APPLICATION_CREDENTIALS)"
        )
    scheme = options["scheme"] if options["endpoint_override"] else "https"
    token = {"token": options["access_token"], "expires_at": options["credential_token_expiration"]}

    def store() -> Any:
        from obstore.store import GCSStore

        return GCSStore(
            bucket,
            base_url=f"{scheme}://{options['endpoint_override'] or 'storage.googleapis.com'}",
            skip_signature=options["anonymous"],
            credential_provider=_Fixed(token) if options["access_token"] else None,
            **_client(options, scheme),
        )

    return store


def _azure(options: dict[str, Any], bucket: str, where: str) -> Callable[[], Any]:
    scheme, authority, account = options["blob_storage_scheme"], options["blob_storage_authority"], options["account_name"]
    names = {"account_key": "account_key", "sas_token": "sas_key", "tenant_id": "tenant_id", "client_id": "client_id"}
    given = {to: options[name] for name, to in {**names, "client_secret": "client_secret"}.items() if options[name]}

    def store() -> Any:
        from obstore.store import AzureStore

        return AzureStore(
            bucket,
            account_name=account,
            endpoint=f"{scheme}://{account}{authority}" if authority.startswith(".") else f"{scheme}://{authority}/{account}",
            use_emulator=False,
            skip_signature=False,
            credential_provider=None if given else _azure_credentials(),
            **given,
            **_client(options, scheme),
        )

    return store


def _azure_credentials() -> Any:
    """Those that pyarrow would find, where ``azure-identity`` is installed; without it obstore looks by itself."""
    try:
        from obstore.auth.azure import AzureCredentialProvider
    except ImportError:
        return None
    return AzureCredentialProvider()


def _client(options: dict[str, Any], scheme: str) -> dict[str, Any]:
    """How requests are sent, for each of the stores."""
    client: dict[str, Any] = {"allow_http": scheme == "http", "timeout": timedelta(seconds=REQUEST_S)}
    proxy = options["proxy_options"] or {}
    if proxy.get("host"):
        user = f"{quote(proxy['username'], '')}:{quote(proxy['password'], '')}@" if proxy["username"] else ""
        client["proxy_url"] = f"{proxy['scheme']}://{user}{proxy['host']}:{proxy['port']}"
    if options["tls_ca_file_path"]:
        with open(options["tls_ca_file_path"], "rb") as file:
            client["root_certificate"] = file.read()
    return {"client_options": client, "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}}


class _Fixed:
    """Credentials that the user gave. Given so, none of the environment take their place, and no repr shows them."""

    def __init__(self, credentials: dict[str, Any]) -> None:
        self._credentials = credentials

    def __call__(self) -> Any:
        return self._credentials


__all__ = ["BUCKETS", "Objects", "fsspec_objects_of", "objects_of", "store_of"]
