"""Which snapshot a run resumes from, and whether the dataflow still is the one of which it was taken."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rayad.progress import SnapshotError
from rayad.snapshots.identity import fits, spell
from rayad.snapshots.manifest import KeeperId, Manifest
from rayad.snapshots.store import SnapshotStore, StoreAwayError, Superseded

CLAIMS_MAX = 10
"""How often a claim is tried against another run that publishes at the same time."""
NEVER = "never"
"""As ``resume``: begin afresh although there are snapshots."""
NAMED_CHANGES_MAX = 5
"""So many changed entries of one kind are named; the others are counted."""
Graph = dict[str, Any]
"""``{"vertices": {name: {...}}, "edges": {name: {...}}, "sinks": {key: {...}}, "writers": {key: [name]}, "movable": [name]}``: plain data,
made by ``actors.graph_shape``; replicas of movable vertices may have changed."""


def misfits(manifest: Manifest, graph: Graph, key_groups: int) -> list[str]:
    """Why a graph cannot resume from a snapshot, in words; empty when it can.

    >>> old = Manifest(1, "wc", {"vertices": {"count": {"kind": "vertex"}}, "edges": {}, "sinks": {}}, 256, ())
    >>> misfits(old, {"vertices": {"counts": {"kind": "vertex"}}, "edges": {}, "sinks": {}}, 256)
    ["vertex 'count' was renamed to 'counts', or is another one: give it its old name with name='count'"]
    """
    out = []
    if manifest.key_groups != key_groups:
        out.append(
            f"it has {manifest.key_groups} key-groups, the job {key_groups}: keys would belong to other replicas; "
            f"use RunConfig(key_groups={manifest.key_groups})"
        )
    movable, before = graph.get("movable", ()), manifest.graph.get("vertices", {})
    gone = [name for name in before if name not in graph["vertices"]]
    vertices_differ = _compare(_fixed(before, [*movable, *gone]), _fixed(graph["vertices"], movable), "vertex", out)
    if not vertices_differ:  # edges are named after vertices
        _compare(_routed(manifest.graph.get("edges", {})), _routed(graph["edges"]), "edge", out)
    _compare(manifest.graph.get("sinks", {}), graph["sinks"], "sink", out)
    inputs, inputs_now = manifest.graph.get("inputs", {}), graph.get("inputs", {})
    for name in inputs:
        changes = input_changes(inputs[name], inputs_now.get(name))
        if changes:
            out.append(f"the input of {name!r} has changed: {'; '.join(changes)}")
    return out


def _fixed(vertices: Mapping[str, Any], movable: Collection[str]) -> dict[str, Any]:
    """Vertices without the replicas of those whose state can be divided: they begin in the snapshot's layout, which then changes."""
    return {
        name: {key: value for key, value in shape.items() if key != "replicas" or name not in movable} for name, shape in vertices.items()
    }


def _routed(edges: Mapping[str, Any]) -> dict[str, Any]:
    """Edges with forward as rebalance: an edge is forward only while its ends have the same number of replicas."""
    out = {}
    for name, shape in edges.items():
        partition = shape.get("partition")
        out[name] = {**shape, "partition": "rebalance" if partition == "forward" else partition}
    return out


