"""State that others may have written: what is unpickled is signed for its job and place, or trusted. A marker file shows what was run."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rayad as rd
from rayad.actors.replica.parts.part_files import dumped
from rayad.actors.store.keeper_files import KeeperFiles, KeeperRecord
from rayad.cli import main
from rayad.snapshots.store import SnapshotStore
from tests.saved_state.jobs import begun, flow_of, last_of, saved_after

SECRET = b"0123456789abcdef"
WRONG = "is not what was written there for this job: it was changed, comes from another place or job, or was signed with another secret"


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def count(keyed: rd.KeyedStream) -> Any:
    return keyed.count(name="count")


def saved(folder: Path, secret: bytes | None = None) -> Path:
    """A savepoint of a job "saved" with two keys; gives its folder."""
    return Path(saved_after(begun(folder, count, secret=secret), [["a", "b", "a"]]))


def poison(savepoint: Path, marker: Path) -> None:
    """What somebody does who can write to the folder: all parts are hostile, and the manifest, unsigned, names them."""
    data = b"".join(dumped(Hostile(marker)))
    body = json.loads(json.loads((savepoint / "manifest.json").read_text())["manifest"])
    for part in body["parts"]:
        for file in [*part["files"], part["rest"]]:
            (savepoint.parent / file[0]).write_bytes(data)
            file[1:] = len(data), hashlib.sha256(data).hexdigest()
    text = json.dumps(body)
    (savepoint / "manifest.json").write_text(json.dumps({"manifest": text, "digest": hashlib.sha256(text.encode()).hexdigest()}))


def resumed(folder: Path, *, name: str = "saved", secret: bytes | None = SECRET, signed_for: str | None = None) -> Any:
    config = rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(secret=secret, signed_for=signed_for))
    return flow_of(count, name).submit(config, runtime="local", resume="latest")


def test_unsigned_state_is_listed_and_is_unpickled_only_where_it_is_trusted(tmp_path: Path) -> None:
    path, marker = saved(tmp_path), tmp_path / "marker"
    poison(path, marker)
    assert [one.vertex for one in rd.list_state(path).vertices] == ["count", "words"]
    assert [one.vertex for one in rd.list_state(tmp_path / "saved").vertices] == ["count", "words"]
    listed = CliRunner().invoke(main, ["state", str(path)], env={"COLUMNS": "200"})
    assert (listed.exit_code, "Totals(aggregator=Count" in listed.output) == (0, True), listed.output
    assert CliRunner().invoke(main, ["snapshots", str(path.parent), "--verify"]).exit_code == 0
    refused = (
        f"snapshot 2 in '{path.parent}' is not signed. Its state is pickled: to read it runs the code of whoever wrote these files, or "
        "could write to the folder. If you trust them, say so with trust=True, on the command line --trust. The snapshots of a job with "
        "SnapshotConfig(secret=...) are signed; they are read with secret=..., on the command line --secret-file"
    )
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count")
    assert str(caught.value) == refused
    asked = CliRunner().invoke(main, ["state", str(path), "count"])
    assert (asked.exit_code, asked.output) == (1, f"Error: {refused}\n")
    assert not marker.exists()
    with pytest.raises(rd.SnapshotError, match="has format"):
        rd.read_state(path, "count", trust=True)
    assert marker.exists()  # so the pickles above would have been run


def test_signed_state_is_read_with_its_secret_and_without_trust(tmp_path: Path) -> None:
    path, key = saved(tmp_path, SECRET), tmp_path / "key"
    key.write_bytes(SECRET)
    assert sorted(rd.read_state(path, "count", secret=SECRET).column("key").to_pylist()) == ["a", "b"]
    shown = CliRunner().invoke(main, ["state", str(path), "count", "--secret-file", str(key), "--json"])
    assert (shown.exit_code, len(shown.output.splitlines())) == (0, 2), shown.output
    assert rd.list_state(path, secret=SECRET).job == "saved"
    manifest = f"000000000002/manifest.json in '{path.parent}'"
    signed = (
        "is signed: give the secret with which that was done, by SnapshotConfig(secret=...), in rd.read_state and rd.list_state by "
        "secret=, on the command line by --secret-file"
    )
    for secret, why in ((None, signed), (b"another secret, as long", WRONG)):
        for read in (partial(rd.read_state, path, "count", trust=True), partial(rd.list_state, path)):
            with pytest.raises(rd.SnapshotError) as caught:
                read(secret=secret)
            assert str(caught.value) == f"{manifest} {why}"
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count", secret=b"")
    assert str(caught.value) == "the secret of snapshots is of type bytes and 0 bytes long: it must be bytes, at least 16 of them"


def test_nothing_unsigned_is_used_where_there_is_a_secret(tmp_path: Path) -> None:
    path, marker = saved(tmp_path, SECRET), tmp_path / "marker"
    poison(path, marker)
    why = f"000000000002/manifest.json in '{path.parent}' is not signed, and a secret was given: what anybody may have written is not used"
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count", secret=SECRET, trust=True)
    assert str(caught.value) == why
    job = resumed(tmp_path)  # from the beginning of the run before, which is signed
    job.input("words").send(["a"])
    assert last_of(job) == {"a": 1}
    assert not marker.exists()


def test_a_part_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    path, marker = saved(tmp_path, SECRET), tmp_path / "marker"
    manifest = SnapshotStore(str(path.parent), secret=SECRET).load(2)
    counts = next(part for part in manifest.parts if part.vertex == "count")
    assert counts.rest is not None
    state, rest = path.parent / counts.files[0].path, path.parent / counts.rest.path
    for data, why in (
        (rest.read_bytes(), f"has {rest.stat().st_size} bytes, its manifest says {counts.files[0].size}"),
        (
            b"".join(dumped(Hostile(marker))).ljust(counts.files[0].size, b" "),
            "is not what was written: its digest differs from the manifest's",
        ),
    ):
        state.write_bytes(data)
        with pytest.raises(rd.SnapshotError) as caught:
            rd.read_state(path, "count", secret=SECRET)
        assert str(caught.value) == f"part {counts.files[0].path} in '{path.parent}' {why}"
    assert not marker.exists()


def test_a_signed_manifest_under_another_number_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, SECRET)
    shutil.copytree(path, path.parent / f"{7:012d}")
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path.parent / f"{7:012d}", "count", secret=SECRET)
    assert str(caught.value) == f"000000000007/manifest.json in '{path.parent}' {WRONG}"


def test_a_manifest_whose_job_is_no_text_is_refused_as_others(tmp_path: Path) -> None:
    path = saved(tmp_path, SECRET)
    (path / "manifest.json").write_text(json.dumps({"manifest": '{"job": "\\ud800"}', "signature": "00" * 32, "rule": 2}))
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count", secret=SECRET)
    assert str(caught.value) == f"000000000002/manifest.json in '{path.parent}' {WRONG}"


def test_a_store_of_another_job_is_resumed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    saved(tmp_path, SECRET)
    shutil.copytree(tmp_path / "saved", tmp_path / "other")
    with pytest.raises(rd.SnapshotError) as caught:
        resumed(tmp_path, name="other")
    why = (
        "is signed for job 'saved', and read for 'other': the store of one job lies in the place of another's. If it was copied, or the "
        "job renamed, on purpose: SnapshotConfig(secret=..., signed_for='saved')"
    )
    folder = tmp_path / "other" / "snapshots"
    told = [f"snapshot {number} is not used: {number:012d}/manifest.json in '{folder}' {why}" for number in (2, 1)]
    assert str(caught.value) == f"no snapshot in '{folder}' is whole: {'; '.join(told)}"
    resumed(tmp_path, name="other", signed_for="saved").cancel()
    again = resumed(tmp_path, name="other")  # from what the run before has signed for this job
    again.input("words").send(["a"])
    assert last_of(again) == {"a": 3, "b": 1}
    assert rd.list_state(tmp_path / "other", secret=SECRET).job == "other"


def test_a_snapshot_of_another_store_of_the_job_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "one", SECRET)
    path = saved(tmp_path / "two", SECRET)
    resumed(tmp_path / "two").cancel()
    theirs, folder = path.parent / f"{3:012d}", tmp_path / "one" / "saved" / "snapshots"
    shutil.copytree(theirs, folder / theirs.name)
    shutil.copytree(path, folder / path.name, dirs_exist_ok=True)  # the parts that it names
    stores = [SnapshotStore(str(folder), secret=SECRET).load(number).store for number in (1, 3)]
    why = (
        f"'{folder}' has snapshots of several stores, each signed: [1] of store {stores[0]!r}; [2, 3] of store {stores[1]!r}. Somebody has "
        "put files of another store here; move those away that are not of this one"
    )
    for use in (partial(resumed, tmp_path / "one"), partial(rd.read_state, tmp_path / "one" / "saved", "count", secret=SECRET)):
        with pytest.raises(rd.SnapshotError) as caught:
            use()
        assert str(caught.value) == why


def test_what_an_earlier_version_has_signed_is_not_used(tmp_path: Path) -> None:
    path = saved(tmp_path, SECRET)
    body = json.loads((path / "manifest.json").read_text())["manifest"]
    old = hmac.new(SECRET, body.encode(), hashlib.sha256).hexdigest()
    (path / "manifest.json").write_text(json.dumps({"manifest": body, "digest": old}))
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count", secret=SECRET)
    assert str(caught.value) == (
        f"000000000002/manifest.json in '{path.parent}' was signed by an earlier version of Rayad, whose signatures say neither of which "
        "job nor of what they are; it is not used any more. Read the state with that version (rd.read_state), and begin with it here "
        "(rd.write_state)"
    )
    (path / "manifest.json").write_text(json.dumps({"manifest": body, "signature": old, "rule": 3}))
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(path, "count", secret=SECRET)
    assert str(caught.value) == (
        f"000000000002/manifest.json in '{path.parent}' is signed by rule 3, and this version of Rayad knows rule 2: use the version that "
        "wrote it"
    )


# -- keepers ---------------------------------------------------------------------------------------


def keeper(folder: Path, job: str = "job") -> KeeperFiles:
    return KeeperFiles(job, rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(secret=SECRET)), "token")


def kept(folder: Path, job: str = "job") -> Path:
    """A keeper that has begun, and was asked to cancel its job; gives its folder."""
    files = keeper(folder, job)
    files.begin()
    files.write_record(KeeperRecord((1.0,), is_cancelled=True))
    files.write_outcome(b"complete")
    return folder / job / "keeper-000000000001-token"


def test_the_record_of_one_job_cancels_no_other(tmp_path: Path) -> None:
    theirs, ours = kept(tmp_path, "theirs"), kept(tmp_path, "ours")
    assert keeper(tmp_path, "ours").record().is_cancelled
    for name in ("record-000000000001", "outcome-000000000001"):
        shutil.copy(theirs / name, ours / name)
    for read, name in ((KeeperFiles.record, "record"), (KeeperFiles.outcome, "outcome")):
        with pytest.raises(rd.SnapshotError) as caught:
            read(keeper(tmp_path, "ours"))
        assert str(caught.value) == f"'{ours}/{name}-000000000001', of job 'ours', {WRONG}"


def test_nothing_that_was_signed_as_another_thing_passes_as_an_outcome(tmp_path: Path) -> None:
    path, marker = saved(tmp_path, SECRET), tmp_path / "marker"
    folder = kept(tmp_path, "saved")
    outcome, data = folder / "outcome-000000000001", b"1\n" + b"".join(dumped(Hostile(marker)))
    manifest = json.loads((path / "manifest.json").read_text())
    signed = bytes.fromhex(manifest["signature"])
    given = {
        "a record": (folder / "record-000000000001").read_bytes(),
        "a manifest": b"RAYADSG2" + signed + manifest["manifest"].encode(),
        "a part": b"RAYADSG2" + signed + data,
    }
    for text in given.values():
        outcome.write_bytes(text)
        with pytest.raises(rd.SnapshotError) as caught:
            keeper(tmp_path, "saved").outcome()
        assert str(caught.value) == f"'{outcome}', of job 'saved', {WRONG}"
    outcome.write_bytes(hashlib.sha256(data).digest() + data)
    with pytest.raises(rd.SnapshotError) as caught:
        keeper(tmp_path, "saved").outcome()
    assert str(caught.value) == (
        f"'{outcome}', of job 'saved', is not signed, and a secret was given: what anybody may have written is not used"
    )
    outcome.write_bytes(hmac.new(SECRET, data, hashlib.sha256).digest() + data)  # as a part was signed before
    with pytest.raises(rd.SnapshotError, match="was signed by an earlier version of Rayad"):
        keeper(tmp_path, "saved").outcome()
    assert not marker.exists()
