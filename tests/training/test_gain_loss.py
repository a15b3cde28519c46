"""What a network is fitted to."""

from __future__ import annotations

import math

import pytest
import torch

from passwright.training.gain_loss import loss, target_of
from passwright.training.labels import Label
from passwright.training.samples import PlanSample, WorkloadSamples
from tests.support.gains import samples


def of(*plans: tuple[tuple[int, ...], float]) -> WorkloadSamples:
    [base] = samples(1)
    found = (PlanSample(steps, Label(g, g, g, 0.01), "walk") for steps, g in plans)
    return WorkloadSamples("w", "f", "cut", "d", base.steps, tuple(found))


def heads(*means: float, width: float = 0.1) -> torch.Tensor:
    """Of six steps; what is not given gains nothing."""
    found = torch.full((6, 2, 3), width)
    found[:, :, 0] = torch.tensor([*means, *[0.0] * (6 - len(means))])[:, None]
    return found


def test_the_same_steps_twice_are_one_plan_and_nothing_gains_nothing() -> None:
    target = target_of(of(((0,), 0.2), ((0,), 0.4), ((0, 1), 0.5), ((), 0.07)))
    assert target.sums.tolist() == [[0] * 6, [1, *[0] * 5], [1, 1, *[0] * 4]]
    assert target.gains.tolist() == pytest.approx([0.0, 0.3, 0.5])
    assert target.floors.tolist() == pytest.approx([0.0, 0.01, 0.01])


def test_gain_to_go_is_that_of_the_best_continuation() -> None:
    """A step that loses alone and pays later; and one before which nothing was measured."""
    target = target_of(of(((0,), -0.1), ((0, 1), 0.4), ((0, 2), 0.1), ((3, 4), 0.6)))
    found = target.to_go.tolist()
    assert found[0] == pytest.approx(0.4)
    assert found[1] == pytest.approx(0.5)
    assert found[2] == pytest.approx(0.2)
    assert found[3] == pytest.approx(0.6)  # doing nothing comes before it
    assert math.isnan(found[4])
    assert math.isnan(found[5])


def test_the_right_answer_costs_least() -> None:
    target = target_of(of(((0,), 0.3), ((1,), -0.2), ((0, 1), 0.1), ((2,), 0.0)))
    right = loss(heads(0.3, -0.2), target)
    for wrong in (heads(0.2, -0.2), heads(0.3, 0.2), heads(-0.2, 0.3), heads()):
        assert loss(wrong, target) > right + 1e-3


def test_pairs_that_cannot_be_told_apart_are_not_ranked() -> None:
    """Two plans that differ by less than the floor: the order of their predictions does not matter."""
    target = target_of(of(((0,), 0.300), ((1,), 0.305)))
    one, other = loss(heads(0.30, 0.31), target), loss(heads(0.31, 0.30), target)
    assert float(one) == pytest.approx(float(other), abs=2e-3)


@pytest.mark.parametrize("width", [0.01, 1.0])
def test_widths_that_are_wrong_cost(width: float) -> None:
    """An interval that holds nothing, and one that says nothing."""
    target = target_of(of(((0,), 0.4), ((1,), 0.2), ((2,), 0.1)))
    missed = (0.3, 0.3, 0.0)  # each off by 0.1
    assert loss(heads(*missed, width=width), target) > loss(heads(*missed), target)


def test_widths_do_not_move_means() -> None:
    target = target_of(of(((0,), 0.4), ((1,), 0.2)))
    found = heads(0.4, 0.2).requires_grad_()
    [gradient] = torch.autograd.grad(loss(found, target), found)
    assert gradient[:2, 0, 0].abs().max() < 0.2
    assert (gradient[:2, :, 1:] != 0).all()


def test_a_workload_without_plans_costs_nothing() -> None:
    assert float(loss(heads(0.3), target_of(of()))) == 0.0
