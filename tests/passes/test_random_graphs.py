"""Random rewrites of random graphs keep their meaning, and a wrong pattern among them is seen."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from toy_patterns import TanhToSin

from passwright.passes.graph import GraphView
from passwright.passes.random_graphs import Traits, random_graph
from passwright.passes.random_moves import MOVES
from passwright.passes.random_walks import Walk, replay, shrink, walk
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import text

BLOCKS, EACH = 6, 50
#: What the graphs of these seeds are known to give something to do, alone or after other steps.
FOUND = """batch_binaries batch_layer_norms batch_linears batch_unaries cat_of_columns cat_of_pieces
    cat_of_unbind embeddings_of_one_table flatten_nested_cats gather_embeddings interleave_pieces
    lone_piece_to_slice merge_nested_splits merge_reshapes merge_slices out_of_place
    remove_identity_permute remove_identity_reshape remove_single_piece_split reshape_of_permute
    select_of_cat slice_of_cat slice_of_piece split_of_cat stack_of_pieces stack_of_unbind
    tall_linears unary_above_split unary_below_cat widen_linears""".split()
_seen: Counter[str] = Counter()
_done: set[int] = set()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_rewrites_keep_the_meaning(block: int) -> None:
    failures = []
    for seed in range(block * EACH, block * EACH + EACH):
        found = walk(seed)
        _seen.update(found.seen)
        if found.failure:
            failures.append(f"python -m passwright.training.fuzz --seed {seed} --count 1")
            failures.append(found.failure)
    _done.add(block)
    assert not failures, "\n".join(failures)


def test_patterns_find_candidates_on_these_graphs() -> None:
    """Uses what the tests above saw."""
    if len(_done) < BLOCKS:
        pytest.skip("needs all blocks in one process")
    assert set(FOUND) <= {pattern.name() for pattern in default_table()}
    unseen = set(FOUND) - _seen.keys()
    assert not unseen, f"no candidates of {sorted(unseen)}: give random_moves a move for them"


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
