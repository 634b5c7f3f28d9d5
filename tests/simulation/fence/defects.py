"""Bugs planted in what ships, those among them with which it once shipped: each must be found by the simulation inside the steps."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from rayad.actors.store import job_store, keeper_files
from rayad.actors.store.job_store import JobStore
from rayad.actors.store.keeper_files import Frame, KeeperFiles
from rayad.integrations.file_output.manifests import FORMAT, Delta, Head, Output, OutputLog, manifest_name
from rayad.integrations.file_output.sink import FileSink
from rayad.progress import SnapshotError
from rayad.snapshots import resume_point
from rayad.snapshots.port import Port
from rayad.snapshots.store import SnapshotStore, StoreAwayError

Planting = Callable[[], Any]


def _replaces(port: Port, name: str, data: bytes) -> bool:
    """What create-if-absent was before: write beside, and move over what is there."""
    port.make_folder(name.rpartition("/")[0])
    port.write(f"{name}.writing", [data])
    port.move(f"{name}.writing", name)
    return True


def one_manifest_is_replaced() -> Any:
    """As ``_SUCCESS`` was: the older list of a coordinator that stood still is written over its successor's."""
    name, always = manifest_name(1), [1]

    def append(log: OutputLog, before: Output | None, head: Head, change: Delta) -> Output:
        made = before if before is not None else Output(0, head, [], "")
        made.links = []
        files = {name: file for name, file in made.files.items() if name not in change.removed} | dict(change.added)
        whole = Delta(files, frozenset())
        told = {"format": FORMAT, "number": 1, "chain": [], **head.as_json(), "removed": []}
        text = json.dumps({**told, "added": [file.as_json() for file in files.values()]}).encode()
        _replaces(log._port, name, text)
        made.advance(1, head, change, [], whole, hashlib.sha256(text).hexdigest())
        return made

    def numbers(log: OutputLog) -> list[int]:
        return always if log._port.file(name) is not None else []

    read_again = patch.object(OutputLog, "is_newest", lambda log, output: False)
    return _all(patch.object(OutputLog, "append", append), patch.object(OutputLog, "numbers", numbers), read_again)


def sweeps_delete_what_any_run_has_made() -> Any:
    """As it was: what is there after the commit and not in one's own list is deleted, a successor's files, too."""
    real = FileSink._tell_spark

    def then_sweep(sink: FileSink, output: Output, change: Delta | None, *, is_settled: bool) -> None:
        real(sink, output, change, is_settled=is_settled)
        for name in sink._present() if not is_settled else ():
            if name not in output.files and sink._is_mine(name):
                sink.port.delete(name)

    return patch.object(FileSink, "_tell_spark", then_sweep)


def both_are_told_published() -> Any:
    """As it was on the local store: one name for the temporary file of all."""

    def create(port: Port, name: str, data: bytes) -> bool:
        return _replaces(port, name, data) if name.endswith("manifest.json") else _CREATE(port, name, data)

    return _patched_create(create)


def who_is_too_late_cleans_up() -> Any:
    """As it was in buckets: a put replaces what is there, and who finds a newer manifest then deletes the one of its number."""
    real = SnapshotStore._refuse_unless_newest

    def refuse(store: SnapshotStore, number: int, after: int, at_least: int) -> None:
        try:
            real(store, number, after, at_least)
        except StoreAwayError:
            raise
        except SnapshotError:
            if at_least > number:
                store.port.delete(f"{number:012d}/manifest.json")
            raise

    return _all(patch.object(SnapshotStore, "_refuse_unless_newest", refuse), both_are_told_published())


def retention_keeps_what_it_knows() -> Any:
    """As it was: all but the newest in the store and the savepoints that this run has made."""

    def retain(store: SnapshotStore, number: int, kept: Collection[int], savepoints: Collection[int] = ()) -> list[int]:
        numbers = store.numbers()
        stay = {*numbers[-1:], *savepoints}
        for one in [one for one in numbers if one not in stay]:
            store.port.delete(f"{one:012d}/manifest.json")
        return []

    return patch.object(SnapshotStore, "retain", retain)


