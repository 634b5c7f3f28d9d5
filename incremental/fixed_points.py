"""Loops of collections, to a fixed point, and how collections from outside come into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.streams.loops import Loop
from rayad.incremental import rounds, steps
from rayad.incremental.columns import steps as columns
from rayad.incremental.outputs.ends import Ends
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream
    from rayad.incremental.collection import Collection, KeyedCollection

_AROUND: ContextVar[tuple[Loop, ...]] = ContextVar("loops around", default=())
"""The loops whose bodies are being called."""


def fixed_point(
    variables: Mapping[str, Collection],
    body: Callable[[dict[str, Collection]], Mapping[str, Collection]],
    *,
    max_rounds: int | None = None,
    name: str | None = None,
) -> dict[str, Collection]:
    """Several collections at once to a fixed point, each of which may be made from all: see :meth:`Collection.iterate`.

    Args:
        variables: what each begins as.
        body: is given all of them inside the loop, and gives the next round of each.
        max_rounds: the last round; None: until nothing changes.
        name: of the loop.
    """
    if not isinstance(variables, Mapping) or not variables or not all(isinstance(one, Ends) for one in variables.values()):
        raise DataflowError(f"fixed_point() was given {show(variables, 60)}: give a dict of collections by name")
    checked_function(body, "fixed_point", "inner", rule="it takes a function body(inner) that gives the next round of each, as a dict")
    if max_rounds is not None:
        max_rounds = arguments.whole(max_rounds, "max_rounds", least=1)
    first = next(iter(variables.values()))
    flow, made = first.stream.flow, type(first)
    with flow.graph.all_or_nothing():
        around = max(_AROUND.get(), *(one.loops for one in variables.values()), key=len)
        streams = {what: brought_into(one, around) for what, one in variables.items()}
        loop = Loop(flow, name, next(iter(streams.values())).scope)
        loops = (*around, loop)
        entered = {what: loop.enter(stream) for what, stream in streams.items()}
        back = {what: loop.feedback(max_rounds) for what in streams}
        within = _AROUND.set(loops)
        try:
            answer = body({what: made(entered[what].union(back[what]), loops) for what in streams})
        finally:
            _AROUND.reset(within)
        if not isinstance(answer, Mapping) or answer.keys() != streams.keys():
            told = sorted(answer) if isinstance(answer, Mapping) else show(answer, 60)
            raise DataflowError(f"the body of a fixed point gave {told}: it must give the next round of {sorted(streams)}, as a dict")
        out, variables_at = {}, {one.node for one in back.values()}
        for what, one in answer.items():
            if not isinstance(one, Ends) or one.loops != loops[: len(one.loops)]:
                raise DataflowError(f"the body of a fixed point gave {show(one, 60)}: it must give collections, made of those it was given")
            stream = brought_into(one, loops)
            changed = made(stream.union(columns.mapped(entered[what], steps.negated, columns.negated)), loops)
            is_open = rounds.goes_round_as_it_is(flow.graph, stream.node, variables_at)
            back[what].connect((changed.consolidate() if is_open else changed).stream)
            out[what] = made(loop.leave(stream), around)
        return out


def together(*some: Any) -> tuple[list[Stream], tuple[Loop, ...]]:
    """The streams of collections in the innermost loop of theirs: those from outside come into it."""
    deepest: tuple[Loop, ...] = max((one.loops for one in some), key=len)
    return [brought_into(one, deepest) for one in some], deepest


def brought_into(one: Collection | KeyedCollection, loops: tuple[Loop, ...]) -> Stream:
    """The stream of a collection from outside, in the innermost of these loops."""
    if one.loops != loops[: len(one.loops)]:
        raise DataflowError("two collections are in different loops: what one loop gives has to leave it first, by iterate()")
    stream = one.stream
    for loop in loops[len(one.loops) :]:
        stream = loop.enter(stream)
    return stream


__all__ = ["brought_into", "fixed_point", "together"]
