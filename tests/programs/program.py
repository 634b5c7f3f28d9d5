"""What a test program is: a dataflow, what it must give, and how it is fed. The same programs run on every runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import rayad as rd
from tests.programs.model import Timed, require_same

Build = Callable[[rd.Dataflow], None]
Expected = dict[str, Timed]


def nothing_to_feed(job: Any) -> None:
    """The job reads its sources."""


@dataclass(frozen=True)
class Program:
    """One program.

    Args:
        build: adds operators and sinks to an empty dataflow.
        expected: gives, for each sink, its records with their times.
        check: looks at the whole result, where that is not a list of timed records.
        feed: sends to the live inputs of the running job, and closes them.
        parallelism: when the program needs a certain one.
    """

    name: str
    build: Build
    expected: Callable[[], Expected] = dict
    check: Callable[[Any], None] | None = None
    feed: Callable[[Any], None] = nothing_to_feed
    parallelism: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def flow(self) -> rd.Dataflow:
        """The dataflow, built again."""
        flow = rd.Dataflow(self.name)
        self.build(flow)
        return flow

    def verify(self, result: Any) -> None:
        """Raise AssertionError unless the result is what it must be."""
        for sink, timed in self.expected().items():
            require_same(result[sink], timed, f"{self.name}, sink {sink!r}")
        if self.check is not None:
            self.check(result)

    def run(self, **options: Any) -> Any:
        """Submit with these options (``runtime="local", seed=1`` ...), feed, wait, verify; gives the job."""
        options = {**options, **self.options}
        if self.parallelism is not None:
            options["parallelism"] = self.parallelism
        job = self.flow().submit(**options)
        try:
            self.feed(job)
            self.verify(job.wait(timeout_s=100))
        except BaseException:
            job.cancel()
            raise
        return job
