"""Node numbers, the table of nodes, and the growing set of edges, against plain Python."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.records.key_hashing import Router, mix64_array
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.nodes import Nodes
from rayad.graphs.numbers import decode_names, distinct, encode_names, number_column, number_of, owners, unmix64_array
from tests.thorough import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
NODES = st.one_of(
    st.integers(),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.booleans(),
    st.floats(allow_nan=False),
    st.tuples(st.integers(), st.text()),
)


@examples(each_run=40, soak=100)
@given(st.lists(INT64))
def test_unmix_is_the_inverse_of_mix(values: list[int]) -> None:
    assert unmix64_array(mix64_array(np.array(values, np.int64))).tolist() == values


@examples(each_run=40, soak=100)
@given(NODES)
def test_a_number_is_an_int64_with_the_hash_of_its_node(node: Any) -> None:
    number = number_of(node)
    assert -(2**63) <= number < 2**63
    assert rd.stable_hash(number) == rd.stable_hash(node)
    assert number_of(number) == number


@examples(each_run=40, soak=100)
@given(st.lists(NODES, min_size=1))
def test_names_survive_a_column(nodes: list[Any]) -> None:
    back = decode_names(encode_names(nodes))
    assert [number_of(node) if name is None else name for node, name in zip(nodes, back, strict=True)] == nodes


@examples(each_run=40, soak=100)
@given(st.lists(st.text(max_size=4)))
def test_columns_and_single_nodes_have_the_same_numbers(texts: list[str]) -> None:
    assert number_column(pa.array(texts, pa.string())).tolist() == [number_of(text) for text in texts]


@examples(each_run=40, soak=100)
@given(st.lists(INT64, min_size=1), st.integers(1, 7))
def test_owners_are_where_the_exchange_sends(values: list[int], parallelism: int) -> None:
    router = Router(parallelism, 256)
    assert owners(np.array(values), parallelism, 256).tolist() == [router.route(value) for value in values]


@examples(each_run=40, soak=100)
@given(st.lists(INT64 | st.integers(0, 50)))
def test_distinct_is_sorted_and_once_each(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@examples(each_run=40, soak=100)
@given(st.lists(st.lists(INT64 | st.integers(0, 60), max_size=40), max_size=8))
def test_the_table_is_a_dict_from_number_to_order_of_arrival(parts: list[list[int]]) -> None:
    nodes, model = Nodes(0, 1, 256), dict[int, int]()
    for part in parts:
        for number in sorted(set(part) - model.keys()):
            model[number] = len(model)
        assert nodes.add(np.array(part, np.int64)).tolist() == [model[number] for number in part]
        asked = [*part, 61, 2**62]
        assert nodes.find(np.array(asked)).tolist() == [model.get(number, -1) for number in asked]
    assert nodes.numbers.tolist() == list(model)


def test_the_table_grows_beyond_its_first_size() -> None:
    nodes = Nodes(0, 1, 256)
    values = np.random.default_rng(1).permutation(50_000)
    for part in np.array_split(values, 7):
        nodes.add(part)
    assert np.array_equal(nodes.numbers[nodes.find(values)], values)
    again = pickle.loads(pickle.dumps(nodes))
    assert np.array_equal(again.find(values), nodes.find(values))


def test_two_nodes_with_one_hash_are_refused() -> None:
    nodes = Nodes(0, 1, 256)
    nodes.add(np.array([5]), pa.array(["a"]))
    with pytest.raises(rd.DataflowError, match="the nodes 'a' and 'b' have one number, the same 64-bit hash"):
        nodes.add(np.array([5]), pa.array(["b"]))


@examples(each_run=40, soak=100)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=15), max_size=8), st.lists(st.integers(0, 9), unique=True)
)
def test_adjacency_is_a_set_of_pairs(parts: list[list[tuple[int, int]]], asked: list[int]) -> None:
    edges, model = Adjacency(), set[tuple[int, int]]()
    for part in parts:
        fresh = edges.add(np.array([u for u, _ in part], np.int64), np.array([v for _, v in part], np.int64))
        assert list(zip(*map(np.ndarray.tolist, fresh), strict=True)) == sorted(set(part) - model)
        model |= set(part)
        at, target = edges.neighbours(np.array(asked, np.int64))
        found = [(asked[i], v) for i, v in zip(at.tolist(), target.tolist(), strict=True)]
        assert sorted(found) == sorted(pair for pair in model if pair[0] in asked)
    assert len(edges) == len(model)
    assert list(zip(*map(np.ndarray.tolist, edges.all_edges()), strict=True)) == sorted(model)
