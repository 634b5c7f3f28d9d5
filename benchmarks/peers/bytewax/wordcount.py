"""Bytewax: the lines of a folder, flat_map, count_final. One process with several worker threads, or several processes with one each.

With ``combine`` the words of each batch of lines are counted first (``flat_map_batch`` with a Counter) and the counts added up
(``reduce_final``): what its users write when it must be fast.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import operator
import zlib
from collections import Counter
from itertools import chain
from pathlib import Path

import bytewax.operators as op
from _cluster import Keep, arguments, began, found_in, measure
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow

BATCH_LINES = 1000  # Bytewax' default


class Lines(DirSource):
    """Notes when the first of its files was opened."""

    def build_part(self, step_id, for_part, resume_state):
        began()
        return super().build_part(step_id, for_part, resume_state)


def digest_of(all_told):
    """Of the counts."""
    counts = found_in(all_told)
    return [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts)]


flow = Dataflow("wordcount")
lines = op.input("lines", flow, Lines(Path(arguments["folder"]), "*.txt", BATCH_LINES, lambda _: "SHARED"))
if arguments.get("combine"):
    some = op.flat_map_batch("some", lines, lambda batch: Counter(chain.from_iterable(map(str.split, batch))).items())
    counts = op.reduce_final("count", some, operator.add)
else:
    counts = op.count_final("count", op.flat_map("words", lines, str.split), lambda word: word)
op.output("out", counts, Keep())
measure(flow, digest_of)
