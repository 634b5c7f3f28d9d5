"""Several questions about one text, one after the other, in processes that are started once: ``rd.session``.

    python examples/session.py             # on Ray
    python examples/session.py --local     # in this process

Each question is a dataflow of its own. The first one waits for the processes; the others begin at once in the same ones.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import rayad as rd

WORKERS = 2


def text() -> list[str]:
    """The lines of the Zen of Python, which that module holds with each letter moved by thirteen."""
    from codecs import decode
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()):  # it prints itself
        import this
    return decode(this.s, "rot13").splitlines()


def words_of(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return re.findall(r"[a-z]+", line.lower())


def frequent(lines: rd.Stream) -> rd.Stream:
    """The most frequent words of more than four letters."""
    counts = lines.flat_map(words_of).filter(lambda word: len(word) > 4).key_by(lambda word: word).count()
    return counts.key_by(lambda _: 0).top_k(2, lambda counted: (counted[1], counted[0]))


def longest(lines: rd.Stream) -> rd.Stream:
    """The longest words."""
    return lines.flat_map(words_of).key_by(lambda word: word).distinct().key_by(lambda _: 0).top_k(2, lambda pair: (len(pair[0]), pair[0]))


def initials(lines: rd.Stream) -> rd.Stream:
    """How many words begin with the most frequent first letters."""
    counts = lines.flat_map(words_of).key_by(lambda word: word[0]).count()
    return counts.key_by(lambda _: 0).top_k(2, lambda counted: (counted[1], counted[0]))


QUESTIONS: dict[str, Callable[[rd.Stream], rd.Stream]] = {"frequent": frequent, "longest": longest, "initials": initials}


def flow(name: str = "frequent") -> rd.Dataflow:
    """One question."""
    dataflow = rd.Dataflow(name)
    QUESTIONS[name](dataflow.from_items(text(), name="lines", parts=WORKERS)).collect("answer")
    return dataflow


def main() -> None:
    """Ask them all."""
    is_local = "--local" in sys.argv[1:]
    with nullcontext() if is_local else rd.session(workers=WORKERS):
        for name in QUESTIONS:
            began_s = time.perf_counter()
            result = flow(name).run(runtime="local") if is_local else flow(name).run()
            [(_, (_, answer))] = result["answer"]
            print(f"{name}: {answer} ({time.perf_counter() - began_s:.2f} s)")


if __name__ == "__main__":
    main()
