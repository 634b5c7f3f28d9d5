"""DS2 on real Ray: decisions until every vertex has the replicas that its load needs, from one replica and from too many.

The work is waiting (sleep), so that more replicas than processors can be compared. Lines arrive by the clock at a word count (split,
count), and numbers at a loop, in which each goes round several times. The number of replicas that is needed follows from rate and work and
is computed here. The aim is at most three decisions, as in the paper.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rayad as rd
from benchmarks.machine import settle
from benchmarks.measurement import Measurement
from rayad.actors.scaling.files import read_lines

TITLE = "DS2 on real Ray: decisions to the target"
NEEDS_RAY = True
WORDS, ROUNDS = 4, 9


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        seconds: of input.
        too_many: replicas of each vertex in the case of too many.
        most: the largest number of replicas of a vertex.
        lines_per_s: the rate of lines; each has WORDS words.
        split_s, count_s: work of a line, and of a word.
        numbers_per_s: the rate of numbers into the loop; number n goes round ``1 + n % ROUNDS`` times.
        step_s: work of a round.
        utilization: the largest share of time that replicas shall be busy.
    """

    repetitions: int = 3
    seconds: float = 60.0
    too_many: int = 7
    most: int = 8
    lines_per_s: float = 40.0
    split_s: float = 0.030
    count_s: float = 0.013
    numbers_per_s: float = 20.0
    step_s: float = 0.026
    utilization: float = 0.8
    interval_s: float = 1.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, seconds=15.0, too_many=3, most=3, lines_per_s=20.0, numbers_per_s=10.0, interval_s=0.5)


class ByTheClock(rd.Source):
    """The numbers from 0 on, ``per_s`` a second, whether they are read or not."""

    blocks = False

    def __init__(self, rate_per_s: float, count: int) -> None:
        self.rate_per_s, self.count = rate_per_s, count

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return _Part(self.rate_per_s, self.count, resume or 0)


class _Part(rd.SourcePart):
    def __init__(self, rate_per_s: float, count: int, given: int) -> None:
        self.rate_per_s, self.count, self.given = rate_per_s, count, given
        self.began_s = time.monotonic() - given / rate_per_s

    def _due(self) -> int:
        return min(self.count, int((time.monotonic() - self.began_s) * self.rate_per_s))

    def next_batch(self) -> rd.SourceBatch | None:
        if self.given >= self.count:
            return None
        batch = list(range(self.given, min(self._due(), self.given + 4)))
        self.given += len(batch)
        return rd.SourceBatch(0, batch)

    def offset(self) -> int:
        return self.given

    def backlog(self) -> int:
        return self._due() - self.given


class Split:
    """Splits a line into words, and waits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, line: int) -> list[int]:
        time.sleep(self.seconds)
        return [(WORDS * line + place) % 97 for place in range(WORDS)]


class Count:
    """Counts a word, and waits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, count: int, word: int) -> tuple[int, int]:
        time.sleep(self.seconds)
        return count + 1, count + 1


