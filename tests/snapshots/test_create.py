"""Create-if-absent: one of those that try is told that it has made the file, whatever happens to processes, answers and servers."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import flask
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from moto.s3.exceptions import PreconditionFailed
from moto.s3.responses import S3Response
from pyarrow import fs
from werkzeug.datastructures import Headers

from rayad.progress import ConfigError
from rayad.snapshots import create as creating
from rayad.snapshots.buckets import objects_of
from rayad.snapshots.create import UNFINISHED, check_can_create, create_if_absent
from tests.integrations.object_store import ObjectStore, serving, with_bucket

LOCAL = fs.LocalFileSystem()
S3 = {"access_key": "key", "secret_key": "hunter2", "region": "us-east-1"}


def test_a_file_is_made_once(tmp_path: Path) -> None:
    path = str(tmp_path / "manifest.json")
    made = [create_if_absent(LOCAL, path, data) for data in (b"first", b"other", b"first", b"first and more", b"")]
    assert made == [True, False, True, False, False]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"manifest.json": b"first"}


def test_the_file_may_be_read_by_whom_the_folder_lets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert create_if_absent(LOCAL, str(tmp_path / "made"), b"")
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_has_gone_away_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_if_absent(LOCAL, str(tmp_path / "gone" / "a"), b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folders", [[""], ["", "inner"], ["inner", "more/folders"]])
def test_file_systems_in_folders(tmp_path: Path, folders: list[str]) -> None:
    filesystem = fs.SubTreeFileSystem(str(tmp_path), LOCAL)
    for folder in folders:
        filesystem = fs.SubTreeFileSystem(folder, filesystem)
    filesystem.create_dir("a", recursive=True)
    check_can_create(filesystem, "here")
    assert [create_if_absent(filesystem, "a/b", data) for data in (b"1", b"2")] == [True, False]
    with filesystem.open_input_stream("a/b") as stream:
        assert stream.read() == b"1"


def test_a_local_file_system_of_fsspec(tmp_path: Path) -> None:
    filesystem = fs.PyFileSystem(fs.FSSpecHandler(LocalFileSystem()))
    check_can_create(filesystem, "here")
    assert [create_if_absent(filesystem, str(tmp_path / "a"), data) for data in (b"1", b"2")] == [True, False]


def test_one_of_two_hundred_threads_makes_it(tmp_path: Path) -> None:
    assert race(lambda data: create_if_absent(LOCAL, str(tmp_path / "a"), data), threads=200) == (tmp_path / "a").read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def race(create: Callable[[bytes], bool], threads: int) -> bytes:
    """Let threads create, each its own content, at one moment; exactly one has made it: its content."""
    contents = [f"{number} ".encode() * 20_000 for number in range(threads)]
    start = threading.Barrier(threads)

    def run(data: bytes) -> bool:
        start.wait(timeout=60)
        return create(data)

    with ThreadPoolExecutor(threads) as pool:
        made = [data for data, is_made in zip(contents, pool.map(run, contents), strict=True) if is_made]
    assert len(made) == 1
    return made[0]


RACER = """
import select, sys, time
from pyarrow import fs
from rayad.snapshots.create import create_if_absent
folder, me = sys.argv[1:]
print("ready", flush=True)
begins_s = float(sys.stdin.readline())
made = []
for n in range(100):
    select.select([], [], [], max(0.0, begins_s + n / 500 - time.monotonic()))  # all begin each file at the same moment
    if create_if_absent(fs.LocalFileSystem(), f"{folder}/{n}", f"{me} ".encode() * 20_000):
        made.append(n)
print(*made, flush=True)
"""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_of_four_processes_makes_each_file(tmp_path: Path) -> None:
    with running(RACER, str(tmp_path), "0") as a, running(RACER, str(tmp_path), "1") as b, running(RACER, str(tmp_path), "2") as c:
        with running(RACER, str(tmp_path), "3") as d:
            racers = (a, b, c, d)
            assert [said(racer) for racer in racers] == ["ready"] * 4
            begins_s = time.monotonic() + 0.05
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{begins_s}\n")
                racer.stdin.flush()
            made = [said(racer).split() for racer in racers]
    assert Counter(name for names in made for name in names) == Counter({str(number): 1 for number in range(100)})
    assert sum(bool(names) for names in made) > 1, "nobody raced"
    for me, names in enumerate(made):
        assert {(tmp_path / name).read_bytes() for name in names} <= {f"{me} ".encode() * 20_000}
    assert len(list(tmp_path.iterdir())) == 100


KILLED = """
import os, sys
from pyarrow import fs
from rayad.snapshots.create import create_if_absent
path, inside = sys.argv[1:]
def stop(*arguments):
    print("inside", flush=True)
    sys.stdin.readline()
