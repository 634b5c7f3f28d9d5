"""Reading sources and driving sinks by hand, as a replica would."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.sink import Sink
from rayad.dataflow.source import Source, SourceBatch, SourcePart
from rayad.progress import Timestamp


def drain(part: SourcePart) -> list[SourceBatch]:
    """All batches of a part; checks on the way that epochs and floors do not go back."""
    batches: list[SourceBatch] = []
    floor = part.epoch_floor()
    while (batch := part.next_batch()) is not None:
        assert batch.epoch >= floor
        floor = part.epoch_floor()
        assert floor >= batch.epoch
        batches.append(batch)
    assert part.next_batch() is None
    part.close()
    part.close()
    return batches


def read(source: Source) -> list[SourceBatch]:
    """All batches of all parts, read by copies of the source as replicas have them."""
    copy: Source = pickle.loads(pickle.dumps(source))
    return [batch for part in source.list_parts() for batch in drain(copy.build_part(pickle.loads(pickle.dumps(part)), None))]


def records(source: Source) -> list[Any]:
    """All records."""
    rows: list[Any] = []
    for _, batch in read(source):
        rows += batch.to_pylist() if isinstance(batch, pa.RecordBatch) else batch
    return rows


def read_on(reader: SourcePart) -> list[tuple[int, SourceBatch | None, int]]:
    """The remaining batches, each with the floor before and after it, and last the floor after the end."""
    seen: list[tuple[int, SourceBatch | None, int]] = []
    batch: SourceBatch | None = SourceBatch(0, [])
    while batch is not None:
        before = reader.epoch_floor()
        batch = reader.next_batch()
        seen.append((before, batch, reader.epoch_floor()))
    return seen


def same(a: SourceBatch | None, b: SourceBatch | None) -> bool:
    if a is None or b is None:
        return a is b
    equal = a.batch.equals(b.batch) if isinstance(a.batch, pa.RecordBatch) and isinstance(b.batch, pa.RecordBatch) else a.batch == b.batch
    return a.epoch == b.epoch and bool(equal)


def check_resume(source: Source) -> None:
    """Resume at each offset of each part, from before the first batch to after the end, in a copy of the source that lists its parts anew,
    as another run does. The rest (epochs, floors, contents) must equal what a part gives that was never closed."""
    another: Source = pickle.loads(pickle.dumps(source))
    for part in source.list_parts():
        reader = source.build_part(part, None)
        whole = read_on(reader)
        reader.close()
        reader = source.build_part(part, None)
        again = source.build_part(part, None)  # each batch by another reader than the one before it
        for given in range(len(whole) + 1):
            offset = pickle.loads(pickle.dumps(reader.offset()))
            resumed = another.build_part(pickle.loads(pickle.dumps(part)), offset)
            assert resumed.offset() == offset
            rest = read_on(resumed)
            expected = whole[given:] or [(whole[-1][2], None, whole[-1][2])]
            assert len(rest) == len(expected)
            for (floor, batch, floor_after), (floor_again, batch_again, floor_after_again) in zip(expected, rest, strict=True):
                assert (floor, floor_after) == (floor_again, floor_after_again)
                assert same(batch, batch_again)
            resumed.close()
            again.close()
            again = source.build_part(part, offset)
            if given < len(whole):
                assert same(again.next_batch(), whole[given][1])
                reader.next_batch()
                assert again.offset() == reader.offset()
        reader.close()
        again.close()


def run_sink(sink: Sink, replicas: Sequence[Sequence[tuple[int, Any]]]) -> Any:
    """Write (epoch, batch) pairs in each replica, stage, publish twice (publishing must be repeatable), and give the result."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    writers = [copy.open(i, len(replicas)) for i in range(len(replicas))]
    for writer, batches in zip(writers, replicas, strict=True):
        for epoch, batch in batches:
            writer.write(Timestamp(epoch), batch)
    staged = pickle.loads(pickle.dumps([writer.stage() for writer in writers]))
    receipt = copy.publish(staged)
    assert copy.publish(staged) == receipt
    return sink.result(pickle.loads(pickle.dumps(receipt)))
