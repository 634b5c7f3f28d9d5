"""Changes of layout as both runtimes plan them: what is asked for, the layouts on the way, and how a snapshot remembers one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayad.actors.plane.protocol import replica_name, replica_of, stage_of
from rayad.actors.replica.graph_shape import edge_names, targets_of
from rayad.actors.replica.migration import may_move
from rayad.dataflow.group_owners import owners_for, step_towards
from rayad.dataflow.logical_graph import NodeKind, PartitionKind, check_count
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import DataflowError, RescaleRefused, arguments, show

NOT_UPSTREAM = "rescale(...): FailureConfig(recovery='upstream') holds batches before vertices by time; use recovery='graph'"
FIRST_STEP_GROUPS = 4
"""How many key-groups the first step of a change moves; later steps move as many as fit into RunConfig.rescale_pause_s."""


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """Figures of a change of layout.

    Args:
        before, after: replicas by vertex.
        steps: number of steps.
        moved_groups, moved_bytes: key-groups, and bytes of state, that changed their owner.
        passed_on, held: batches that old owners forwarded unprocessed, and pieces of batches that new owners held back.
        prepare_s: seconds until the new replicas were ready, while the job ran.
        took_s: seconds in total.
        pause_s: the longest single pause of a replica.
        paused_s: the longest total pause of a replica.
    """

    before: dict[str, int]
    after: dict[str, int]
    steps: int = 0
    moved_groups: int = 0
    moved_bytes: int = 0
    passed_on: int = 0
    held: int = 0
    prepare_s: float = 0.0
    took_s: float = 0.0
    pause_s: float = 0.0
    paused_s: float = 0.0


def replicas_wanted(vertex: Any, replicas: Any) -> dict[str, int]:
    """What ``job.rescale(vertex, replicas)`` or ``job.rescale({vertex: replicas, ...})`` asks for. Raises RescaleRefused."""
    if isinstance(vertex, Mapping):
        if replicas is not None:
            told = f"rescale({show(vertex)}, {show(replicas)})"
            raise RescaleRefused(f"{told}: give a dict alone, or a vertex' name and its number of replicas")
        return {_vertex_name(name): _replicas(name, count) for name, count in vertex.items()}
    return {_vertex_name(vertex): _replicas(vertex, replicas)}


def _vertex_name(name: Any) -> str:
    return arguments.text(name, "rescale: a vertex' name", error=RescaleRefused)


def _replicas(name: Any, count: Any) -> int:
    return check_count(count, f"rescale: the number of replicas of {show(name)}", error=RescaleRefused)


def wanted_replicas(plan: Plan, wanted: Mapping[str, int]) -> dict[int, int]:
    """The wanted numbers of replicas by stage, without those that stay. Raises RescaleRefused, which names what cannot be."""
    if not isinstance(wanted, Mapping) or not wanted:
        raise RescaleRefused(f"rescale({show(wanted)}): give a vertex' name and its number of replicas, or a dict of such")
    names = {**{plan.called(stage.id): stage for stage in plan.stages}, **{stage.name: stage for stage in plan.stages}}
    out = {}
    for name, replicas in wanted.items():
        if name not in names:
            movable = sorted(stage.name for stage in plan.stages if not may_move(stage, plan, None))
            within = [stage.name for stage in plan.stages if name in (getattr(step, "name", None) for step in stage.steps)]
            where = f" ({name!r} runs within {within[0]!r})" if within else ""
            raise RescaleRefused(
                f"rescale({name!r}, {replicas!r}): there is no stage of that name{where}; those that can be rescaled: {movable}"
            )
        replicas = _replicas(name, replicas)
        stage = names[name]
        why = may_move(stage, plan, None)
        if why:
            raise RescaleRefused(f"rescale({name!r}, {replicas}): {why}")
        if is_keyed(plan, stage.id) and replicas > plan.key_groups:
            raise RescaleRefused(
                f"rescale({name!r}, {replicas}): there are {plan.key_groups} key-groups, no keyed vertex can have more replicas; start "
                "the job with a larger RunConfig(key_groups=...)"
            )
        if replicas != stage.parallelism:
            out[stage.id] = replicas
    return out


def is_keyed(plan: Plan, stage: int) -> bool:
    """Whether key-groups belong to a stage's replicas."""
    return any(edge.partition is PartitionKind.KEYS for edge in plan.edges_into(stage))