setattr(os, inside, stop)
create_if_absent(fs.LocalFileSystem(), path, b"whole")
"""


@pytest.mark.parametrize(("inside", "is_there"), [("fsync", False), ("link", False), ("unlink", True)])
def test_a_killed_process_leaves_the_whole_file_or_none(tmp_path: Path, inside: str, is_there: bool) -> None:
    path = tmp_path / "a.json"
    with running(KILLED, str(path), inside) as process:
        assert said(process) == "inside"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    left = [each.name for each in tmp_path.iterdir() if each != path]
    assert len(left) == 1
    assert UNFINISHED.fullmatch(left[0])
    assert [each.read_bytes() for each in tmp_path.iterdir() if each == path] == [b"whole"] * is_there
    assert create_if_absent(LOCAL, str(path), b"other") is not is_there


def link_and(raises: OSError) -> Callable[[str, str], None]:
    real = os.link

    def link(own: str, path: str) -> None:
        real(own, path)
        raise raises

    return link


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.ETIMEDOUT])
def test_a_link_whose_answer_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "link", link_and(OSError(number, os.strerror(number))))
    assert create_if_absent(LOCAL, str(tmp_path / "a"), b"1")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"a": b"1"}


def raising(number: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def test_an_error_that_says_nothing_is_raised_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", raising(errno.EIO))
        with pytest.raises(OSError, match=r"\[Errno 5\] Input/output error"):
            create_if_absent(LOCAL, str(tmp_path / "a"), b"1")
    assert list(tmp_path.iterdir()) == []
    assert create_if_absent(LOCAL, str(tmp_path / "a"), b"2")


def test_a_folder_that_is_not_synced_is_told_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, list[int]()

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        if len(synced) == 2:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        create_if_absent(LOCAL, str(tmp_path / "a"), b"1")
    assert create_if_absent(LOCAL, str(tmp_path / "a"), b"1")
    assert synced[1] == synced[3] == tmp_path.stat().st_ino


def test_a_leftover_that_cannot_be_removed_does_not_undo_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", raising(errno.EIO))
        assert create_if_absent(LOCAL, str(tmp_path / "a"), b"1")
    assert len([each for each in tmp_path.iterdir() if UNFINISHED.fullmatch(each.name)]) == 1


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_file_system_without_links_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "link", raising(number))
    kind, point = subprocess.check_output(["df", "--output=fstype,target", str(tmp_path)], text=True, timeout=60).splitlines()[1].split()
    with pytest.raises(ConfigError) as refused:
        create_if_absent(LOCAL, f"{tmp_path}/a", b"1")
    assert str(refused.value) == (
        f"{tmp_path}/a: its file system ({kind} at {point}) has no hard links ({os.strerror(number)}), by which files are made only where "
        "none is; so two coordinators could overwrite each other there. Use a folder on another file system (ext4, XFS, NFS), or an object "
        "store"
    )
    assert list(tmp_path.iterdir()) == []


# -- refused, and of users --------------------------------------------------------------------------------


class Handler(fs.FSSpecHandler):  # type: ignore[misc]
    """A user's own file system."""

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem())
        self.made: dict[str, bytes] = {}

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self.made.setdefault(path, data) == data


def test_a_file_system_of_a_user_that_can() -> None:
    handler = Handler()
    filesystem = fs.SubTreeFileSystem("jobs", fs.PyFileSystem(handler))
    check_can_create(filesystem, "here")
    assert [create_if_absent(filesystem, "a", data) for data in (b"1", b"2")] == [True, False]
    assert handler.made == {"jobs/a": b"1"}


NOT = "is not known to make a file, in one step, only where none is"


@pytest.mark.parametrize(
    ("filesystem", "why"),
    [
        (fs._MockFileSystem(), f"mock {NOT}"),
        (
            SimpleNamespace(type_name="hdfs"),  # pyarrow makes one only where Hadoop is installed
            "HDFS by pyarrow cannot make a file only where none is: its writes and its renaming replace what is there",
        ),
        (fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem())), f"fsspec.implementations.memory.MemoryFileSystem, of fsspec, {NOT}"),
        (
            fs.PyFileSystem(fs.FSSpecHandler(DirFileSystem("/", LocalFileSystem()))),
            f"fsspec.implementations.dirfs.DirFileSystem, of fsspec, {NOT}",
        ),
    ],
)
def test_others_are_refused_by_name(filesystem: fs.FileSystem, why: str) -> None:
    in_folder = fs.SubTreeFileSystem("a", filesystem) if isinstance(filesystem, fs.FileSystem) else filesystem
    for call in (lambda: check_can_create(in_folder, "here"), lambda: create_if_absent(filesystem, "here", b"")):
        with pytest.raises(ConfigError) as refused:
            call()
        assert str(refused.value) == (
            f"here: {why}; so two coordinators could overwrite each other there. Use a local or NFS folder, S3, GCS or Azure (of pyarrow; "
            "or s3fs, gcsfs), or give the handler of a pyarrow.fs.PyFileSystem a method create_if_absent(path, data) -> bool"
        )


