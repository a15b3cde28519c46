"""Random rewrites of random graphs keep their meaning, and a wrong pattern among them is seen."""

from __future__ import annotations

import functools

import pytest
import torch
from toy_patterns import TanhToSin

from passwright.passes import patterns
from passwright.passes.graph import GraphView
from passwright.passes.pattern import Exactness
from passwright.passes.random_graphs import Traits, random_graph
from passwright.passes.random_moves import MOVES
from passwright.passes.random_walks import Walk, replay, shrink, walk
from passwright.passes.table import PatternTable, patterns_of
from passwright.passes.testing import text

BLOCKS, EACH = 6, 50
#: Patterns that find nothing on these graphs, and why. Relaxed ones need not: what they change is
#: their purpose.
NOT_FOUND = {
    "cat_in_groups": "CUDA alone",
    "gather_into_cat": "CUDA alone",
    "group_layer_norms": "CUDA alone",
    "group_linears": "CUDA alone",
    "pad_linear_of_cat": "CUDA alone",
    "pad_linear_outputs": "CUDA alone",
}
#: What the graphs of these seeds give something to do, alone or after other steps.
FOUND = {
    pattern.name()
    for pattern in patterns_of(patterns)
    if pattern.exactness is not Exactness.RELAXED and pattern.name() not in NOT_FOUND
}


@functools.cache
def walked(seed: int) -> Walk:
    """The walk of one seed; made once, for both questions about it."""
    return walk(seed)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_rewrites_keep_the_meaning(block: int) -> None:
    failures = []
    for seed in range(block * EACH, block * EACH + EACH):
        found = walked(seed)
        if found.failure:
            failures.append(f"python -m passwright.training.fuzz --seed {seed} --count 1")
            failures.append(found.failure)
    assert not failures, "\n".join(failures)


def test_patterns_find_candidates_on_these_graphs() -> None:
    seen = set().union(*(walked(seed).seen for seed in range(BLOCKS * EACH)))
    unseen = FOUND - seen
    assert not unseen, (
        f"no candidates of {sorted(unseen)}: give them a move (see random_moves.MOVES)"
    )
    assert not NOT_FOUND.keys() & seen, "found by now: leave it out of NOT_FOUND"


def test_the_same_seed_gives_the_same_graph_and_walk() -> None:
    for seed in (3, 5, 8):
        graphs = [random_graph(seed) for _ in range(2)]
        assert text(graphs[0].module.graph) == text(graphs[1].module.graph)
        assert GraphView(graphs[0].module.graph).fingerprint == (
            GraphView(graphs[1].module.graph).fingerprint
        )
        assert walk(seed).steps == walk(seed).steps


def test_graphs_have_every_trait() -> None:
    graphs = [random_graph(seed, calls=(4, 8)) for seed in range(60)]
    traits = [graph.traits for graph in graphs]
    for name in Traits.__dataclass_fields__:
        assert len({getattr(one, name) for one in traits}) > 1, name
    written = [g for g in graphs if GraphView(g.module.graph).writes]
    assert written
    symbolic = [g for g in graphs if g.shapes is not None]
    assert all(len(g.inputs) == 2 for g in symbolic)


def test_moves_are_a_table() -> None:
    assert len(MOVES) > 15
    assert all(weight > 0 and move.__doc__ for weight, move in MOVES.values())


@pytest.fixture(scope="module")
def wrong() -> tuple[Walk, PatternTable]:
    """A walk that a wrong pattern spoilt."""
    table = PatternTable([TanhToSin()])
    found = next(w for seed in range(200) if (w := walk(seed, table)).failure)
    return found, table


def test_a_wrong_pattern_is_seen_and_made_small(wrong: tuple[Walk, PatternTable]) -> None:
    found, table = wrong
    assert found.applied["tanh_to_sin"]
    graph, steps, failure = shrink(found, table)
    assert failure
    assert 0 < len(steps) <= len(found.steps)
    assert replay(graph, steps, table) == failure
    assert replay(graph, [], table) == ""
    whole = random_graph(found.seed)
    assert len(graph.module.graph.nodes) <= len(whole.module.graph.nodes)
    with torch.no_grad():
        graph.module(*(value.detach().clone() for value in graph.inputs[0]))
