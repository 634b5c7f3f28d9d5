"""Pathway: the lines of a folder read once (static), split by ``str.split`` (it has no expression for that), flattened, grouped, counted.

One process with several threads, or several processes with one each (``pathway spawn``). The time is that of ``pw.run``, from the first
process' begin to the last one's end, without interpreter and imports.
"""

import zlib

import pathway as pw
from _processes import arguments, measure


def build():
    """The count of each word."""
    lines = pw.io.plaintext.read(f"{arguments['folder']}/*.txt", mode="static")
    words = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data)).flatten(pw.this.word)
    return words.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())


def digest_of(counts):
    """Of the counts."""
    return [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts)]


measure(build, ("word", "count"), digest_of)