# -- buckets ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with serving() as store:
        yield store


@pytest.fixture
def objects(server: ObjectStore) -> ObjectStore:
    return with_bucket(server.endpoint)


def filesystem_of(objects: ObjectStore, **more: Any) -> fs.S3FileSystem:
    return fs.S3FileSystem(**{**S3, "endpoint_override": objects.endpoint, "scheme": "http"} | more)


@pytest.mark.parametrize("is_by_uri", [True, False])
def test_an_object_is_made_once(objects: ObjectStore, is_by_uri: bool) -> None:
    filesystem = fs.FileSystem.from_uri(objects.uri("jobs"))[0] if is_by_uri else filesystem_of(objects)
    check_can_create(filesystem, "here")
    for name in ("a", "folder/b c%41#?ü=.json"):
        path = f"{objects.bucket}/jobs/{name}"
        assert [create_if_absent(filesystem, path, data) for data in (b"1", b"2", b"1", b"")] == [True, False, True, False]
        assert create_if_absent(fs.SubTreeFileSystem(f"{objects.bucket}/jobs", filesystem), name, b"1")
        with filesystem.open_input_stream(path, compression=None) as stream:
            assert stream.read() == b"1"
    assert objects.paths() == ["jobs/a", "jobs/folder/b c%41#?ü=.json"], "what was tried out is removed"


def test_one_of_twenty_threads_makes_an_object(objects: ObjectStore) -> None:
    filesystem = filesystem_of(objects)
    made = race(lambda data: create_if_absent(filesystem, f"{objects.bucket}/a", data), threads=20)
    with filesystem.open_input_stream(f"{objects.bucket}/a") as stream:
        assert stream.read() == made


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Callable[[Any], Any]) -> list[str]:
    """Let the server take the next puts so, one answer each; later ones are as ever. Gives the keys that are put, as they come."""
    real, left, keys = S3Response.put_object, list(answers), list[str]()

    def put(self: S3Response) -> Any:
        keys.append(self.parse_key_name())
        return left.pop(0)(lambda: real(self)) if left else real(self)

    monkeypatch.setattr(S3Response, "put_object", put)
    return keys


def stored_and_unavailable(store: Callable[[], Any]) -> Any:
    store()
    return 503, {}, "slow down"


def stored_and_cut(store: Callable[[], Any]) -> Any:
    answer = store()
    cut()
    return answer


def cut_before_it_is_stored(_: Callable[[], Any]) -> Any:
    cut()
    return 500, {}, ""


def conflict(_: Callable[[], Any]) -> Any:
    return 409, {}, "<Error><Code>ConditionalRequestConflict</Code></Error>"


def cut() -> None:
    flask.request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [stored_and_unavailable, stored_and_cut, cut_before_it_is_stored, conflict])
def test_a_put_whose_answer_was_lost(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Any]) -> None:
    filesystem = filesystem_of(objects)
    assert create_if_absent(filesystem, f"{objects.bucket}/tried/out", b"")
    keys = answering(monkeypatch, answer)
    assert create_if_absent(filesystem, f"{objects.bucket}/a", b"1")
    assert not create_if_absent(filesystem, f"{objects.bucket}/a", b"2")
    assert keys == ["a"] * 3
    assert objects.paths() == ["a", "tried/out"]


