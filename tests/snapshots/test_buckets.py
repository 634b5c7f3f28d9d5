"""Pyarrow's file systems of S3, GCS and Azure as stores of obstore: endpoints, credentials, and the condition of each."""

from __future__ import annotations

import base64
import datetime as dt
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from rayad.progress import ConfigError
from rayad.snapshots.buckets import objects_of, store_of
from rayad.snapshots.create import check_can_create, create_if_absent

S3 = {"access_key": "key", "secret_key": "hunter2", "region": "us-east-1"}


@pytest.fixture(autouse=True)
def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks a machine of AWS for credentials."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def opened(filesystem: fs.FileSystem) -> Any:
    return store_of(filesystem, "bucket", "here")()


@pytest.mark.parametrize(
    ("options", "endpoint", "is_virtual"),
    [
        ({}, "https://s3.eu-west-1.amazonaws.com", False),
        ({"region": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn", False),
        ({"endpoint_override": "minio:9000"}, "https://minio:9000", False),
        ({"endpoint_override": "minio:9000", "scheme": "http"}, "http://minio:9000", False),
        ({"endpoint_override": "http://minio:9000"}, "http://minio:9000", False),
        ({"endpoint_override": "minio:9000", "force_virtual_addressing": True}, "https://bucket.minio:9000", True),
        ({"force_virtual_addressing": True}, "https://bucket.s3.eu-west-1.amazonaws.com", True),
    ],
)
def test_endpoints_of_s3(options: dict[str, Any], endpoint: str, is_virtual: bool) -> None:
    store = opened(fs.S3FileSystem(**{**S3, "region": "eu-west-1"} | options))
    region = options.get("region", "eu-west-1")
    assert store.config["endpoint_url_s3"] == endpoint
    assert (store.config["region"], store.config["virtual_hosted_style_request"]) == (region, str(is_virtual).lower())
    assert store.client_options["allow_http"] == str(endpoint.startswith("http:")).lower()
    assert "hunter2" not in repr(store) + repr(store.config)


def test_credentials_of_s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = opened(fs.S3FileSystem(**S3, session_token="token")).credential_provider()
    assert given == {"access_key_id": "key", "secret_access_key": "hunter2", "token": "token", "expires_at": None}
    assert opened(fs.S3FileSystem(**S3)).credential_provider()["token"] is None
    anonymous = opened(fs.S3FileSystem(anonymous=True, region="us-east-1"))
    assert (anonymous.credential_provider, anonymous.config["skip_signature"]) == (None, "true")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = of a file\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert opened(fs.S3FileSystem(region="us-east-1")).credential_provider()["access_key_id"] == "of a file"
    by_role = fs.S3FileSystem(role_arn="arn:aws:iam::1:role/r", external_id="x", load_frequency=60, region="eu-west-1")
    role = opened(by_role).credential_provider
    assert role.kwargs == {"RoleArn": "arn:aws:iam::1:role/r", "RoleSessionName": "rayad", "ExternalId": "x", "DurationSeconds": 900}
    assert role.session.region_name == "eu-west-1"

    monkeypatch.setattr("rayad.snapshots.buckets.find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        check_can_create(by_role, "here")
    assert str(refused.value) == "here: the role 'arn:aws:iam::1:role/r' is assumed by boto3, which is not installed: pip install boto3"
    assert opened(fs.S3FileSystem(region="us-east-1")).credential_provider is None, "obstore looks itself"


def test_proxies_and_certificates(tmp_path: Path) -> None:
    store = opened(fs.S3FileSystem(**S3, proxy_options="http://me:p%40ss@proxy:3128"))
    assert store.client_options["proxy_url"] == "http://me:p%40ss@proxy:3128"
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"^bucket: this bucket cannot be opened to make files only where none is: \w+: .*certificate"):
        create_if_absent(fs.S3FileSystem(**S3, tls_ca_file_path=str(tmp_path / "ca.pem")), "bucket/a", b"")


def test_credentials_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = fs.S3FileSystem(region="us-east-1")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError) as refused:
        create_if_absent(filesystem, "bucket/a", b"")
    assert str(refused.value) == (
        "bucket: this bucket cannot be opened to make files only where none is: ProfileNotFound: The config profile (nobody) could not be "
        "found"
    )


class Keeping(http.server.BaseHTTPRequestHandler):
    """A server that keeps objects, and heeds the conditions of Google and Azure."""

    kept: dict[str, bytes]
    seen: list[tuple[str, str]]

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, self.headers["Authorization"]))
        is_conditional = self.headers["x-goog-if-generation-match"] == "0" or self.headers["If-None-Match"] == "*"
        is_refused = is_conditional and self.path in self.kept
        if not is_refused:
            self.kept[self.path] = data
        self.answer(412 if is_refused else 201, b"")

    def do_GET(self) -> None:
        self.answer(200 if self.path in self.kept else 404, self.kept.get(self.path, b""))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"1"', "Last-Modified": "Tue, 24 Nov 2026 12:00:00 GMT", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def keeping() -> Iterator[tuple[str, type[Keeping]]]:
    kind = type("Kept", (Keeping,), {"kept": {}, "seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", kind
        server.shutdown()
        thread.join(timeout=60)


def test_google_and_azure_are_asked_with_the_condition(keeping: tuple[str, type[Keeping]]) -> None:
    endpoint, server = keeping
    token = {"access_token": "token", "credential_token_expiration": dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)}
    key = base64.b64encode(b"hunter2").decode()
    for filesystem in (
        fs.GcsFileSystem(**token, endpoint_override=endpoint, scheme="http"),
        fs.AzureFileSystem("account", account_key=key, blob_storage_authority=endpoint, blob_storage_scheme="http"),
    ):
        check_can_create(filesystem, "here")
        made = objects_of(filesystem, "bucket/a")
        made.put("bucket/a", b"1")
        with pytest.raises(FileExistsError):
            made.put("bucket/a", b"2")
        assert (made.holds("bucket/a", b"1"), made.holds("bucket/a", b"2"), made.holds("bucket/b", b"1")) == (True, False, None)
    assert server.kept == {"/bucket/a": b"1", "/account/bucket/a": b"1"}
    assert [path for path, _ in server.seen] == ["/bucket/a"] * 2 + ["/account/bucket/a"] * 2
    assert {said.split(":")[0] for _, said in server.seen} == {"Bearer token", "SharedKey account"}


def test_google_by_default_and_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    store = opened(fs.GcsFileSystem(anonymous=True))
    assert (store.config["base_url"], store.config["skip_signature"]) == ("https://storage.googleapis.com", "true")
    with pytest.raises(ConfigError) as refused:
        check_can_create(fs.GcsFileSystem(target_service_account="robot@x"), "here")
    assert str(refused.value) == (
        "here: files cannot be made only where none is as the service account 'robot@x' that target_service_account= names; give "
        "access_token=, or run with its credentials (GOOGLE_APPLICATION_CREDENTIALS)"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"account_key": "a2V5"}, {"account_key": "a2V5"}),
        ({"sas_token": "?sv=1&sig=x"}, {"sas_key": "?sv=1&sig=x"}),
        ({"tenant_id": "t", "client_id": "c", "client_secret": "s"}, {"tenant_id": "t", "client_id": "c", "client_secret": "s"}),
        ({"client_id": "c"}, {"client_id": "c"}),
    ],
)
def test_credentials_of_azure(options: dict[str, str], expected: dict[str, str]) -> None:
    config = opened(fs.AzureFileSystem("account", **options)).config
    common = {"container_name": "bucket", "account_name": "account", "endpoint": "https://account.blob.core.windows.net"}
    assert config == {**common, "use_emulator": "false", "skip_signature": "false", **expected}
