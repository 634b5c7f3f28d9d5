"""Random programs from a small grammar, as data: each is built as a dataflow and evaluated by the model.

A program is a list of steps; step i makes stream i + 2 from earlier streams (0 and 1 are the sources). Records are small integers, so
that any stream can enter any step. Loops hold programs, and end because what is fed back shrinks or is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import rayad as rd
from tests.programs import model as m

MODULUS = 97
RECORDS_MAX = 400


@dataclass(frozen=True)
class Step:
    """``kind`` of ``inputs``; ``number`` is a parameter; ``body`` and ``again`` belong to loops."""

    kind: str
    inputs: tuple[int, ...]
    number: int = 1
    body: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RandomProgram:
    sources: tuple[tuple[tuple[int, ...], ...], ...]
    steps: tuple[Step, ...]


UNARY = ("map", "filter", "flat_map", "batches", "count", "sum", "min", "distinct", "top", "window", "vertex", "spread", "broadcast")
BINARY = ("union", "join")


@st.composite
def step(draw: st.DrawFn, streams: int, depth: int) -> Step:
    number = draw(st.integers(1, 5))
    kinds = UNARY + BINARY * 2 + (("loop",) * 3 if depth < 2 else ())
    kind = draw(st.sampled_from(kinds))
    one = st.integers(max(0, streams - 3), streams - 1)
    inputs = (draw(one), draw(one)) if kind in BINARY else (draw(one),)
    if kind != "loop":
        return Step(kind, inputs, number)
    body: list[Step] = []
    for _ in range(draw(st.integers(0, 3))):
        body.append(draw(step(1 + len(body), depth + 1)))
    return Step(kind, inputs, number, tuple(body))


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    epoch = st.lists(st.integers(0, MODULUS - 1), max_size=4).map(tuple)
    source = st.lists(epoch, max_size=3).map(tuple)
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 5))):
        steps.append(draw(step(2 + len(steps), 0)))
    return RandomProgram((draw(source), draw(source)), tuple(steps))


# -- what the steps do, on records ---------------------------------------------------------------------------------------


def flat(record: Any) -> int:
    """Any operator's record as a small integer again."""
    if isinstance(record, int):
        return record % MODULUS
    if isinstance(record, (tuple, list)):
        total = 1
        for part in record:
            total = (31 * total + flat(part)) % MODULUS
        return total
    return 0


class Key:
    """``n -> n % modulus``, as a picklable function."""

    def __init__(self, modulus: int) -> None:
        self.modulus = modulus

    def __call__(self, record: int) -> int:
        return record % self.modulus


class PerTime(rd.Vertex):
    """Counts records of each time; a vertex without a key, so what its replicas say is summed behind it."""

    def __init__(self) -> None:
        self.counts: dict[rd.Timestamp, int] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.counts:
            self.counts[time] = 0
            self.notify_at(time)
        self.counts[time] += len(batch)

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(0, [self.counts.pop(time)], time)


def _same_count(record: Any) -> int:
    return 0


# -- as a dataflow ---------------------------------------------------------------------------------------------------------


def build(program: RandomProgram, flow: rd.Dataflow, *, exchange: bool) -> None:
    """Every stream is collected; with ``exchange`` nothing is fused: a rebalance stands before every step."""
    streams = [flow.from_epochs(source, parts=2, batch_rows=2) for source in program.sources]
    for made in program.steps:
        streams.append(_apply(made, streams, exchange))
    for i, stream in enumerate(streams):
        stream.collect(f"s{i}")