def a_folder_is_made_again() -> Any:
    """As it was: a folder that has gone away comes back empty, and is published into."""

    def make_folder(port: Port, name: str = "", *, parents: bool = True) -> None:
        _MAKE_FOLDER(port, name, parents=True)

    def refuse(store: SnapshotStore, number: int, after: int, at_least: int) -> None:
        numbers = store.numbers()
        if numbers and numbers[-1] >= at_least:
            raise SnapshotError("there is a newer one")

    return _all(_patched_make_folder(make_folder), patch.object(SnapshotStore, "_refuse_unless_newest", refuse))


def a_job_begins_anew_where_its_folder_is_away() -> Any:
    """It is not known that the job has begun."""
    return _patched_begin(has_begun=False, is_first=True)


def folders_are_deleted_as_they_were_listed() -> Any:
    """Found by the simulation: what was not there when somebody looked may be there now."""
    from tests.simulation.fence.steps import SteppingPort

    def delete_empty(port: SteppingPort, name: str) -> None:
        port.delete_folder(name)

    return patch.object(SteppingPort, "delete_empty", delete_empty)


def numbers_are_taken_from_the_list() -> Any:
    """Found by the simulation: a run took the number after the newest one there is, and not the one after its own."""

    def newest(store: JobStore) -> int:
        numbers = store.store.numbers()
        store._newest = max([store._newest, *numbers])
        return store._newest

    return _all(patch.object(JobStore, "newest", property(newest)), _any_may_be_before())


def what_cannot_be_read_now_is_passed_over() -> Any:
    """Found by the simulation: a snapshot that could not be read for a moment was made void, and what it had committed taken back."""

    def unread(store: SnapshotStore, file: Any, error: OSError) -> SnapshotError:
        return SnapshotError(str(error))

    def passed_over(name: str) -> Any:
        real = getattr(SnapshotStore, name)

        def call(store: SnapshotStore, *arguments: Any, **options: Any) -> Any:
            try:
                return real(store, *arguments, **options)
            except StoreAwayError as error:
                raise SnapshotError(str(error)) from error

        return patch.object(SnapshotStore, name, call)

    return _all(patch.object(SnapshotStore, "_unread", unread), passed_over("load"), passed_over("check_listed"))


def a_choice_is_made_from_another_list() -> Any:
    """Found by the simulation: the folder came back between the choice and the claim."""
    real = resume_point.choose

    def choose(store: SnapshotStore, resume: str | int | None, numbers: Sequence[int]) -> Any:
        return real(store, resume, store.numbers())

    return patch.object(resume_point, "choose", choose)


def moved_files_are_missed() -> Any:
    """Two coordinators move one file: who comes too late fails for ever."""

    def moved(sink: FileSink, file: Any) -> None:
        raise AssertionError(f"{file.name} is not in staging any more")

    return patch.object(FileSink, "_check_moved", moved)


def files_are_deleted_before_the_manifest() -> Any:
    """What a manifest removes goes first."""
    real = OutputLog.append

    def append(log: OutputLog, before: Output | None, head: Head, change: Delta) -> Output | None:
        for name in change.removed:
            log._port.delete(name)
        return real(log, before, head, change)

    return patch.object(OutputLog, "append", append)


def a_chain_is_deleted_too_early() -> Any:
    """Of the manifests only the newest stays."""
    real = OutputLog.append

    def append(log: OutputLog, before: Output | None, head: Head, change: Delta) -> Output | None:
        made = real(log, before, head, change)
        for link in made.links[:-1] if made is not None else ():
            log._port.delete(manifest_name(link.number))
        return made

    return patch.object(OutputLog, "append", append)


def void_snapshots_are_committed() -> Any:
    """What a resume from an older snapshot has made void is not refused, nor taken back."""
    return patch.object(FileSink, "roll_back", lambda sink, last, first_new: None)


