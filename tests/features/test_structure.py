"""How much of a graph runs through its nodes, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from passwright.features.structure import Floats, criticality, depth, flow

#: d of b and c, which are both of a.
DIAMOND = [[], [0], [0], [1, 2]]
CHAIN = [[], [0], [1]]
TWO_CHAINS = [[], [0], [], [2]]


def close(found: Floats, expected: Sequence[float]) -> None:
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx(list(expected))


def test_the_slow_side_of_a_diamond_is_critical() -> None:
    # Seven seconds by c, four by b.
    close(criticality(DIAMOND, [1, 2, 5, 1]), [1, 4 / 7, 1, 1])


def test_all_of_a_chain_is_critical_whatever_takes_the_time() -> None:
    close(criticality(CHAIN, [0, 3e-6, 1e-6]), [1, 1, 1])


def test_the_shorter_of_two_chains_is_less_critical() -> None:
    close(criticality(TWO_CHAINS, [1, 1, 3, 3]), [1 / 3, 1 / 3, 1, 1])


def test_where_nothing_takes_time_nodes_count() -> None:
    close(criticality([[], [0], [1], []], [0, 0, 0, 0]), [1, 1, 1, 1 / 3])


def test_a_value_splits_evenly_among_its_users() -> None:
    # To b come 2 of the 4 bytes of a; of d, half of its 8 counts for each of b and c.
    close(flow(DIAMOND, [4, 2, 6, 8]), [1, 8 / 20, 12 / 20, 1])


def test_all_bytes_flow_through_all_of_a_chain() -> None:
    close(flow(CHAIN, [5, 0, 7]), [1, 1, 1])


def test_the_bytes_of_two_chains_do_not_mix() -> None:
    close(flow(TWO_CHAINS, [1, 1, 3, 3]), [2 / 8, 2 / 8, 6 / 8, 6 / 8])


def test_no_bytes_are_no_flow() -> None:
    close(flow(CHAIN, [0, 0, 0]), [0, 0, 0])


def test_depth_is_the_longest_way() -> None:
    close(depth(DIAMOND), [0, 0.5, 0.5, 1])
    close(depth(TWO_CHAINS), [0, 1, 0, 1])
    # c is of b, and of a itself.
    close(depth([[], [0], [0, 1]]), [0, 0.5, 1])


def test_nodes_without_edges_have_no_depth() -> None:
    close(depth([[], []]), [0, 0])


@pytest.mark.parametrize(
    "measure",
    [lambda: criticality([], []), lambda: flow([], []), lambda: depth([])],
    ids=["criticality", "flow", "depth"],
)
def test_a_graph_without_nodes(measure: Callable[[], Floats]) -> None:
    found = measure()
    assert found.shape == (0,)
    assert found.dtype == np.float32


def test_shares_lie_between_0_and_1() -> None:
    draw = np.random.default_rng(0)
    for nodes in (5, 40):
        sources = [
            sorted({int(p) for p in draw.integers(0, n, size=2)}) if n else [] for n in range(nodes)
        ]
        amounts = draw.random(nodes).tolist()
        for found in (criticality(sources, amounts), flow(sources, amounts), depth(sources)):
            assert found.min() >= 0
            assert found.max() == pytest.approx(1, abs=1e-6) or found.max() < 1
