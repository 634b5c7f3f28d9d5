"""The notebooks as they are stored, and the first one in one process. With Ray and Spark: tests/cluster/test_examples_scripts.py."""

from __future__ import annotations

import re

import pytest

from tests.examples.notebook import NOTEBOOKS, read_notebook, run_notebook, stored_outputs
from tests.examples.running import refuse_chatter


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_with_what_they_print_and_nothing_of_the_machine(name: str) -> None:
    cells = [cell for cell in read_notebook(name).cells if cell.cell_type == "code"]
    assert len(cells) >= 5
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(set(cell.metadata) <= {"tags"} for cell in cells)
    outputs = [output for cell in cells for output in cell.outputs]
    assert {(output.output_type, output.name) for output in outputs} == {("stream", "stdout")}
    printed = "".join(output.text for output in outputs)
    assert len(printed.splitlines()) >= 5
    assert not re.findall(r"/(?:home|work|tmp|root|Users)\S*|\b\d+\.\d+\.\d+\.\d+\b|\d{4}-\d\d-\d\d|\d\d:\d\d|\b[\d.]+ m?s\b", printed)
    refuse_chatter(printed)


def test_the_notebook_runs_from_a_list_to_a_vertex_of_ones_own() -> None:
    printed = run_notebook()
    assert printed == stored_outputs()
    counts, plan, orders, windows, loop, graph, live, vertex = printed
    assert "(0) ('be', 2)" in counts.splitlines()
    assert "5 operators in 2 stages, 3 vertex actors" in plan
    assert orders.splitlines()[0].endswith("(Timestamp(1), ('apples', 5)), (Timestamp(2), ('pears', 6)), (Timestamp(2), ('plums', 1))]")
    assert windows.splitlines() == [
        "epoch 2: a from 0 to 10: 21.0",
        "epoch 2: a from 10 to 20: 24.0",
        "epoch 2: b from 0 to 10: 18.0",
        "epoch 3: b from 20 to 30: 19.0",
        "late: [('a', Window(start=0, end=10), {'sensor': 'a', 'at': 3, 'degrees': 99})]",
    ]
    assert loop == "871 takes 178 steps to reach 1\n"
    assert graph.splitlines() == GROUPS
    assert live.splitlines()[:2] == ["complete before the promise: False", "complete after it:           True"]
    assert vertex.splitlines()[1] == "[(Timestamp(0), ('be', 1)), (Timestamp(0), ('to', 2)), (Timestamp(1), ('be', 1))]"


GROUPS = [
    "epoch 0: ann is in the group of ann",
    "epoch 0: bob is in the group of ann",
    "epoch 0: cid is in the group of cid",
    "epoch 0: dan is in the group of cid",
    "epoch 1: eve is in the group of cid",
    "epoch 2: cid is in the group of ann",
    "epoch 2: dan is in the group of ann",
    "epoch 2: eve is in the group of ann",
]


def test_the_notebook_of_windows_prints_what_is_stored() -> None:
    printed = run_notebook(name="windows_and_late_data.ipynb")
    assert printed == stored_outputs(name="windows_and_late_data.ipynb")
    assert "  late: [('kiln', 6, 830), ('kiln', 3, 999)]" in printed[1].splitlines()


def test_the_notebook_of_collections_prints_what_is_stored() -> None:
    printed = run_notebook(name="live_collection.ipynb")
    assert printed == stored_outputs(name="live_collection.ipynb")
    assert "reached, epoch 2: -bob -cid" in printed[-1].splitlines()
