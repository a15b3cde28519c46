"""What lies around a candidate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import fx

from passwright.features import schema
from passwright.features.example import example
from passwright.features.graph_tensors import graph_tensors
from passwright.features.neighbourhood import MOST, Neighbourhood, neighbourhood
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, match
from passwright.passes.patterns import BatchUnaries
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch
from passwright.passes.table import default_table

#: Places of the nodes of `chains`.
X, A, B, C, D, E, OTHER, OUTPUT = range(8)


@pytest.fixture
def chains() -> GraphView:
    """x, a chain of five of it, another op of it, and the output of both."""
    s = Sketch()
    x = end = s.input(4)
    for _ in range(5):
        end = s.call(torch.sin, end)
    s.output(end, s.call(torch.cos, x))
    return s.view()


def candidate(view: GraphView, *places: int) -> Candidate:
    """One whose match are these nodes, the first of them its anchor."""
    nodes = list(view.nodes())
    [anchor, *rest] = [view.read(nodes[place]) or nodes[place] for place in places]
    return Candidate.of(BatchUnaries(), match(anchor, *rest), view)


def around(view: GraphView, *places: int, **limits: int) -> Neighbourhood:
    return neighbourhood(graph_tensors(view), candidate(view, *places), **limits)


def role(found: Neighbourhood, name: str) -> list[float]:
    column: list[float] = found.roles[:, schema.ROLE.index(name)].tolist()
    return column


@pytest.mark.parametrize(
    ("radius", "expected"),
    [(0, [C]), (1, [B, C, D]), (2, [A, B, C, D, E]), (3, [X, A, B, C, D, E, OUTPUT])],
)
def test_the_radius_counts_edges_both_ways(
    chains: GraphView, radius: int, expected: list[int]
) -> None:
    assert around(chains, C, radius=radius).places.tolist() == expected


def test_an_input_is_there_and_leads_to_no_other_user(chains: GraphView) -> None:
    assert around(chains, A, radius=2).places.tolist() == [X, A, B, C]
    # Neither where it is matched itself.
    assert around(chains, A, X, radius=1).places.tolist() == [X, A, B]


def test_of_too_many_the_nearest_stay(chains: GraphView) -> None:
    assert around(chains, C, radius=2, most=3).places.tolist() == [B, C, D]
    # In graph order, of two that are as near.
    assert around(chains, C, radius=2, most=2).places.tolist() == [B, C]
    assert around(chains, C, radius=2, most=4).places.tolist() == [A, B, C, D]


def test_of_a_larger_match_the_first_stay(chains: GraphView) -> None:
    found = around(chains, D, B, C, radius=2, most=2)
    assert found.places.tolist() == [B, D]
    assert role(found, "is_matched") == [1, 1]


def test_the_usual_limit_holds() -> None:
    s = Sketch()
    x = s.call(torch.sin, s.input(4))
    s.output(*(s.call(torch.cos, x) for _ in range(2 * MOST)))
    assert around(s.view(), 1).places.tolist() == list(range(MOST))


def test_roles(chains: GraphView) -> None:
    found = around(chains, D, B, radius=2)
    assert found.places.tolist() == [X, A, B, C, D, E, OUTPUT]
    assert found.roles.dtype == np.float32
    assert role(found, "is_anchor") == [0, 0, 0, 0, 1, 0, 0]
    assert role(found, "is_matched") == [0, 0, 1, 0, 1, 0, 0]
    second, first = math.log1p(2), math.log1p(1)
    assert role(found, "log_place") == pytest.approx([0, 0, second, 0, first, 0, 0])
    assert role(found, "distance") == [1, 0.5, 0, 0.5, 0, 0.5, 1]


def test_edges_are_those_inside(chains: GraphView) -> None:
    found = around(chains, C, radius=1)
    # b to c and c to d, by their places here.
    assert found.edges.tolist() == [[0, 1], [1, 2]]
    edges = graph_tensors(chains).edges[:, found.kept]
    assert edges.T.tolist() == [[B, C], [C, D]]


def test_clean_up_has_no_neighbourhood(chains: GraphView) -> None:
    graph = graph_tensors(chains)
    found = neighbourhood(graph, Rewriter(chains, default_table()).sweep())
    assert found.places.shape == (0,)
    assert found.roles.shape == (0, len(schema.ROLE))
    assert found.edges.shape == (2, 0)
    assert found.kept.shape == (0,)
    row = np.zeros(1, np.float32)
    whole = example("clean_up", graph, found, site=row, whole=row, device=row)
    assert whole.words == ()
    assert whole.nodes.shape == (0, len(schema.NODE))
    assert whole.edge_features.shape == (0, len(schema.EDGE))


def _edges_among(nodes: list[fx.Node]) -> set[tuple[int, int]]:
    here = {node: number for number, node in enumerate(nodes)}
    return {(here[p], here[n]) for n in nodes for p in n.all_input_nodes if p in here}


@pytest.mark.parametrize("seed", range(8))
def test_candidates_of_random_graphs(seed: int) -> None:
    view = GraphView(random_graph(seed).module.graph)
    graph, living = graph_tensors(view), list(view.nodes())
    for found in Rewriter(view, default_table()).candidates():
        near = neighbourhood(graph, found, most=12)
        nodes = [living[place] for place in near.places.tolist()]
        assert nodes == sorted(nodes)
        assert len(nodes) <= 12
        matched = role(near, "is_matched")
        assert sum(matched) == min(12, len(found.match.nodes))
        assert sum(role(near, "is_anchor")) == 1
        assert set(map(tuple, near.edges.T.tolist())) == _edges_among(nodes)
        row = np.arange(3, dtype=np.float32)
        whole = example("p", graph, near, site=row, whole=row + 1, device=row + 2)
        assert whole.words == tuple(graph.words[living.index(node)] for node in nodes)
        assert len(whole.nodes) == len(whole.roles) == len(nodes)
        assert len(whole.edge_features) == whole.edges.shape[1]
        assert (whole.site[0], whole.graph[0], whole.device[0]) == (0, 1, 2)