def _apply(made: Step, streams: Sequence[rd.Stream], exchange: bool) -> rd.Stream:
    a, *rest = [streams[i].rebalance() if exchange else streams[i] for i in made.inputs]
    n, key = made.number, Key(made.number)
    if made.kind == "map":
        return a.map(lambda r: flat((r, n)))
    if made.kind == "filter":
        return a.filter(lambda r: r % (n + 1) != 0)
    if made.kind == "flat_map":
        return a.flat_map(lambda r: [r] * (r % 3))
    if made.kind == "batches":
        return a.map_batches(lambda batch: [flat((n, r)) for r in batch])
    if made.kind in ("count", "sum", "min"):
        return getattr(a.key_by(key), made.kind)().as_records().map(flat)  # type: ignore[no-any-return]
    if made.kind == "distinct":
        return a.key_by(key).distinct().map(flat)
    if made.kind == "top":
        return a.key_by(key).top_k(2).as_records().map(flat)
    if made.kind == "window":
        return a.key_by(key).window(rd.windows.per_epoch()).count().map(flat)
    if made.kind == "vertex":
        return a.key_by(_same_count).vertex(PerTime)  # type: ignore[no-any-return]
    if made.kind == "spread":
        return a.rebalance().map(flat)
    if made.kind == "broadcast":
        return a.broadcast().single().map(flat)
    if made.kind == "union":
        return a.union(*rest)
    if made.kind == "join":
        return a.key_by(key).join(rest[0].key_by(key)).filter(_few).map(flat)
    return _loop(made, a, exchange)


def _few(record: Any) -> bool:
    return bool(flat(record) % 3 == 0)


def _loop(made: Step, entering: rd.Stream, exchange: bool) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        streams = [inner]
        for each in made.body:
            streams.append(_apply(each, streams, exchange))
        return streams[-1].filter(_goes_on).map(_smaller), streams[-1]

    return entering.iterate(body, max_rounds=made.number + 1)


def _goes_on(record: int) -> bool:
    return record % 2 == 0


def _smaller(record: int) -> int:
    return record // 2


# -- in the model -----------------------------------------------------------------------------------------------------------


def evaluate(program: RandomProgram) -> dict[str, m.Timed]:
    """What every stream holds. Raises TooLarge."""
    streams = [m.epochs(source) for source in program.sources]
    for made in program.steps:
        streams.append(_meaning(made, streams))
    return {f"s{i}": stream for i, stream in enumerate(streams)}


class TooLarge(Exception):
    """The program makes more records than a test should take."""


def _meaning(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    out = _operator(made, streams)
    if len(out) > RECORDS_MAX:
        raise TooLarge
    return out


def _operator(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    a, *rest = [streams[i] for i in made.inputs]
    n, key = made.number, Key(made.number)
    same = lambda r: r  # noqa: E731
    if made.kind == "map":
        return m.mapped(a, lambda r: flat((r, n)))
    if made.kind == "filter":
        return m.filtered(a, lambda r: r % (n + 1) != 0)
    if made.kind == "flat_map":
        return m.flat_mapped(a, lambda r: [r] * (r % 3))
    if made.kind == "batches":
        return m.mapped(a, lambda r: flat((n, r)))
    if made.kind in ("count", "sum", "min"):
        return m.mapped(m.collected(a, key, same, {"count": len, "sum": sum, "min": min}[made.kind]), flat)
    if made.kind == "distinct":
        return m.mapped(m.distinct(a, key), flat)
    if made.kind == "top":
        return m.mapped(m.collected(a, key, same, lambda rs: sorted(rs, reverse=True)[:2]), flat)
    if made.kind == "window":
        return m.mapped(m.per_epoch(a, key, len), flat)
    if made.kind == "vertex":
        return [(time, len(records)) for time, records in m.by_time(a)]
    if made.kind in ("spread", "broadcast"):
        return m.mapped(a, flat)
    if made.kind == "union":
        return a + rest[0]
    if made.kind == "join":
        return m.mapped(m.filtered(m.joined(a, rest[0], key, key), _few), flat)

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        made_so_far = [inner]
        for each in made.body:
            made_so_far.append(_meaning(each, made_so_far))
        return m.mapped(m.filtered(made_so_far[-1], _goes_on), _smaller), made_so_far[-1]

    return m.iterated(a, body, max_rounds=made.number + 1)
