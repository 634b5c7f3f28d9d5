"""What is behind an operator with ``on_error="skip"``: its results, and the records that it has set aside."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.operators.bad_records import Bad, Good, MakeCountErrors, Tried
from rayad.dataflow.streams.steps import through
from rayad.dataflow.streams.stream import Stream


class SkippingStream(Stream):
    """What came out of an operator with ``on_error="skip"``, and what it has set aside."""

    def __init__(self, good: Stream, tried: list[int], base: str) -> None:
        super().__init__(good.flow, good.node, good.port, good.event_time)
        self._tried = tried
        self._base = base
        self._errors: Stream | None = None

    @property
    def errors(self) -> Stream[dict[str, Any]]:
        """See :attr:`Stream.errors`."""
        if self._errors is None:
            each = [through(Stream(self.flow, node), f"{self._base}.errors", Bad()) for node in self._tried]
            self._errors = each[0].union(*each[1:]) if len(each) > 1 else each[0]
        return self._errors


def skipping(out: Stream, tried: Tried, keeps_time: bool, errors_max: int | None) -> Stream:
    """The results of a step that is tried; ``out`` is the stream behind it."""
    nodes = out.flow.graph.nodes
    made = nodes[out.node]
    tried.operator, tried.line = made.options.get("called", made.name), made.where
    good = through(out, f"{tried.operator}.good", Good(), keeps_time=keeps_time)
    result = SkippingStream(good, [node.id for node in nodes if node.op is tried], tried.operator)
    if errors_max is not None:
        counted = f"{tried.operator}.max_errors"
        result.errors.single().vertex(MakeCountErrors(errors_max), outputs=0, name=counted, parallelism=1)
    return result
