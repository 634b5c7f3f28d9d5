"""Which snapshots may be resumed from, as far as their manifests tell. Pure but for reading manifests.

A run that resumes from an older snapshot makes those in between void: what they committed was rolled back. Each later manifest lists them
(``notes["void"]``). Those that a newer one has retired, be that void or not, may be about to be deleted; those that an older run has
published behind the claim of a newer one are overtaken. See docs/design/fence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rayad.progress import SnapshotError
from rayad.snapshots.errors import StoreAwayError
from rayad.snapshots.manifest import Manifest


class Standing(NamedTuple):
    """A snapshot that has been published, and its manifest where it may be resumed from; else why not, and whether it cannot be read."""

    number: int
    manifest: Manifest | None
    why: str = ""
    is_damaged: bool = False


def standing_of(numbers: Sequence[int], load: Callable[[int], Manifest]) -> Iterator[Standing]:
    """What their manifests say of snapshots, the newest first: the manifest of each that may be resumed from, the reason of each other.

    Args:
        numbers: of those that are there, ascending.
        load: gives the manifest of one. Raises SnapshotError where it is damaged, StoreAwayError where that cannot be known.
    """
    void: dict[int, int] = {}
    kept: list[tuple[int, frozenset[int]]] = []  # by the number of a manifest, the older ones that it keeps
    claims: tuple[int, ...] = ()
    for number in reversed(numbers):
        is_void = f"snapshot {void[number]} says that snapshot {number} is void" if number in void else ""
        try:
            manifest = load(number)
        except StoreAwayError:
            raise
        except SnapshotError as error:
            yield Standing(number, None, is_void or str(error), is_damaged=not is_void)
            continue
        run = max((claim for claim in claims if claim <= number), default=0)
        if run and manifest.claims and manifest.claims[-1] < run:
            why = is_void or f"snapshot {number} is of run {manifest.claims[-1]}, which run {run} had superseded before"
            yield Standing(number, None, why)
            continue
        retired = _retired_by(number, manifest, kept)
        if "kept" in manifest.notes:
            kept.append((number, frozenset(manifest.notes["kept"])))
        if is_void or retired is not None:
            yield Standing(number, None, is_void or f"snapshot {retired} has retired snapshot {number}")
            continue
        claims = claims or manifest.claims
        void.update(dict.fromkeys(manifest.notes.get("void", ()), number))
        yield Standing(number, manifest)


def _retired_by(number: int, manifest: Manifest, kept: Sequence[tuple[int, frozenset[int]]]) -> int | None:
    if manifest.kind == "savepoint":
        return None
    return next((by for by, those in kept if number not in those), None)


__all__ = ["Standing", "standing_of"]
