"""How many iterations a second a loop does: a token goes round through an exchange, each time to the next replica.

- *message a round*: the token is sent on when it arrives; a round is one message between two processes and its progress.
- *notification a round*: it is sent on when its round is complete, as in an iterative computation; a round is a message and a barrier.
- *nested*: the same loop inside further loops, which do only one round: the cost of depth.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import rayad as rd
from benchmarks import machine
from benchmarks.measurement import Measurement, Ratio
from rayad.dataflow.records.key_hashing import Router

TITLE = "Loop iterations"
NEEDS_RAY = True
MODULUS = 1_000_003


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    rounds: int = 10_000
    replicas: tuple[int, ...] = (2, 1, 4)
    depths: tuple[int, ...] = (1, 2, 3)


FULL = Sizes()
QUICK = Sizes(repetitions=2, rounds=200, replicas=(2,), depths=(1, 2))


class Token(NamedTuple):
    """The token; ``trail`` shows which replicas had it, in order."""

    key: int
    round: int
    trail: int
    began_s: float


class Pass(rd.Vertex):
    """Passes the token to the next replica, ``rounds`` times."""

    def __init__(self, keys: list[int], rounds: int, waits: bool) -> None:
        self.keys, self.rounds, self.waits = keys, rounds, waits
        self.held: dict[rd.Timestamp, Token] = {}

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        for token in batch:
            if self.waits:
                self.held[at] = token
                self.notify_at(at)
            else:
                self.pass_on(token, at)

    def on_notify(self, at: rd.Timestamp) -> None:
        self.pass_on(self.held.pop(at), at)

    def pass_on(self, token: Token, at: rd.Timestamp) -> None:
        """Send the token to the next replica, or out of the loop."""
        began_s = token.began_s or time.perf_counter()
        trail = follow(token.trail, self.replica)
        if token.round + 1 < self.rounds:
            self.send_by(0, [Token(self.keys[(self.replica + 1) % self.parallelism], token.round + 1, trail, began_s)], at)
        else:
            self.send_by(1, [(token.round + 1, trail, time.perf_counter() - began_s, os.nice(0))], at)


def follow(trail: int, replica: int) -> int:
    """A number that depends on all replicas so far and their order."""
    return (31 * trail + replica + 1) % MODULUS


def keys_of(replicas: int) -> list[int]:
    """One key for each replica."""
    router = Router(replicas, rd.RunConfig().key_groups)
    return [next(key for key in itertools.count() if router.route(key) == replica) for replica in range(replicas)]


def never(record: Any) -> bool:
    """Nothing goes round the outer loops."""
    return False


def program(rounds: int, replicas: int, depth: int = 1, *, waits: bool = False) -> rd.Dataflow:
    """The dataflow: the token's loop, inside ``depth - 1`` others."""
    keys = keys_of(replicas)
    flow = rd.Dataflow("loop")

    def spin(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again, out = inner.key_by(key_of).vertex(partial(Pass, keys, rounds, waits), outputs=2, name="pass")
        return again, out

    def around(stream: rd.Stream, levels: int) -> rd.Stream:
        if levels == 1:
            return stream.iterate(spin)

        def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
            out = around(inner, levels - 1)
            return out.filter(never), out

        return stream.iterate(body)

    around(flow.from_items([Token(keys[0], 0, 0, 0.0)], name="token"), depth).collect("end")
    return flow


def key_of(token: Token) -> int:
    """The key by which the token is sent."""
    return token.key


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    rounds: int
    trail: int
    seconds: float
    nice: int

    @property
    def rounds_per_s(self) -> float:
        """Iterations a second."""
        return self.rounds / self.seconds


def run_once(rounds: int, replicas: int, depth: int = 1, *, waits: bool = False, **options: Any) -> Run:
    """Run the program once."""
    end = program(rounds, replicas, depth, waits=waits).run(parallelism=replicas, **options)["end"]
    assert len(end) == 1, f"{len(end)} tokens left the loop"
    return Run(*end[0][1])


def trail_of(rounds: int, replicas: int) -> int:
    """The trail in plain Python."""
    trail = 0
    for number in range(rounds):
        trail = follow(trail, number % replicas)
    return trail


def run(sizes: Sizes) -> Measurement:
    """All variants, one after another, several times."""
    out = Measurement("loop", TITLE, asdict(sizes))
    variants: dict[str, dict[str, Any]] = {}
    for n in sizes.replicas:
        variants[f"{n} replicas, message a round"] = {"replicas": n}
        variants[f"{n} replicas, notification a round"] = {"replicas": n, "waits": True}
    for depth in sizes.depths[1:]:
        variants[f"{sizes.replicas[0]} replicas, message a round, depth {depth}"] = {"replicas": sizes.replicas[0], "depth": depth}
    series = {name: out.new_series(name, "rounds/s", "?") for name in variants}
    for _ in range(sizes.repetitions):
        for name, arguments in variants.items():
            machine.settle()
            done = run_once(sizes.rounds, **arguments)
            out.check("the token visited all replicas in turn, every round", done.trail, trail_of(sizes.rounds, arguments["replicas"]))
            out.check("it made all rounds", done.rounds, sizes.rounds)
            series[name].add(done.rounds_per_s)
            series[name].nice = str(done.nice)
    first = next(iter(variants))
    out.ratios = [Ratio(name, first) for name in variants if name != first]
    return out
