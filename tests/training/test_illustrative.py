"""The illustrative models: what they compute, that a seed decides all, and how many kernels they make."""

from __future__ import annotations

import random

import pytest
import torch

from passwright.scheduler.inductor import fresh_cache
from passwright.scheduler.kernel_counts import capture_kernels
from passwright.training import workloads
from passwright.training.workloads.illustrative import (
    ACTIVATIONS,
    FULL,
    Illustrative,
    IllustrativeLayer,
    LayerPlan,
)

PLAN = LayerPlan(
    groups=(2, 1, 3),
    order=(2, 0, 1),
    orders=((1, 0), (0,), (2, 0, 1)),
    stacked=(True, False, False),
    activation="tanh",
)


def plans(seed: int, fields: int = 9) -> list[LayerPlan]:
    return [layer.plan for layer in Illustrative(fields, 4, 3, seed).layers]  # type: ignore[misc]


def test_a_layer_computes_each_branch_and_moves_the_pieces() -> None:
    layer, x = IllustrativeLayer(PLAN, 4), torch.randn(2, 24)
    pairs = zip(layer.norms, layer.linears, x.split(4, dim=1), strict=True)
    branches = [torch.tanh(linear(norm(piece))) for norm, linear, piece in pairs]
    # The groups are pieces 0-1, 2 and 3-5.
    expected = [branches[number] for number in (5, 3, 4, 1, 0, 2)]
    torch.testing.assert_close(layer(x), torch.cat(expected, dim=1))


@pytest.mark.parametrize("fields", [3, 4, 8, 64])
def test_a_drawn_plan_moves_every_piece_once(fields: int) -> None:
    rng = random.Random(1)
    for _ in range(20):
        plan = LayerPlan.draw(fields, rng)
        assert sum(plan.groups) == fields
        assert min(plan.groups) > 0
        assert sorted(plan.order) == list(range(len(plan.groups)))
        assert [sorted(order) for order in plan.orders] == [list(range(n)) for n in plan.groups]


def test_the_seed_decides_the_graph() -> None:
    assert plans(3) == plans(3)
    assert plans(3) != plans(4)
    drawn = [plan for seed in range(20) for plan in plans(seed)]
    assert {plan.activation for plan in drawn} == set(ACTIVATIONS)
    assert {stacked for plan in drawn for stacked in plan.stacked} == {True, False}


def test_a_build_draws_the_graph_from_its_seed() -> None:
    for seed in (0, 5):
        model, _ = workloads.build("own:illustrative?fields=9,width=4,layers=3", batch=2, seed=seed)
        assert [layer.plan for layer in model.layers] == plans(seed)  # type: ignore[union-attr]


def test_the_full_size_has_more_branches_than_kernels_wanted() -> None:
    full = workloads.find(FULL)
    assert (full.batch, full.width) == (64, 64)
    assert full.size is not None
    assert full.layers is not None
    # Three kernels for each at least in inference, and as many again in training: see the next test.
    assert 3 * full.size * full.layers > 6_000
    assert 2 * 3 * full.size * full.layers > 12_000


@pytest.mark.slow
@pytest.mark.inductor
def test_no_two_branches_share_a_kernel() -> None:
    model, inputs = workloads.build("own:illustrative?fields=3,width=8,layers=2", batch=4)
    with fresh_cache(), capture_kernels() as graphs:
        torch.compile(model)(*inputs).sum().backward()
    forward, backward = graphs
    branches = 3 * 2
    assert forward.extern == branches + 1
    assert backward.extern >= 2 * branches
    # C++ has a norm as several loops; a GPU's kernels are one for it and one for the activation.
    assert forward.loops >= 2 * branches
    assert backward.loops >= 2 * branches
