"""Graphs as SVG, without script or network: the program of a :class:`Dataflow` in a notebook, the vertices of a job.

Layers are longest paths from the sources (Sugiyama et al., 1981, first step); what closes a loop is drawn back, below the boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from rayad.dataflow.logical_graph import NodeKind, Program
from rayad.dataflow.plan import Plan

CHARACTER, LINE, PADDING, GAP_X, GAP_Y = 7, 16, 10, 46, 18
"""Pixels: of a character and a line of text; around text in a box; between boxes."""


@dataclass(frozen=True, slots=True)
class Box:
    """One vertex: lines of text, filled with a colour."""

    id: int
    lines: tuple[str, ...]
    fill: str = "#eef3fb"


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another; one that ``closes_loop`` is drawn back."""

    source: int
    target: int
    closes_loop: bool = False


def draw(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """The SVG of a graph that has no cycle but through arrows that close loops."""
    layers: dict[int, list[Box]] = {}
    for box_id, layer in _layers(boxes, arrows).items():
        layers.setdefault(layer, []).append(next(box for box in boxes if box.id == box_id))
    at: dict[int, tuple[int, int, int, int]] = {}  # left, top, width, height
    left, bottom = PADDING, 0
    for layer in sorted(layers):
        width = max(_width(box) for box in layers[layer])
        top = PADDING
        for box in layers[layer]:
            height = LINE * len(box.lines) + PADDING
            at[box.id] = (left, top, width, height)
            top += height + GAP_Y
        bottom = max(bottom, top)
        left += width + GAP_X
    loops = [arrow for arrow in arrows if arrow.closes_loop]
    width, height = left - GAP_X + PADDING, bottom + 14 * len(loops)
    shapes = [_box(box, at[box.id]) for box in boxes]
    shapes += [_forward(at[arrow.source], at[arrow.target]) for arrow in arrows if not arrow.closes_loop]
    shapes += [_back(at[arrow.source], at[arrow.target], bottom + 14 * number) for number, arrow in enumerate(loops)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12"><defs><marker id="rayad-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>' + "".join(shapes) + "</svg>"
    )


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Mapping[int, int]:
    into: dict[int, int] = {box.id: 0 for box in boxes}
    following: dict[int, list[int]] = {box.id: [] for box in boxes}
    for arrow in arrows:
        if not arrow.closes_loop:
            into[arrow.target] += 1
            following[arrow.source].append(arrow.target)
    layer = {box.id: 0 for box in boxes}
    ready = [box.id for box in boxes if not into[box.id]]
    for source in ready:  # grows while it is read
        for target in following[source]:
            layer[target] = max(layer[target], layer[source] + 1)
            into[target] -= 1
            if not into[target]:
                ready.append(target)
    return layer


def _width(box: Box) -> int:
    return max(len(line) for line in box.lines) * CHARACTER + 2 * PADDING


def _box(box: Box, where: tuple[int, int, int, int]) -> str:
    left, top, width, height = where
    text = "".join(
        f'<text x="{left + width // 2}" y="{top + LINE * (n + 1)}" text-anchor="middle">{escape(line)}</text>'
        for n, line in enumerate(box.lines)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5" fill="{escape(box.fill)}" stroke="#555"/>'
        f"<g fill='#111'>{text}</g>"
    )


_STROKE = 'fill="none" stroke="#555" marker-end="url(#rayad-tip)"'


def _forward(source: tuple[int, int, int, int], target: tuple[int, int, int, int]) -> str:
    x0, y0 = source[0] + source[2], source[1] + source[3] // 2
    x1, y1 = target[0], target[1] + target[3] // 2
    middle = (x0 + x1) // 2
    return f'<path d="M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}" {_STROKE}/>'


def _back(source: tuple[int, int, int, int], target: tuple[int, int, int, int], below: int) -> str:
    x0, y0 = source[0] + source[2] // 2 + 6, source[1] + source[3]
    x1, y1 = target[0] + target[2] // 2 - 6, target[1] + target[3]
    return f'<path d="M{x0} {y0}V{below}H{x1}V{y1}" stroke-dasharray="4 3" {_STROKE}/>'


def draw_program(program: Program) -> str:
    """The operators of a program, as written."""
    kinds = {node.id: node.kind for node in program.graph.nodes}
    boxes = [Box(node.id, (node.name,)) for node in program.graph.nodes]
    edges = [(edge.source, node.id) for node in program.graph.nodes for edge in node.inputs]
    return draw(boxes, [Arrow(source, target, kinds[source] is NodeKind.FEEDBACK) for source, target in edges])


def draw_plan(plan: Plan) -> str:
    """The vertices that run, with their replicas."""
    boxes = [Box(stage.id, (stage.name, f"{stage.parallelism} replica{'s' * (stage.parallelism != 1)}")) for stage in plan.stages]
    return draw(boxes, [Arrow(edge.source, edge.target, edge.is_feedback) for edge in plan.edges])