def test_a_put_that_comes_late_does_no_harm(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.snapshots.buckets.REQUEST_S", 0.3)
    filesystem = filesystem_of(objects)
    assert create_if_absent(filesystem, f"{objects.bucket}/tried/out", b"")
    hung, late = threading.Event(), list[Any]()

    def hang(store: Callable[[], Any]) -> Any:
        hung.wait(timeout=60)
        try:
            late.append(store())
        except PreconditionFailed as refused:
            late.append(refused)
        done.set()
        return 200, {}, ""

    done = threading.Event()
    answering(monkeypatch, hang)
    assert create_if_absent(filesystem, f"{objects.bucket}/a", b"1")
    hung.set()
    assert done.wait(timeout=60)
    assert [type(answer) for answer in late] == [PreconditionFailed]


def test_a_put_that_never_gets_an_answer_is_told(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = filesystem_of(objects)
    assert create_if_absent(filesystem, f"{objects.bucket}/tried/out", b"")
    answering(monkeypatch, *[conflict] * 2)
    with pytest.raises(OSError, match=f"^{objects.bucket}/a: not created, or not known to be: .*a already exists.*409 Conflict"):
        create_if_absent(filesystem, f"{objects.bucket}/a", b"1")
    assert create_if_absent(filesystem, f"{objects.bucket}/a", b"2")


def test_a_server_that_takes_no_notice_of_the_condition_is_refused(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = S3Response.put_object

    def put(self: S3Response) -> Any:
        self.headers = Headers(self.headers)
        self.headers.remove("If-None-Match")
        return real(self)

    monkeypatch.setattr(S3Response, "put_object", put)
    for _ in range(2):
        with pytest.raises(ConfigError) as refused:
            create_if_absent(filesystem_of(objects), f"{objects.bucket}/a", b"1")
        assert str(refused.value) == (
            f"{objects.bucket}/a: the server takes no notice of If-None-Match, it has put an object over another; so two coordinators "
            "could overwrite each other there. Use one that knows conditional puts: AWS; MinIO, Ceph and others in newer versions"
        )
    assert objects.paths() == []


def test_the_environment_does_not_lead_elsewhere(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstore prefers an endpoint of the environment, which pyarrow does not know, to the one that it is given."""
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name, value in {"AWS_CONDITIONAL_PUT": "disabled", "AWS_SKIP_SIGNATURE": "true", "AWS_SESSION_TOKEN": "of another"}.items():
        monkeypatch.setenv(name, value)
    assert create_if_absent(filesystem_of(objects), f"{objects.bucket}/a", b"1")
    assert objects.paths() == ["a"]


def test_credentials_of_the_environment(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    filesystem = filesystem_of(objects, access_key=None, secret_key=None)
    assert [create_if_absent(filesystem, f"{objects.bucket}/a", data) for data in (b"1", b"2")] == [True, False]


@pytest.mark.parametrize("package", ["s3fs", "gcsfs"])
def test_file_systems_of_fsspec_that_have_the_condition(package: str) -> None:
    class InMemory(MemoryFileSystem):  # type: ignore[misc]
        __module__ = f"{package}.core"
        store: ClassVar[dict[str, Any]] = {}
        heeds = True

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            super().pipe_file(path, value, mode=mode if self.heeds else "overwrite")

    filesystem = fs.PyFileSystem(fs.FSSpecHandler(InMemory(skip_instance_cache=True)))
    check_can_create(filesystem, "here")
    assert [create_if_absent(filesystem, "bucket/a", data) for data in (b"1", b"2", b"1")] == [True, False, True]
    assert InMemory().find("bucket") == ["/bucket/a"]
    InMemory.heeds = False  # versions of before there was the mode
    with pytest.raises(ConfigError, match=r"^other/a: the server takes no notice of If-None-Match"):
        create_if_absent(filesystem, "other/a", b"1")


def test_what_pyarrow_does_not_see_is_refused(objects: ObjectStore, tmp_path: Path) -> None:
    bucket, elsewhere = objects_of(filesystem_of(objects), objects.bucket), fs.SubTreeFileSystem(str(tmp_path), LOCAL)
    with pytest.raises(ConfigError) as refused:
        creating._by_put(bucket, elsewhere, f"{objects.bucket}/a", b"1")
    assert str(refused.value) == (
        f"{objects.bucket}/a: pyarrow does not see what obstore, which makes files only where none is, has put; so two coordinators could "
        "overwrite each other there. The two differ in endpoint or region: give these to the file system or in the URI, not by the "
        "environment"
    )
    assert objects.paths() == []


def test_errors_show_no_secret(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, *[lambda _: (403, {}, "<Error><Code>SignatureDoesNotMatch</Code>hunter2 tok/en tok%2Fen</Error>")] * 1)
    with pytest.raises(PermissionError) as refused:
        create_if_absent(filesystem_of(objects, session_token="tok/en"), f"{objects.bucket}/a", b"1")
    assert "SignatureDoesNotMatch</Code>*** *** ***</Error>" in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_no_bucket_and_no_server_are_errors_of_the_store(objects: ObjectStore) -> None:
    with pytest.raises(OSError, match="NoSuchBucket"):
        create_if_absent(filesystem_of(objects), "no-such-bucket/a", b"1")
    with pytest.raises(OSError, match=r"^bucket/\..*: not created, or not known to be: .*127\.0\.0\.1:9/.*error sending request"):
        create_if_absent(filesystem_of(objects, endpoint_override="127.0.0.1:9"), "bucket/a", b"1")
