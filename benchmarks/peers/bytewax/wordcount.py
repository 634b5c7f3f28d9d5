"""Bytewax: the lines of a folder, flat_map, count_final. One process with several worker threads, or several processes with one each.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import zlib
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
words = op.flat_map("words", lines, str.split)
op.output("out", op.count_final("count", words, lambda word: word), Keep())
measure(flow, digest_of)