class Step:
    """Takes one from the rounds that are left, and waits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, record: tuple[int, int]) -> tuple[int, int]:
        time.sleep(self.seconds)
        return record[0], record[1] - 1


class TooMany:
    """Gives `Hold` until a vertex has too many replicas, then decides as another policy does."""

    def __init__(self, policy: Any, replicas: int) -> None:
        self.policy, self.replicas, self.begins = policy, replicas, False

    def __call__(self, samples: Any, state: Any, now_s: float) -> Any:
        self.begins = self.begins or max(state.layout.values()) >= self.replicas
        return self.policy(samples, state, now_s) if self.begins else rd.autoscale.Hold(reason="there are not too many yet")


@dataclass(frozen=True, slots=True)
class Case:
    """A dataflow, its right result, and the number of replicas that it needs."""

    flow: rd.Dataflow
    expected: list[Any]
    needs: Mapping[str, int]


def word_count(sizes: Sizes) -> Case:
    """Lines to words to counts."""
    count = int(sizes.seconds * sizes.lines_per_s)
    flow = rd.Dataflow("ds2-words")
    words = flow.source(ByTheClock(sizes.lines_per_s, count), name="lines").rebalance(name="split").flat_map(Split(sizes.split_s))
    words.key_by(lambda word: word).stateful_map(Count(sizes.count_s), 0, name="count").collect("out")
    seen: dict[int, int] = {}
    expected = []
    for place in range(WORDS * count):
        seen[place % 97] = seen.get(place % 97, 0) + 1
        expected.append((place % 97, seen[place % 97]))
    busy = {"split": sizes.lines_per_s * sizes.split_s, "count": WORDS * sizes.lines_per_s * sizes.count_s}
    return Case(flow, sorted(expected), _needs(busy, sizes))


def loop(sizes: Sizes) -> Case:
    """Numbers that go round a loop."""
    count = int(sizes.seconds * sizes.numbers_per_s)
    flow = rd.Dataflow("ds2-loop")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.rebalance(name="step").map(Step(sizes.step_s))
        return stepped.filter(lambda record: record[1] > 0), stepped.filter(lambda record: record[1] == 0)

    numbers = flow.source(ByTheClock(sizes.numbers_per_s, count), name="numbers").map(lambda n: (n, 1 + n % ROUNDS))
    numbers.iterate(body, name="rounds").collect("out")
    busy = {"step": sizes.numbers_per_s * (1 + ROUNDS) / 2 * sizes.step_s}
    return Case(flow, [(n, 0) for n in range(count)], _needs(busy, sizes))


def _needs(busy: Mapping[str, float], sizes: Sizes) -> dict[str, int]:
    return {name: min(sizes.most, math.ceil(replicas / sizes.utilization)) for name, replicas in busy.items()}


CASES = {"word count": word_count, "loop": loop}


def run_once(case: Case, replicas: int, sizes: Sizes) -> tuple[dict[str, int], list[dict[str, Any]], list[Any]]:
    """The layout at the end, the decisions that were applied, and the output."""
    model = rd.autoscale.DS2(utilization=sizes.utilization, down_margin=0.05)
    seconds = 3 * sizes.interval_s
    policy = rd.autoscale.recommended(model, warm_up_s=seconds, up_cool_down_s=seconds, down_cool_down_s=2 * seconds, down_rounds=2)
    with tempfile.TemporaryDirectory(prefix="rayad-ds2-") as folder:
        journal = str(Path(folder) / "scaling.jsonl")
        scaling = rd.ScalingConfig(
            parallelism=dict.fromkeys(case.needs, (1, sizes.most)),
            policy=TooMany(policy, replicas),
            report_interval_s=sizes.interval_s,
            window_s=2 * seconds,
            warm_up_s=seconds,
            journal=journal,
        )
        job = case.flow.submit(rd.RunConfig(cpus_per_replica=0.001), scaling)
        if replicas > 1:
            job.rescale(dict.fromkeys(case.needs, replicas))
        result = job.wait()
        lines = read_lines(journal)
    decisions = {line["number"]: line for line in lines if line["kind"] == "decision" and line["outcome"] == "applied"}
    scaled = result.statistics.scaling
    assert scaled is not None, "the job scales itself"
    return {name: scaled.layout[name] for name in case.needs}, list(decisions.values()), sorted(record for _, record in result["out"])


def run(sizes: Sizes) -> Measurement:
    """Both dataflows, from one replica and from too many."""
    out = Measurement("ds2", TITLE, asdict(sizes))
    head = ["dataflow", "from", "needed", "in the end", "decisions", "first to last, s", "why the last"]
    table = out.new_table("Each run", *head)
    for _ in range(sizes.repetitions):
        for name, build in CASES.items():
            for replicas in (1, sizes.too_many):
                settle()
                case = build(sizes)
                layout, decisions, records = run_once(case, replicas, sizes)
                out.check("every record came out as it must, whatever the replicas", records, case.expected)
                times_s = [line["decided_s"] for line in decisions]
                series = next((one for one in out.series if one.name == f"{name}, from {replicas}"), None)
                series = series or out.new_series(f"{name}, from {replicas}", "decisions", "?")
                series.add(float(len(decisions)))
                why = decisions[-1]["reason"] if decisions else "-"
                took_s = max(times_s) - min(times_s) if times_s else 0.0
                table.add(name, replicas, _words(case.needs), _words(layout), len(decisions), took_s, why)
    return out


def _words(layout: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in layout.items())
