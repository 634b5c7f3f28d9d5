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


def check_resume(source: Source) -> None:
    """From each offset of each part, the batches that follow are exactly those of a part that was never closed."""
    for part in source.list_parts():
        whole = drain(source.build_part(part, None))
        reader = source.build_part(part, None)
        for given in range(len(whole) + 1):
            offset = pickle.loads(pickle.dumps(reader.offset()))
            rest = drain(source.build_part(part, offset))
            assert len(rest) == len(whole) - given
            for (epoch, batch), (epoch_again, batch_again) in zip(whole[given:], rest, strict=True):
                assert epoch == epoch_again
                assert batch.equals(batch_again) if isinstance(batch, pa.RecordBatch) else batch == batch_again
            reader.next_batch()
        reader.close()


def run_sink(sink: Sink, replicas: Sequence[Sequence[tuple[int, Any]]]) -> Any:
    """Write (epoch, batch) pairs in each replica, stage, publish twice (it has to be repeatable), and give the result."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    writers = [copy.open(i, len(replicas)) for i in range(len(replicas))]
    for writer, batches in zip(writers, replicas, strict=True):
        for epoch, batch in batches:
            writer.write(Timestamp(epoch), batch)
    staged = pickle.loads(pickle.dumps([writer.stage() for writer in writers]))
    receipt = copy.publish(staged)
    assert copy.publish(staged) == receipt
    return sink.result(pickle.loads(pickle.dumps(receipt)))