def frames_are_taken_by_any_process() -> Any:
    """A process that was taken for dead tells senders that frames are taken which the next one does not have."""
    return patch.object(KeeperFiles, "_check_life", lambda files: None)


def others_are_deleted_at_the_beginning() -> Any:
    """As it was: a keeper deleted what others had been sent before anything was checked."""
    real = KeeperFiles.begin

    def begin(files: KeeperFiles) -> None:
        real(files)
        for keeper, folder in files._keepers().items():
            if keeper != files.id:
                files.port.delete_folder(folder)

    return patch.object(KeeperFiles, "begin", begin)


def keepers_claim_in_any_order() -> Any:
    """A keeper claims behind a later one, which has deleted its files, or does so now."""
    real = SnapshotStore.history
    return patch.object(SnapshotStore, "history", lambda store: real(store)._replace(keeper=None))


def frames_appear_in_parts() -> Any:
    """Found by the simulation: a frame that was half written ended every restart of its keeper."""
    return patch.object(Port, "put", lambda port, name, pieces: port.write(name, pieces))


def lives_begin_anywhere() -> Any:
    """A frame of a process that was over when it was written counts beside those of the next one."""

    def load(files: KeeperFiles, name: str) -> Iterator[Frame]:
        with patch.object(keeper_files, "_FROM", re.compile("nothing")):
            yield from list(_LOAD(files, name))

    return patch.object(KeeperFiles, "load", load)


_LOAD = KeeperFiles.load
_CREATE, _MAKE_FOLDER = Port.create, Port.make_folder


def _patched_create(create: Callable[[Port, str, bytes], bool]) -> Any:
    """Port.create inside a step: the one of the simulation calls it by its class."""
    return patch.object(Port, "create", create)


def _patched_begin(**always: bool) -> Any:
    def begin_run(*args: Any, **kwargs: Any) -> Any:
        return resume_point.begin_run(*args, **{**kwargs, **always})

    return patch.object(job_store, "begin_run", begin_run)


def _any_may_be_before() -> Any:
    """A snapshot follows on that of any run, if the number is right."""
    return patch.object(SnapshotStore, "_newest_of_run", lambda store, manifest, after: after)


def _patched_make_folder(make_folder: Callable[..., None]) -> Any:
    return patch.object(Port, "make_folder", make_folder)


@contextmanager
def _all(*planted: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for one in planted:
            stack.enter_context(one)
        yield


DEFECTS: dict[str, Planting] = {
    "one manifest is replaced": one_manifest_is_replaced,
    "sweeps delete what any run has made": sweeps_delete_what_any_run_has_made,
    "both are told published": both_are_told_published,
    "who is too late cleans up": who_is_too_late_cleans_up,
    "retention keeps what it knows": retention_keeps_what_it_knows,
    "a folder is made again": a_folder_is_made_again,
    "a job begins anew where its folder is away": a_job_begins_anew_where_its_folder_is_away,
    "folders are deleted as they were listed": folders_are_deleted_as_they_were_listed,
    "numbers are taken from the list": numbers_are_taken_from_the_list,
    "what cannot be read now is passed over": what_cannot_be_read_now_is_passed_over,
    "a choice is made from another list": a_choice_is_made_from_another_list,
    "moved files are missed": moved_files_are_missed,
    "files are deleted before the manifest": files_are_deleted_before_the_manifest,
    "a chain is deleted too early": a_chain_is_deleted_too_early,
    "void snapshots are committed": void_snapshots_are_committed,
}

DEFECTS_OF_KEEPERS: dict[str, Planting] = {
    "frames are taken by any process": frames_are_taken_by_any_process,
    "others are deleted at the beginning": others_are_deleted_at_the_beginning,
    "keepers claim in any order": keepers_claim_in_any_order,
    "frames appear in parts": frames_appear_in_parts,
    "lives begin anywhere": lives_begin_anywhere,
}

__all__ = ["DEFECTS", "DEFECTS_OF_KEEPERS"]
