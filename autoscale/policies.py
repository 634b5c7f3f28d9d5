"""The policies by name, and a user's own function as one.

``policy(samples, state, now_s)`` gives a decision. `mpr`, `ds2` and `targets` decide; `limits` wraps them. A user's own is a function with
these arguments that gives a decision, or just the replicas that it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rayad.autoscale.decisions import Decision, Hold, Policy, ScalingState, decision_for
from rayad.autoscale.ds2 import DS2
from rayad.autoscale.limits import Bounds, CoolDown, Hysteresis, MaxStep, WarmUp
from rayad.autoscale.samples import JobSample
from rayad.progress import ConfigError, DataflowError, show

Answer = Decision | Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """A user's function as a policy. It returns a decision, wanted replicas by vertex name (others stay), or None to hold.

    Raises DataflowError if it returns anything else.

    >>> FunctionPolicy(lambda samples, state, now_s: {"count": 4}).function.__name__
    '<lambda>'
    """

    function: Callable[[JobSample, ScalingState, float], Answer]

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """Ask the function."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        answer = self.function(samples, state, now_s)
        if isinstance(answer, Decision):
            return answer
        if answer is None:
            return Hold(reason=f"{name} gave None")
        if not isinstance(answer, Mapping):
            raise DataflowError(f"the policy {name} gave {show(answer)}: it must give a decision, replicas by vertex name, or None")
        check_target(answer, state, f"the policy {name}")
        return decision_for(state.layout, answer, Hold(reason=f"{name} wants {dict(answer)}", wanted=dict(answer)))


def check_target(target: Mapping[str, int], state: ScalingState, who: str) -> None:
    """Replicas are ints of at least 1, of vertices that exist and may be scaled. Raises DataflowError."""
    for name, count in target.items():
        vertex = state.graph.by_name.get(name)
        if vertex is None:
            raise DataflowError(f"{who} names {name!r}: the vertices are {sorted(state.graph.by_name)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise DataflowError(f"{who} asks for {count!r} replicas of {name!r}: it must be an int of at least 1")
        if vertex.fixed is not None and count != state.layout[name]:
            raise DataflowError(f"{who} asks for {count} replicas of {name!r}, which stays at {state.layout[name]}: {vertex.fixed}")
        if count != state.layout[name] and vertex.clamp(count) != count:
            raise DataflowError(f"{who} asks for {count} replicas of {name!r}: it can have {vertex.least} to {vertex.most}")


def observe(samples: JobSample, state: ScalingState, now_s: float) -> Decision:
    """Always `Hold`: for jobs that need statistics and no scaling."""
    return Hold(reason="only observed")


def recommended(
    policy: Policy,
    *,
    warm_up_s: float = 5.0,
    up_cool_down_s: float = 10.0,
    down_cool_down_s: float = 60.0,
    down_rounds: int = 3,
    total_most: int | None = None,
) -> Policy:
    """A policy with the limits that a running job should have: warm-up, hysteresis on the way down, cool-down, steps, bounds.

    Their order: hysteresis sees every decision; cool-down and steps limit what it lets through; bounds come last, since they always apply.
    """
    patient = Hysteresis(WarmUp(policy, warm_up_s), down_rounds=down_rounds)
    stepped = MaxStep(CoolDown(patient, up_cool_down_s, down_cool_down_s), up_factor=4.0, down_factor=8.0)
    return Bounds(stepped, total_most=total_most)


def policy_for(what: str | Policy) -> Policy:
    """What ``ScalingConfig(policy=...)`` means: ``"ds2"``, ``"observe"``, or a function or policy of one's own, taken as it is.

    ``"ds2"``: replicas at most 80 % busy, queues worked off within a minute, 10 % margin on the way down, a correction where sources still
    read 10 % less than they must, and :func:`recommended` limits. ``"observe"`` measures and always holds. Raises ConfigError for another
    name.
    """
    if isinstance(what, str):
        if what == "observe":
            return observe
        if what != "ds2":
            raise ConfigError(
                f"there is no policy {what!r}: name 'ds2' or 'observe', or give a function (samples, state, now_s) or a policy"
            )
        return recommended(DS2(utilization=0.8, down_margin=0.1, catch_up_s=60.0, lag_s=1.0, target_rate_ratio=1.1))
    if not callable(what):
        raise ConfigError(f"the policy is {what!r}: name 'ds2' or 'observe', or give a function (samples, state, now_s) or a policy")
    return FunctionPolicy(what)