def prepared(plan: Plan, wanted: Mapping[int, int]) -> Layout:
    """The layout with newcomers, to which nothing is routed yet, and with the replicas that will retire."""
    now = plan.layout
    owners = {stage.id: plan.owners(stage) for stage in plan.stages if stage.id in wanted and is_keyed(plan, stage.id)}
    replicas = {stage: max(count, wanted.get(stage, 0)) for stage, count in now.replicas.items()}
    return Layout(replicas, {**now.owners, **owners}, now.rebalanced | _ends(plan, wanted))


def target(plan: Plan, wanted: Mapping[int, int]) -> Layout:
    """The layout that is asked for."""
    now = plan.layout
    keyed = [stage for stage in plan.stages if stage.id in wanted and is_keyed(plan, stage.id)]
    owners = {stage.id: owners_for(plan.owners(stage), wanted[stage.id]) for stage in keyed}
    return Layout({**now.replicas, **wanted}, {**now.owners, **owners}, now.rebalanced | _ends(plan, wanted))


def _ends(plan: Plan, wanted: Mapping[int, int]) -> set[int]:
    """The edges that are forward no longer. Newcomers never send forward: the replica of their number need not be there."""
    return {e.id for e in plan.edges if e.partition is PartitionKind.FORWARD and (e.source in wanted or e.target in wanted)}


def next_layout(plan: Plan, goal: Layout, groups: int) -> Layout:
    """One step from a prepared plan towards the goal; the last one is the goal."""
    now = plan.layout
    owners = dict(now.owners)
    for stage, after in goal.owners.items():
        if stage in owners and owners[stage] != after:
            owners[stage] = step_towards(owners[stage], after, groups)
    if all(owners.get(stage) == after for stage, after in goal.owners.items()):
        return goal
    return Layout(now.replicas, owners, goal.rebalanced)


def groups_of_next_step(costs: Sequence[tuple[int, float]], pause_s: float = 0.015) -> int:
    """How many key-groups the next step moves, from the key-groups of earlier steps and the seconds that each kept a replica.

    A step has a fixed cost and a cost for each group. The groups' part may be ``pause_s``, or the fixed cost if that is more: smaller steps
    would make the change longer and no pause shorter.

    >>> groups_of_next_step([(4, 0.004)]), groups_of_next_step([(4, 0.004), (8, 0.008)]), groups_of_next_step([(4, 0.104), (8, 0.108)])
    (8, 15, 32)
    """
    groups, last_s = costs[-1]
    if len(costs) == 1:
        return 2 * groups
    few, many = min(costs), max(costs)
    each_s = max(0.0, (many[1] - few[1]) / (many[0] - few[0])) if many[0] > few[0] else 0.0
    fixed_s = max(0.0, last_s - each_s * groups)
    return max(1, int(min(4 * groups, max(pause_s, fixed_s) / each_s))) if each_s else 4 * groups


# -- in snapshots ------------------------------------------------------------------------------------


def layout_notes(plan: Plan, asked: Mapping[str, int]) -> dict[str, Any]:
    """The layout by names, plain data for a manifest; ``asked``: the replicas that the run was started with."""
    layout, names = plan.layout, {stage.id: stage.name for stage in plan.stages}
    edges = edge_names(plan)
    return {
        "replicas": {names[stage]: count for stage, count in layout.replicas.items()},
        "owners": {names[stage]: list(owners) for stage, owners in layout.owners.items()},
        "rebalanced": sorted(edges[edge] for edge in layout.rebalanced),
        "asked": dict(asked),
    }


