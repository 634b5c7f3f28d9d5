"""A loop: how many steps does a number take to reach 1, when even ones are halved and odd ones become 3n + 1?

    python examples/collatz_loop.py              # numbers below 1,000, in this process
    python examples/collatz_loop.py 3000 --ray

Each round of the loop is a step of all numbers that have not reached 1. The number of rounds is not given: the loop ends when
nothing is left in it. The second version has a loop inside the loop, which halves until a number is odd: the outer counter counts only the
steps 3n + 1.
"""

from __future__ import annotations

import sys

import rayad as rd

Walk = tuple[int, int, int]
"""The first number, the current one, the steps so far."""


def step(walk: Walk) -> Walk:
    """One step: half of an even number, three times an odd one and one more."""
    start, number, steps = walk
    return (start, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1)


def one_loop(walks: rd.Stream) -> rd.Stream:
    """Round by round until each walk is at 1."""

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        moved = inner.filter(lambda walk: walk[1] != 1).map(step)
        return moved, inner.filter(lambda walk: walk[1] == 1)

    return walks.iterate(body, name="steps")


def nested_loops(walks: rd.Stream) -> rd.Stream:
    """The same with a loop in the loop: inside, even numbers are halved until they are odd; outside, odd ones become 3n + 1."""

    def halve(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        return inner.filter(lambda walk: walk[1] % 2 == 0).map(step), inner.filter(lambda walk: walk[1] % 2 == 1)

    def body(outer: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        odd = outer.iterate(halve, name="halvings")
        return odd.filter(lambda walk: walk[1] != 1).map(step), odd.filter(lambda walk: walk[1] == 1)

    return walks.iterate(body, name="climbs")


def flow(limit: int = 1_000) -> rd.Dataflow:
    """Both loops on the numbers below ``limit``; the three longest walks of each."""
    dataflow = rd.Dataflow("collatz")
    numbers = dataflow.from_items([(n, n, 0) for n in range(1, limit)], name="numbers", parts=2)
    for name, walks in (("one-loop", one_loop(numbers)), ("nested", nested_loops(numbers))):
        walks.key_by(lambda _: 0).top_k(3, lambda walk: (walk[2], -walk[0])).collect(name)
    return dataflow


def main() -> None:
    """Run it and print the longest walks."""
    limits = [int(argument) for argument in sys.argv[1:] if argument.isdigit()] or [1_000]
    result = flow(limits[0]).run(parallelism=2, runtime="ray" if "--ray" in sys.argv[1:] else "local")
    for name in ("one-loop", "nested"):
        [(_, (_, longest))] = result[name]
        found = ", ".join(f"{-negated} ({steps} steps)" for steps, negated in longest)
        print(f"{name}: of the numbers below {limits[0]:,} these take longest to come down to 1: {found}")
    if result["one-loop"] != result["nested"]:
        raise SystemExit("the two loops disagree")


if __name__ == "__main__":
    main()
