"""Graphs as tensors: each column by its name, and what must not change them."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.features import schema
from passwright.features.graph_tensors import NOTHING, GraphTensors, Taken, graph_tensors
from passwright.passes.graph import GraphView
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch
from passwright.passes.testing import capture
from passwright.scheduler.inductor import clone_for_compile

log = math.log1p


def same(first: GraphTensors, second: GraphTensors) -> bool:
    return first.words == second.words and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("nodes", "edges", "edge_features")
    )


def columns(found: GraphTensors) -> dict[str, list[float]]:
    return {name: found.column(name).tolist() for name in schema.NODE}


@pytest.fixture
def small() -> GraphTensors:
    """x, w, y = linear(x, w), r = relu(y), t = x.T, and the output of r and t."""
    s = Sketch()
    x, w = s.input(2, 16, requires_grad=True), s.input(8, 16)
    y = s.call(F.linear, x, w)
    r = s.call(torch.relu, y)
    s.output(r, s.call(torch.permute, x, (1, 0)))
    seconds = {y: Taken(3e-6, 2e-6, 1e-6), r: Taken(2e-6, 0, 0)}
    return graph_tensors(s.view(), lambda node: seconds.get(node, NOTHING))


#: Of x, w, y, r, t and the output; numbers of bytes are 128, 512, 64, 64, 128 and none.
SMALL = {
    "log_elements": [log(32), log(128), log(16), log(16), log(32), 0],
    "log_bytes": [log(128), log(512), log(64), log(64), log(128), 0],
    "dims": [2, 2, 2, 2, 2, 0],
    "log_first": [log(2), log(8), log(2), log(2), log(16), 0],
    "log_inner": [log(2), log(8), log(2), log(2), log(16), 0],
    "log_last": [log(16), log(16), log(8), log(8), log(2), 0],
    "last_by_8": [1, 1, 1, 1, 0, 0],
    "last_by_16": [1, 1, 0, 0, 0, 0],
    "last_by_64": [0, 0, 0, 0, 0, 0],
    "last_by_128": [0, 0, 0, 0, 0, 0],
    "inner_by_8": [0, 1, 0, 0, 1, 0],
    "inner_by_64": [0, 0, 0, 0, 0, 0],
    "is_float32": [1, 1, 1, 1, 1, 0],
    "is_half": [0, 0, 0, 0, 0, 0],
    "is_float64": [0, 0, 0, 0, 0, 0],
    "is_integer": [0, 0, 0, 0, 0, 0],
    "is_bool": [0, 0, 0, 0, 0, 0],
    "is_tensor": [1, 1, 1, 1, 1, 0],
    "is_contiguous": [1, 1, 1, 1, 0, 0],
    "is_input": [1, 1, 0, 0, 0, 0],
    "is_output": [0, 0, 0, 1, 1, 0],
    "is_view": [0, 0, 0, 0, 1, 0],
    "needs_grad": [1, 0, 1, 1, 1, 0],
    "log_inputs": [0, 0, log(2), log(1), log(1), log(2)],
    "log_users": [log(2), log(1), log(1), log(1), log(1), 0],
    "log_launch": [0, 0, log(3), log(2), 0, 0],
    "log_arithmetic": [0, 0, log(2), 0, 0, 0],
    "log_traffic": [0, 0, log(1), 0, 0, 0],
    # Eight microseconds by y and r, none by t.
    "criticality": [1, 1, 1, 1, 0, 1],
    # x goes by halves to y and t.
    "flow": [320 / 896, 576 / 896, 704 / 896, 704 / 896, 192 / 896, 1],
    "depth": [0, 0, 1 / 3, 2 / 3, 1 / 3, 1],
}


def test_the_schema_names_every_column_of_the_small_graph(small: GraphTensors) -> None:
    assert tuple(SMALL) == schema.NODE
    assert small.nodes.shape == (6, len(schema.NODE))
    assert small.nodes.dtype == np.float32


@pytest.mark.parametrize("name", schema.NODE)
def test_each_column(small: GraphTensors, name: str) -> None:
    assert small.column(name).tolist() == pytest.approx(SMALL[name], abs=1e-6)


def test_words_stand_in_graph_order(small: GraphTensors) -> None:
    inputs = ("placeholder", "placeholder")
    assert small.words == (*inputs, "Linear", "Unary relu", "Permute", "output")
    assert list(small.places.values()) == list(range(6))


def test_edges_go_from_producer_to_user(small: GraphTensors) -> None:
    assert small.edges.dtype == np.int64
    assert small.edges.T.tolist() == [[0, 2], [1, 2], [2, 3], [0, 4], [3, 5], [4, 5]]


def test_edges_say_what_goes_along_them(small: GraphTensors) -> None:
    assert small.edge_features.dtype == np.float32
    found = dict(zip(schema.EDGE, small.edge_features.T.tolist(), strict=True))
    nbytes = [log(n) for n in (128, 512, 64, 128, 64, 128)]
    assert found["log_bytes"] == pytest.approx(nbytes)
    assert found["log_position"] == pytest.approx([0, log(1), 0, 0, 0, log(1)])
    assert found["shares_memory"] == [0, 0, 0, 1, 0, 0]


def test_types_and_divisibility() -> None:
    s = Sketch()
    types = (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool, torch.complex64)
    s.output(*(s.input(64, 128, dtype=dtype) for dtype in types))
    found = columns(graph_tensors(s.view()))
    assert found["is_half"][:6] == [1, 1, 0, 0, 0, 0]
    assert found["is_float64"][:6] == [0, 0, 1, 0, 0, 0]
    assert found["is_integer"][:6] == [0, 0, 0, 1, 0, 0]
    assert found["is_bool"][:6] == [0, 0, 0, 0, 1, 0]
    assert not any(found["is_float32"])
    for name in ("last_by_64", "last_by_128", "inner_by_8", "inner_by_64"):
        assert found[name][:6] == [1] * 6


def test_several_tensors_count_together_and_the_first_gives_the_shape() -> None:
    s = Sketch()
    split = s.call(torch.split, s.input(4, 6), [2, 4], 1)
    s.output(*(s.call(operator.getitem, split, i) for i in range(2)))
    found = columns(graph_tensors(s.view()))
    assert found["log_elements"][1] == pytest.approx(log(24))
    assert found["log_last"][1] == pytest.approx(log(2))
    assert found["is_tensor"][1] == 1


def test_a_number_has_no_dims() -> None:
    s = Sketch()
    s.output(s.input())
    found = columns(graph_tensors(s.view()))
    assert (found["dims"][0], found["is_tensor"][0]) == (0, 1)
    assert found["log_first"][0] == found["log_last"][0] == pytest.approx(log(1))


def test_a_graph_without_nodes() -> None:
    found = graph_tensors(GraphView(fx.Graph()))
    assert found.nodes.shape == (0, len(schema.NODE))
    assert found.edges.shape == (2, 0)
    assert found.edge_features.shape == (0, len(schema.EDGE))


def test_a_sparse_input() -> None:
    s = Sketch()
    x = s.graph.placeholder("x0")
    with s.mode:
        x.meta[s.key] = torch.empty(4, 8, layout=torch.sparse_coo)
    s.output(s.call("to_dense", x))
    assert columns(graph_tensors(s.view()))["is_contiguous"][:2] == [0, 1]


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_are_finite_and_equal_in_a_clone(seed: int) -> None:
    module = random_graph(seed).module
    found = graph_tensors(GraphView(module.graph))
    for array in (found.nodes, found.edge_features):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
    assert len(found.words) == len(found.nodes) == len(module.graph.nodes)
    assert (found.edges[0] < found.edges[1]).all()
    assert same(found, graph_tensors(GraphView(clone_for_compile(module).graph)))


Cut = Callable[[torch.Tensor], Any]
Function = Callable[[torch.Tensor], torch.Tensor]


def captured(cut: Cut, relu: Function) -> GraphTensors:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = cut(x)
        return torch.cat([relu(a), F.linear(b, w)], 1)

    return graph_tensors(GraphView(capture(fn, (torch.randn(2, 8), torch.randn(3, 4)))[0].graph))


@pytest.mark.parametrize(
    ("cut", "relu"),
    [
        (lambda x: torch.split(x, 4, 1), torch.relu),
        (lambda x: torch.split(x, [4, 4], -1), F.relu),
        (lambda x: x.split(4, dim=1), lambda a: a.relu()),
        (lambda x: x.chunk(2, 1), F.relu),
        (lambda x: torch.chunk(x, 2, dim=-1), torch.relu),
    ],
    ids=["torch.split", "sizes", "Tensor.split", "Tensor.chunk", "torch.chunk"],
)
def test_a_spelling_changes_nothing(cut: Cut, relu: Function) -> None:
    usual = captured(lambda x: torch.split(x, 4, 1), torch.relu)
    assert "Split" in usual.words
    assert same(captured(cut, relu), usual)
    # Other maths is something else.
    assert not same(captured(cut, torch.tanh), usual)


@pytest.mark.slow
def test_ten_thousand_nodes_take_less_than_a_second() -> None:
    s = Sketch()
    x, w = s.input(8, 16), s.input(16, 16)
    while len(s.graph.nodes) < 10_000:
        y = s.call(torch.relu, s.call(F.linear, x, w))
        x = s.call(torch.add, s.call("reshape", s.call("t", y), 8, 16), x)
    s.output(x)
    times = []
    for _ in range(3):
        view = s.view()
        start = time.process_time()
        graph_tensors(view)
        times.append(time.process_time() - start)
    assert min(times) < 1