def layout_of(notes: Mapping[str, Any] | None, plan: Plan) -> Layout | None:
    """The layout that a manifest's notes tell of; None when they do not."""
    if not notes:
        return None
    ids = {stage.name: stage.id for stage in plan.stages}
    edges = {name: edge for edge, name in edge_names(plan).items()}
    unknown = [name for name in notes["replicas"] if name not in ids]
    if unknown:
        raise DataflowError(f"a snapshot tells of vertices {unknown} that the dataflow does not have")
    sources = {stage.name for stage in plan.stages if stage.kind is NodeKind.SOURCE}  # their parts move when a job resumes
    before = {ids[name]: count for name, count in notes["replicas"].items() if name not in sources}
    replicas = {**plan.layout.replicas, **before}
    owners = {ids[name]: tuple(owners) for name, owners in notes["owners"].items()}
    rebalanced = {edges[name] for name in notes["rebalanced"] if name in edges}
    forward = [edge for edge in plan.edges if edge.partition is PartitionKind.FORWARD]
    rebalanced.update(edge.id for edge in forward if replicas[edge.source] != replicas[edge.target])
    return Layout(replicas, owners, frozenset(rebalanced))


def asked_anew(plan: Plan, notes: Mapping[str, Any], asked: Mapping[str, int]) -> dict[str, int]:
    """Which replicas a run that resumes from a snapshot asks for otherwise than the run that took it did: they change at once."""
    before = (notes.get("layout") or {}).get("asked")
    if before is None:
        return {}
    now = asked_of(plan)
    return {name: count for name, count in asked.items() if before.get(name) != count and now.get(name) != count}


def asked_of(plan: Plan) -> dict[str, int]:
    """The replicas of a plan, by name."""
    return {stage.name: stage.parallelism for stage in plan.stages}


def lost_of(plan: Plan, wanted: Mapping[str, int]) -> dict[str, int]:
    """What was asked for and is not so, or not any more: the job resumed from a snapshot of before, say."""
    now = asked_of(plan)
    return {name: count for name, count in wanted.items() if now.get(name) != count}


def plane_names(plan: Plan) -> tuple[str, ...]:
    """All replicas by their names on the plane, stage by stage."""
    return tuple(replica_name(stage.id, replica) for stage in plan.stages for replica in range(stage.parallelism))


def channels_from(gone: Collection[str], plan: Plan, name: str) -> tuple[tuple[int, int], ...]:
    """``(edge, sender's number)`` of the channels on which replicas that are gone have sent to this one."""
    stage, mine = stage_of(name), replica_of(name)
    return tuple(
        (edge.id, replica_of(one))
        for edge in plan.edges_into(stage)
        for one in gone
        if edge.source == stage_of(one) and mine in targets_of(plan, edge, replica_of(one))
    )


def names_of(plan: Plan) -> list[tuple[str, int]]:
    """All replicas, as snapshots name them."""
    return [(stage.name, replica) for stage in plan.stages for replica in range(stage.parallelism)]


def starts_of(plan: Plan) -> list[tuple[str, int]]:
    """The replicas without inputs, with which a snapshot begins."""
    return [(stage.name, replica) for stage in plan.stages if not stage.inputs for replica in range(stage.parallelism)]


def restored(plan: Plan, notes: Mapping[str, Any], asked: Mapping[str, int]) -> Plan:
    """The plan in the layout of a snapshot; of a beginning: as it was ``asked`` for."""
    layout = layout_of(notes.get("layout"), plan)
    if layout is None:
        layout = Layout({stage.id: asked[stage.name] for stage in plan.stages})
    return plan.laid_out(layout)


__all__ = ["RescaleReport", "layout_notes", "wanted_replicas"]
