"""Prime numbers below a limit: tiny items of very unequal cost.

    python examples/mpr/primes.py                                  # on Ray, two replicas
    python examples/mpr/primes.py --runtime pool --limit 20000     # a call for each number: see how slow that is
    python examples/mpr/primes.py --runtime sequential
    python examples/mpr/primes.py --waiting-ms 5 --policy mpr --goal 10000 --replicas 10 --plot primes.png   # figure 7.3

An even number takes a tenth of a microsecond, a prime of six digits some ten microseconds. The dataflow sends numbers in batches; a pool of
actors gets a call for each number (or for each --chunk of them).
"""

from __future__ import annotations

from functools import partial

import click
from command_line import COMMON, execute
from kernels import prime_or_zero
from outputs import Numbers, md5_of_array
from versions import Application, dataflow

import rayad as rd


def application(limit: int = 300_000) -> Application:
    """The numbers below ``limit``; with a kernel that waits, each prime is a full load."""
    return Application("primes", partial(range, limit), prime_or_zero, bool, Numbers, md5_of_array, batch_items=1000)


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/mpr/primes.py:flow``."""
    return dataflow(application())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--limit", default=300_000, show_default=True, type=click.IntRange(min=1), help="Numbers below this.")
@COMMON
def main(limit: int, **common: object) -> None:
    """Find prime numbers and compare them with those that one process finds."""
    found = execute(application(limit), **common)
    print(f"{len(found):,} primes below {limit:,}" + (f", the largest is {found[-1]:,}" if len(found) else ""))


if __name__ == "__main__":
    main()
