"""Random programs give what the model says: under any interleaving, with any number of replicas, fused or not."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import rayad as rd
from tests.programs import model as m
from tests.programs.random_programs import RandomProgram, TooLarge, build, evaluate, programs


@pytest.mark.parametrize("exchange", [False, True], ids=["fused", "exchanged"])
@settings(max_examples=60)
@given(program=programs(), seed=st.integers(0, 10_000), parallelism=st.integers(1, 3))
def test_random_programs_give_what_the_model_says(exchange: bool, program: RandomProgram, seed: int, parallelism: int) -> None:
    try:
        expected = evaluate(program)
    except TooLarge:
        reject()
    flow = rd.Dataflow()
    build(program, flow, exchange=exchange)
    job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
    result = job.wait(timeout_s=60)
    for name, stream in expected.items():
        m.require_same(result[name], stream, f"stream {name}")
    job.check_invariants()
