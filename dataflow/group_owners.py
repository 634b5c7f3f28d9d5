"""Who owns which key-group, and how to get from one assignment to another. Pure; see docs/design/rescaling.md, 1.

An assignment is a tuple ``owners`` of the length of ``key_groups``: ``owners[group]`` is the replica that owns the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rayad.progress import ConfigError

Owners = tuple[int, ...]


def even_owners(replicas: int, key_groups: int) -> Owners:
    """Contiguous ranges whose sizes differ by at most one: what a job begins with.

    >>> even_owners(3, 8)
    (0, 0, 0, 1, 1, 1, 2, 2)
    """
    _check(replicas, key_groups)
    return tuple(group * replicas // key_groups for group in range(key_groups))


def owners_for(owners: Sequence[int], replicas: int) -> Owners:
    """The assignment to replicas ``0 .. replicas - 1`` that moves the fewest groups and whose sizes differ by at most one.

    Groups that lie side by side go and stay together, since state is sorted by group: what is left of it is few slices, in the files that
    snapshots have of it already. Which groups are hot has nothing to do with where they lie: keys are in groups by a hash.

    >>> owners_for((0, 0, 0, 0), 2)
    (0, 0, 1, 1)
    >>> owners_for((0, 1, 0, 1), 1)
    (0, 0, 0, 0)
    >>> owners_for((0, 0, 0, 1, 1, 1), 3)
    (0, 0, 2, 2, 1, 1)
    """
    _check(replicas, len(owners))
    sizes = Counter(dict.fromkeys(range(replicas), 0))
    sizes.update(owner for owner in owners if owner < replicas)
    least, larger = divmod(len(owners), replicas)
    # The groups that are left over after an even division go to the replicas that own the most now.
    by_size = sorted(range(replicas), key=lambda replica: (-sizes[replica], replica))
    wanted = {replica: least + (place < larger) for place, replica in enumerate(by_size)}
    free = [group for group, owner in enumerate(owners) if owner >= replicas]
    for replica in range(replicas):
        mine = [group for group, owner in enumerate(owners) if owner == replica]
        surplus = len(mine) - wanted[replica]
        if surplus > 0:  # of two neighbours from where they meet
            free += mine[-surplus:] if replica % 2 == 0 else mine[:surplus]
    after = list(owners)
    missing = {replica: wanted[replica] - sizes[replica] for replica in range(replicas)}
    taker = 0
    for group in sorted(free):
        beside = after[group - 1] if group else taker
        if missing.get(beside, 0) > 0:
            taker = beside
        elif missing[taker] <= 0:
            taker = next(replica for replica in range(replicas) if missing[replica] > 0)
        after[group] = taker
        missing[taker] -= 1
    return tuple(after)


def step_towards(owners: Sequence[int], target: Sequence[int], groups: int) -> Owners:
    """The next assignment on the way: at most ``groups`` key-groups change hands, in turn from each pair of old and new owner.

    >>> step_towards((0, 0, 0, 0), (0, 1, 0, 1), 1)
    (0, 1, 0, 0)
    """
    if groups < 1:
        raise ConfigError(f"a step of {groups} key-groups: it must be at least 1, else nothing would ever move")
    by_pair: dict[tuple[int, int], list[int]] = {}
    for group, (before, after) in enumerate(zip(owners, target, strict=True)):
        if before != after:
            by_pair.setdefault((before, after), []).append(group)
    waiting = list(by_pair.values())
    moved = list(owners)
    while groups and waiting:
        for pair in waiting:
            group = pair.pop(0)
            moved[group] = target[group]
            groups -= 1
            if not groups:
                break
        waiting = [pair for pair in waiting if pair]
    return tuple(moved)


def moves(before: Sequence[int], after: Sequence[int]) -> dict[tuple[int, int], frozenset[int]]:
    """The groups that change hands, by ``(old owner, new owner)``.

    >>> moves((0, 0, 1), (0, 1, 1))
    {(0, 1): frozenset({1})}
    """
    out: dict[tuple[int, int], set[int]] = {}
    for group, pair in enumerate(zip(before, after, strict=True)):
        if pair[0] != pair[1]:
            out.setdefault(pair, set()).add(group)
    return {pair: frozenset(groups) for pair, groups in out.items()}


def _check(replicas: int, key_groups: int) -> None:
    if not 1 <= replicas <= key_groups:
        raise ConfigError(
            f"{replicas} replicas for {key_groups} key-groups: it must be 1 to {key_groups}, since a replica without a group would idle; "
            "start the job with a larger RunConfig(key_groups=...) for more"
        )


__all__ = ["Owners", "even_owners", "moves", "owners_for", "step_towards"]
