"""Where columns are known, what an operator refuses for its type is refused when the program is written; its schema is what it gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.every_type.arrays import COLUMNS
from tests.every_type.combinations import batch_of, is_length, is_time, run_operator
from tests.every_type.operators import Operator, operators
from tests.every_type.test_every_type import TRIED
from tests.thorough import by_turns

BY_VALUE = {"null", "sparse_union", "dense_union", "time64[ns]"}
"""Types that do not tell what their values are, or that hold some which Python has and some which it does not."""
NONE_MEET = {"given windows"}
"""Each window has one value of these, so none is compared with another."""


def parts_of(kind: str) -> list[tuple[Operator, pa.RecordBatch]]:
    """Every operator, and a batch for it."""
    whole = batch_of(kind)
    has_times = is_time(kind) or pa.types.is_dictionary(COLUMNS[kind].type)
    timed = whole.filter(whole.column("x").is_valid()) if has_times else whole
    lengths = "day" if kind.startswith("date") else "length" if is_length(kind) else "number"
    return [(operator, timed if operator.role == "time" else whole) for operator in operators(lengths)]


@by_turns(2)
@pytest.mark.parametrize("kind", TRIED)
def test_what_is_refused_for_its_type_is_refused_when_the_program_is_written(kind: str) -> None:
    later: list[str] = []
    for operator, batch in parts_of(kind):
        flow = rd.Dataflow()
        name = f"{operator.role}: {operator.name}"
        try:
            stream = operator.build(flow.from_arrow(batch))
        except rd.DataflowError as error:
            if " at operators.py:" not in str(error):
                raise
            if operator.name not in NONE_MEET:
                with pytest.raises(rd.DataflowError):
                    run_operator(operator, [batch], of_epochs=False)
            continue
        seen: list[Any] = []
        stream.map_batches(lambda batch, seen=seen: (seen.append(batch), [])[1]).collect("out")
        try:
            flow.run(runtime="local")
        except rd.DataflowError:
            later.append(name)
            continue
        given = {str(part.schema.remove_metadata()) for part in seen if isinstance(part, pa.RecordBatch)}
        assert stream.schema is None or given <= {str(stream.schema)}, name
    assert not later or kind in BY_VALUE
