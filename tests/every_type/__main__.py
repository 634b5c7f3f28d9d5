"""``python -m tests.every_type``: try every combination, write ``docs/types.md``, say what is wrong. ``--only TYPE`` for one."""

from __future__ import annotations

import sys
import time

import click

from tests.checkout import ROOT
from tests.every_type.arrays import COLUMNS
from tests.every_type.combinations import Tried, tried
from tests.every_type.table import BEGIN, END, markdown, summary

PAGE = ROOT / "docs" / "types.md"


@click.command()
@click.option("--only", type=click.Choice(list(COLUMNS)), multiple=True, help="These types, and no table.")
def main(only: tuple[str, ...]) -> None:
    """Try, write, report; ends with 1 when something is neither exact nor refused."""
    began = time.perf_counter()
    found: list[Tried] = [one for kind in only or COLUMNS for one in tried(kind)]
    wrong = [one for one in found if one.problem]
    for one in wrong:
        click.echo(f"{one.kind}, {one.role}, {one.operator}, {one.how}: {one.problem}")
    if not only:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(found)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    click.echo(f"{summary(found)} {len(wrong)} wrong. ({time.perf_counter() - began:.0f} s)")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
