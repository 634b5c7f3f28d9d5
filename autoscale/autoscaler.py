"""The autoscaler's core: monitor, analyse, plan; executing is the shell's (MPR, PUCRS 2023, 7.1, calls the four MAPE).

The shell collects the readings of all replicas every few seconds and calls :meth:`AutoscalerCore.on_readings`. If the decision changes the
layout, the shell asks the coordinator for the new layout and reports the outcome: :meth:`on_rescaled` or :meth:`on_refused`. Until then
every further round gives `Hold`.

A policy that fails must not end a job that runs well without it: the journal gets a hold whose reason is the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from rayad.autoscale.decisions import Decision, Hold, Policy, Record, ReplicaCounts, ScalingState
from rayad.autoscale.journal import DecisionJournal
from rayad.autoscale.policies import check_target
from rayad.autoscale.samples import JobSample, sample_between
from rayad.autoscale.scaling_graph import ScalingGraph
from rayad.autoscale.statistics import ReplicaReading
from rayad.progress import ConfigError, say

ROUNDS_MOST = 1000


class AutoscalerCore:
    """One job's autoscaler. All times are seconds of the clock that stamps the readings.

    Args:
        graph, policy: what is scaled, and how.
        layout: replicas by vertex, now.
        now_s: when this layout began.
        window_s: length of a sample (at least back to the round before): longer is steadier and slower.
        warm_up_s: a sample begins at least this long after the last change, as soon as there has been a round that late; see `WarmUp`.
        retry_s: how long after a refusal no change is asked for.
        journal: the journal of the autoscaler before this one, which is continued; a new one by default.
    """

    def __init__(
        self,
        graph: ScalingGraph,
        policy: Policy,
        layout: ReplicaCounts,
        now_s: float,
        *,
        window_s: float = 0.0,
        warm_up_s: float = 0.0,
        retry_s: float = 30.0,
        journal: DecisionJournal | None = None,
    ) -> None:
        self.graph = graph
        self.policy = policy
        self.journal = journal if journal is not None else DecisionJournal()
        self.samples: JobSample | None = None
        self._window_s = window_s
        self._warm_up_s = warm_up_s
        self._retry_s = retry_s
        self._rounds: deque[tuple[float, tuple[ReplicaReading, ...]]] = deque(maxlen=ROUNDS_MOST)
        self._refused_s: float | None = None
        self._layout = dict(layout)
        self._changed_s = now_s
        self.state()  # the layout must fit the graph

    @property
    def layout(self) -> Mapping[str, int]:
        """Replicas by vertex, now."""
        return dict(self._layout)

    def state(self) -> ScalingState:
        """What the policy is given besides the sample."""
        return ScalingState(self.graph, dict(self._layout), self._changed_s, self.journal.records)

    def on_readings(self, readings: Iterable[ReplicaReading], now_s: float) -> Decision:
        """A round: the latest reading of every replica. Journals the decision and gives it; the shell executes its changes."""
        found = tuple(readings)
        samples = sample_between(self._before(now_s), found) if self._rounds else None
        self._rounds.append((now_s, found))
        if samples is not None:
            self.samples = samples
            self.journal.on_samples(samples)
        decision = self._decide(samples, now_s)
        self.journal.add(samples, self._layout, decision, now_s)
        return decision

    def on_rescaled(self, layout: ReplicaCounts, now_s: float, answer: str = "") -> None:
        """A layout took effect: the one that the last decision asked for, or one that a user asked for."""
        if self.journal.waiting is not None:
            if {**self._layout, **self.journal.waiting.decision.changes} == dict(layout):
                self.journal.on_applied(now_s, answer)
            else:
                self.journal.on_refused(answer or "another layout took effect first")
        self._layout = dict(layout)
        self._changed_s = now_s
        self._refused_s = None
        self.state()

    def on_refused(self, answer: str, now_s: float) -> Record | None:
        """The change asked for was refused (no room for new replicas, a failure): the old layout stays. Gives the decision's record."""
        number = self.journal.waiting.number if self.journal.waiting is not None else None
        self.journal.on_refused(answer)
        self._refused_s = now_s
        return next((r for r in self.journal.records if r.number == number), None)

    def forget(self) -> None:
        """Earlier readings cannot be compared with later ones: windows begin again."""
        self._rounds.clear()

    def _before(self, now_s: float) -> tuple[ReplicaReading, ...]:
        """The readings at which the window begins; drops the rounds at which no later window can begin."""
        warm_s, begin_s = self._changed_s + self._warm_up_s, now_s - self._window_s
        while len(self._rounds) > 1 and (self._rounds[1][0] <= begin_s or self._rounds[0][0] < warm_s):
            self._rounds.popleft()
        return self._rounds[0][1]

    def _decide(self, samples: JobSample | None, now_s: float) -> Decision:
        if samples is None:
            return Hold(reason="the first readings: there is nothing to compare them with")
        if self.journal.waiting is not None:
            return Hold(reason=f"the change of decision {self.journal.waiting.number} is under way")
        if self._refused_s is not None and now_s - self._refused_s < self._retry_s:
            return Hold(reason=f"a change was refused {now_s - self._refused_s:.6g} s ago; asking again after {self._retry_s:.6g} s")
        state = self.state()
        try:
            decision = self.policy(samples, state, now_s)
            if not isinstance(decision, Decision):
                raise ConfigError(f"the policy gave {decision!r}, which is not a Decision; FunctionPolicy allows plain answers")
            check_target(decision.changes, state, "the policy")
        except Exception as error:  # a user's code: whatever it raises
            return Hold(reason=f"the policy failed: {type(error).__name__}: {say(error)}")
        return decision