def input_changes(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    """How the input differs from what it was at the snapshot, in words; empty when it does not, or when one of the two is not known.

    >>> input_changes({"epoch": None, "files": {"a.csv": "9 bytes", "b.csv": "1 bytes"}}, {"epoch": "day", "files": {"a.csv": "10 bytes"}})
    ["epoch was None and is 'day'", "files: 'a.csv' was '9 bytes' and is '10 bytes'", "files: 'b.csv' is gone"]
    """
    out: list[str] = []
    if before is None or now is None:
        return out
    for what in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(what), now.get(what)
        if old == new:
            continue
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            out.append(f"{what} was {old!r} and is {new!r}")
            continue
        named = [_change(name, old, new) for name in [*old, *(n for n in new if n not in old)] if old.get(name) != new.get(name)]
        out.extend(f"{what}: {change}" for change in named[:NAMED_CHANGES_MAX])
        if len(named) > NAMED_CHANGES_MAX:
            out.append(f"{what}: {len(named) - NAMED_CHANGES_MAX} more")
    return out


def _change(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if name not in new:
        return f"{name!r} is gone"
    return f"{name!r} is new" if name not in old else f"{name!r} was {old[name]!r} and is {new[name]!r}"


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return _shape(before) == _shape(now) and fits(before.get("state"), now.get("state"))


def _what_to_do(key: str, before: Mapping[str, Any]) -> str:
    return f", and its state cannot be divided: give it parallelism {before[key]} again" if key == "replicas" else ""


def _shape(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without its state's identity, which is compared separately."""
    return {key: value for key, value in entry.items() if key != "state"}


def _compare(before: Mapping[str, Any], now: Mapping[str, Any], what: str, out: list[str]) -> bool:
    missing = [name for name in before if name not in now]
    new = [name for name in now if name not in before]
    for old in list(missing):
        alike = [name for name in new if _is_same(before[old], now[name])]
        if what == "vertex" and len(alike) > 1:
            told = " or ".join(map(repr, alike))
            lost = "its state would be lost, unless map_state= says which of these it is now"
            out.append(f"{what} {old!r} is in the snapshot and not in the dataflow: {lost}: {told}")
            missing.remove(old)
        elif what == "vertex" and len(alike) == 1:
            out.append(f"{what} {old!r} was renamed to {alike[0]!r}, or is another one: give it its old name with name={old!r}")
            missing.remove(old)
            new.remove(alike[0])
    out.extend(f"{what} {name!r} is in the snapshot and not in the dataflow: its state would be lost" for name in missing)
    out.extend(f"{what} {name!r} is in the dataflow and not in the snapshot" for name in new)
    for name in before:
        if name in now and not _is_same(before[name], now[name]):
            old_shape, shape = _shape(before[name]), _shape(now[name])
            keys = sorted(key for key in {*old_shape, *shape} if old_shape.get(key) != shape.get(key))
            changes = [f"{key} {old_shape.get(key)!r} is {shape.get(key)!r} now" + _what_to_do(key, old_shape) for key in keys]
            old_state, state = before[name].get("state"), now[name].get("state")
            if not fits(old_state, state):
                changes.append(f"what it keeps was {spell(old_state)} and is {spell(state)} now")
            out.append(f"{what} {name!r} has changed: {', '.join(changes)}")
    return bool(missing or new or any(name in now and not _is_same(before[name], now[name]) for name in before) or out)


def what_would_do(before: Mapping[str, Any], now: Mapping[str, Any], resume: str = "", *, number: str = "", maps: bool = False) -> str:
    """The arguments that say what becomes of all that two graphs do not have in common by name and state; "" for nothing.

    Args:
        resume, number: begin the call, such as ``resume='latest', ``; the second where state is mapped, which takes one snapshot.
        maps: ``map_state=`` also where ``new=`` and ``gone=`` would do.

    >>> before, now = {"vertices": {"a": {"kind": "vertex"}}, "sinks": {"out": {}}}, {"vertices": {}, "sinks": {"all": {"is": "S"}}}
    >>> what_would_do(before, now, "resume='latest', ")
    "resume='latest', new=['all'], gone=['a', 'out']"
    >>> what_would_do(before, now, maps=True)
    "map_state={'a': None, 'sink:out': None, 'sink:all': {}}"
    """
    calls: list[str] = []
    names: dict[str, str] = {}
    fresh_names: list[str] = []
    gone_names: list[str] = []
    for what, prefix in (("vertices", ""), ("sinks", "sink:")):
        old, new = (_fixed(shapes, shapes) for shapes in (before.get(what, {}), now[what]))  # whatever their replicas
        fresh = [name for name in new if name not in old]
        for name in [name for name in old if name not in new]:
            alike = [other for other in fresh if _is_same(old[name], new[other])]
            if prefix:
                alike = [other for other in alike if _has_same_writers(name, before, other, now, names)]
            if len(alike) == 1:
                fresh.remove(alike[0])
                names[prefix + name] = alike[0]
                calls.append(f"{prefix + name!r}: {alike[0]!r}")
            else:
                gone_names.append(name)
                calls.append(f"{prefix + name!r}: None")
        calls += [f"{prefix + name!r}: {{}}" for name in fresh]
        fresh_names += fresh
    old, new = before.get("vertices", {}), now["vertices"]
    changed = [name for name in old if name in new and not fits(old[name].get("state"), new[name].get("state"))]
    calls += [f"{name!r}: function of its table" for name in changed]
    if not calls:
        return ""
    if maps or names or changed:
        return f"{number}map_state={{{', '.join(calls)}}}"
    named = [f"{what}={list(dict.fromkeys(these))}" for what, these in (("new", fresh_names), ("gone", gone_names)) if these]
    return f"{resume}{', '.join(named)}"


def _has_same_writers(old: str, before: Mapping[str, Any], new: str, now: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Whether two sinks get the results of the same vertices, some of which have other names now; what was not noted is the same."""
    theirs, mine = before.get("writers", {}).get(old), now.get("writers", {}).get(new)
    return theirs is None or mine is None or sorted(names.get(name, name) for name in theirs) == mine


def _by_call(manifest: Manifest, graph: Graph, asked: str | int) -> str:
    """What to give to a run for it to resume, in words."""
    call = what_would_do(manifest.graph, graph, f"resume={asked!r}, ", number=f"resume={manifest.number}, ")
    if not call:
        call = _of_inputs(manifest, graph)
    table = " (a function gets the table of what is kept there, as rd.read_state gives it; {} begins with nothing)"
    return f". To keep the rest of its state: {call}{table if 'function of its table' in call else ''}" if call else ""


def _of_inputs(manifest: Manifest, graph: Graph) -> str:
    """Why the program differs although its vertices are those of the snapshot: some get other streams."""
    before, now = _routed(manifest.graph.get("edges", {})), _routed(graph["edges"])
    ends = {edge for edge in {*before, *now} if before.get(edge) != now.get(edge)}
    targets = [name for name in graph["vertices"] if any(re.search(f" -> {re.escape(name)}:\\d+( #\\d+)?$", edge) for edge in ends)]
    if not targets:
        return ""
    kept: dict[str, str] = {name: name for name in targets}
    anew: dict[str, Any] = {name: {} for name in targets}
    return f"resume={manifest.number}, map_state={kept}; or, to begin {' and '.join(targets)} with nothing, map_state={anew}"


def choose(store: SnapshotStore, resume: str | int | None, numbers: Sequence[int]) -> tuple[Manifest | None, list[str]]:
    """The manifest to resume from, and remarks about newer ones that are not usable.

    Args:
        numbers: the snapshots in the store.
        resume: "latest", the number of a snapshot, "never" for a fresh start, or None for a fresh start where there is no snapshot.

    Files of parts are listed here, and read and verified by the replicas that resume from them; but all are read first where a snapshot is
    asked for by number and there are newer ones, which the run makes void.

    Raises SnapshotError when the snapshot asked for by number is missing or damaged, when none of several is whole, and for None where
    there are snapshots: a fresh start would delete them.
    """
    if resume is None:
        _refuse_to_lose(store, numbers)
    if resume is None or resume == NEVER:
        return None, []
    if resume == "latest":
        manifest, refused = store.latest(numbers, store.check_listed)
        if manifest is None and refused:
            raise SnapshotError(f"no snapshot in {store.folder!r} is whole: " + "; ".join(refused))
        return manifest, refused
    number = int(resume)
    manifest = store.load(number)
    why = store.why_not(number, numbers)
    if why and number in numbers:
        raise SnapshotError(f"snapshot {number} in {store.folder!r} cannot be resumed from: {why}")
    is_newest = number == max(numbers, default=number)
    (store.check_listed if is_newest else store.check_all)(manifest)  # those that are newer are void from now on
    return manifest, []


def _refuse_to_lose(store: SnapshotStore, numbers: Sequence[int]) -> None:
    """Raise SnapshotError when the store has more than the beginnings of runs."""
    for number in reversed(numbers):
        try:
            manifest = store.load(number)
            if manifest.kind == "start":
                continue
            what = f"snapshot {number}, " + ("of the complete job" if manifest.kind == "final" else f"of kind {manifest.kind!r}")
        except StoreAwayError:
            raise
        except SnapshotError as error:  # damaged, or of another secret or format: not ours to delete
            what = f"snapshot {number}, which cannot be read: {error}"
        raise SnapshotError(
            f"{store.folder!r} has snapshots of this job, the latest is {what}; without resume= it would begin afresh, delete them, and "
            "replace what its sinks have committed. Resume from the latest: resume='latest'; keep them: another RunConfig(name=...) or "
            "storage_path=...; begin afresh all the same: resume='never'"
        )


def begin_run(
    store: SnapshotStore,
    resume: str | int | None,
    *,
    job: str,
    graph: Graph,
    key_groups: int,
    run: str = "",
    start: Callable[[Manifest | None], dict[str, Any]] = lambda earlier: {},
    reopens: Collection[str] = (),
    keeper: KeeperId | None = None,
    has_begun: bool = False,
    is_first: bool = True,
) -> tuple[Manifest, list[str]]:
    """Choose the snapshot to resume from and claim the store for this run; gives the manifest of its beginning, and remarks.

    The claim is a manifest of kind "start" or "resume" under the next number. Every publication takes the number after the one before it,
    and a number can be taken once: so an older run that still lives can publish nothing more, its next number is taken. If it is
    faster, its snapshot counts, and the choice is made again. With ``resume="latest"`` and an empty store the run begins afresh; with
    None it is refused unless the store is empty.
    ``start`` is called before a start is recorded, with the start that it repeats (None: a fresh one), and gives its notes: a job that
    died before its first snapshot starts once more, perhaps as another program. A run that resumes takes over the notes of the snapshot,
    and notes for which one its claim stands. ``reopens``: live inputs that go on although the job was complete, see :func:`claim_of`.
    ``keeper``: to which the run belongs, if to one. ``has_begun``: whether the job is known to have run: then a store without snapshots has
    gone away, and is not begun anew. ``is_first``: whether no coordinator was there before; it alone makes the folder of the store, so that
    one who finds none knows that others may have begun where it is not.

    Raises SnapshotError when the graph does not fit, or the snapshot asked for is missing or damaged; Superseded when a later keeper of the
    job has claimed the store.
    """
    made: list[str] = []
    for _ in range(CLAIMS_MAX):
        numbers = store.numbers()
        newest = numbers[-1] if numbers else 0
        has_begun = has_begun or bool(numbers)
        if not numbers:
            _refuse_if_away(store, job, has_begun=has_begun, is_first=is_first)
        claims, newest_keeper, identity = store.history()
        if keeper is not None and newest_keeper is not None and newest_keeper > keeper:
            raise Superseded(f"job {job!r} was submitted again, and has claimed {store.folder!r}: this submission of it is over")
        try:
            manifest, remarks = choose(store, resume, numbers)
        except SnapshotError:
            if store.numbers() != numbers:
                continue  # another run publishes, or deletes what it has retired
            raise
        if manifest is not None and manifest.number not in numbers:
            continue  # the folder was away
        if manifest is not None:
            require_fit(store, manifest, graph, key_groups, job=job, resume=resume)
        if not numbers and is_first:
            made, is_first = store.prepare(), False  # where it is gone later it has gone away
        else:
            store.check()
        if manifest is None:
            try:
                notes = {**start(None), "claims": [*claims, newest + 1]}
            except Exception:
                store.abandon(made)
                raise
            begun = Manifest(newest + 1, job, graph, key_groups, (), kind="start", run=run, notes=notes)
        else:
            begun = claim_of(manifest, numbers, claims, job=job, graph=graph, run=run, reopens=reopens)
            if begun.kind == "start":
                begun = dataclasses.replace(begun, notes={**begun.notes, **start(manifest)})
        begun = dataclasses.replace(begun, notes={**begun.notes, "keeper": keeper or newest_keeper, "store": identity or run})
        try:
            store.publish(begun, after=newest)
        except StoreAwayError:
            raise
        except SnapshotError:
            now = store.numbers()
            if now and now[-1] > newest:
                continue  # another run published in between
            raise
        return begun, remarks
    raise SnapshotError(
        f"another run of {job!r} keeps publishing snapshots to {store.folder!r}: stop it first, or give the runs different names"
    )


def require_fit(
    store: SnapshotStore, manifest: Manifest, graph: Graph, key_groups: int, *, job: str, resume: str | int | None = "latest"
) -> None:
    """Raise SnapshotError where the dataflow of a job is not the one of which a snapshot was taken; a start fits any. ``resume``: what was
    asked for."""
    wrong = misfits(manifest, graph, key_groups) if manifest.kind != "start" else []
    if wrong:
        raise SnapshotError(
            f"job {job!r} cannot resume from snapshot {manifest.number} in {store.folder!r}: "
            + "; ".join(wrong)
            + _by_call(manifest, graph, resume if resume is not None else "latest")
            + ". Run the dataflow that the snapshot was taken of, or begin afresh with resume='never'"
        )


def _refuse_if_away(store: SnapshotStore, job: str, *, has_begun: bool, is_first: bool) -> None:
    """A coordinator finds no snapshot: raise StoreAwayError where those of others may be in a folder that is not there."""
    if has_begun:
        raise StoreAwayError(f"{store.folder!r} has no snapshot, although job {job!r} has run: it has gone away, or is another folder")
    if not is_first and not store.is_there():
        raise StoreAwayError(
            f"{store.folder!r} is not there, and a coordinator of job {job!r} that has died may have begun there: the folder is away, "
            "or that one died before it had made it. Bring the folder back; where there never was one, submit the job again"
        )


def claim_of(
    manifest: Manifest, numbers: list[int], claims: Collection[int], *, job: str, graph: Graph, run: str, reopens: Collection[str] = ()
) -> Manifest:
    """What a run publishes when it resumes from a snapshot that is not the newest of its own: the same parts, under a new number.

    From then on the older run can publish nothing, and those of ``numbers`` (in the store) that are newer than the snapshot are void.
    ``claims``: those before it.

    Where the job was complete it stays complete, unless it has live inputs that ``reopens`` names: they are open again, in the epoch in
    which they were closed, and the notes say so (``reopened``: that epoch by name) to whoever reads the parts.
    """
    states = manifest.notes.get("input_states", {})
    reopened = {name: states[name][3] for name in reopens if manifest.kind == "final" and len(states.get(name, ())) > 4}
    kind = manifest.kind if manifest.kind in ("start", "final") and not reopened else "resume"
    stands_for = manifest.notes.get("stands_for", manifest.number)  # a claim on a claim stands for what the first stands for
    void = {*manifest.notes.get("void", ()), *(number for number in numbers if number > manifest.number)}
    number = numbers[-1] + 1
    told = {"resumed_from": manifest.number, "stands_for": stands_for, "void": sorted(void & set(numbers)), "claims": [*claims, number]}
    if reopened:
        open_again = {name: [states[name][0], epoch, states[name][2], epoch, epoch] for name, epoch in reopened.items()}
        told |= {"reopened": reopened, "input_states": {**states, **open_again}}
    inherited = {name: note for name, note in manifest.notes.items() if name != "kept"}
    return dataclasses.replace(manifest, number=number, job=job, graph=graph, kind=kind, run=run, notes={**inherited, **told})


__all__ = ["NEVER", "begin_run", "choose", "claim_of", "input_changes", "misfits", "require_fit", "what_would_do"]
