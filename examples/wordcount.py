"""Count the words of text files, with live progress. Needs no Java.

    python examples/wordcount.py                        # the Python language reference that comes with every Python
    python examples/wordcount.py my.txt folder/ --parallelism 4
    python examples/wordcount.py --local                # in this process, without Ray
    ray job submit --working-dir examples -- python wordcount.py

Prints the most frequent words, how many there are, and how fast they were counted.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from job_display import JobDisplay
from rich.console import Console
from rich.table import Table

import rayad as rd

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def words_of(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return WORD.findall(line.lower())


def count_words(paths: Any) -> rd.Dataflow:
    """The dataflow: lines, words, a count for each word."""
    flow = rd.Dataflow("wordcount")
    lines = flow.read_text(paths, name="lines")
    lines.flat_map(words_of).key_by(lambda word: word).count(name="counts").collect("words")
    return flow


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/wordcount.py:flow``."""
    return count_words(__file__)


def write_language_reference(folder: Path) -> Path:
    """A real text that every Python has: the chapters of its language reference that ``help()`` shows."""
    from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]

    path = folder / "python-language-reference.txt"
    path.write_text("\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return path


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(min=1), help="Replicas of each vertex.")
@click.option("--times", default=1, show_default=True, type=click.IntRange(min=1), help="Read the text so many times over.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Words to print.")
@click.option("--local", is_flag=True, help="In this process instead of on Ray.")
@click.option("--seed", default=0, show_default=True, help="Of the local runtime's interleaving.")
def main(paths: tuple[Path, ...], parallelism: int, times: int, top: int, local: bool, seed: int) -> None:
    """Count the words of text files (PATHS: files or folders; by default the Python language reference)."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="rayad-wordcount-") as scratch:
        texts = [path.resolve() for path in paths] or [write_language_reference(Path(scratch))]
        size = times * sum(size_of(path) for path in texts)
        console.print(f"counting words of {', '.join(path.name for path in texts)}: {size / 1e6:.2f} MB", highlight=False)
        began_s = time.perf_counter()
        dataflow = count_words([str(path) for path in texts] * times)
        job = dataflow.submit(parallelism=parallelism, runtime="local" if local else "ray", seed=seed)
        result = JobDisplay("wordcount", sources=["lines"], console=console).watch(job)
        seconds = time.perf_counter() - began_s
    counts = Counter(dict(record for _, record in result["words"]))
    show(console, counts, top)
    statistics = result.statistics
    where = "in this process" if local else f"by {statistics.actors} Ray actors, up in {statistics.start_s:.1f} s"
    speed = counts.total() / statistics.run_s
    console.print(
        f"{counts.total():,} words, {len(counts):,} distinct, counted in {statistics.run_s:.2f} s: {speed:,.0f} words/s {where}; "
        f"{seconds:.1f} s in all",
        highlight=False,
        soft_wrap=True,
    )


def show(console: Console, counts: Counter[str], top: int) -> None:
    """Print the most frequent words."""
    table = Table(header_style="bold", border_style="dim")
    table.add_column("word")
    table.add_column("times", justify="right")
    for word, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]:
        table.add_row(word, f"{times:,}")
    console.print(table)


if __name__ == "__main__":
    main()
