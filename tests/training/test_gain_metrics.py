"""Figures of how well gains are predicted, against ones computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from passwright.training.gain_metrics import Plans, regret, scores, tau


def plans(
    gains: list[float],
    predicted: list[float],
    floor: float = 0.05,
    **bounds: list[float],
) -> Plans:
    sides = {name: np.array(values) for name, values in bounds.items()}
    floors = np.full(len(gains), floor)
    return Plans("w", "f", np.array(gains), floors, np.array(predicted), **sides)


def test_tau_counts_pairs_that_measuring_tells_apart() -> None:
    # 0.30 and 0.32 are a tie. Of the five other pairs, four are in the right order.
    found = plans([0.0, 0.30, 0.32, -0.20], [0.0, 0.1, 0.4, 0.05])
    assert tau(found) == pytest.approx((4 - 1) / 5)
    assert tau(plans([0.0, 0.3], [0.0, 0.1])) == 1.0
    assert tau(plans([0.0, 0.3], [0.1, 0.0])) == -1.0
    assert tau(plans([0.0, 0.3], [0.1, 0.1])) == 0.0
    assert math.isnan(tau(plans([0.0, 0.01], [0.0, 1.0])))


def test_regret_is_of_the_best_among_the_first() -> None:
    found = plans([0.0, 0.5, 0.2, -0.1], [0.3, 0.1, 0.2, 0.0])
    assert [regret(found, first) for first in (1, 2, 3)] == pytest.approx([0.5, 0.3, 0.0])


def test_scores_are_means_over_workloads() -> None:
    good = plans([0.0, 0.5], [0.0, 0.4], lower=[0.0, 0.3], upper=[0.0, 0.6])
    bad = plans([0.0, 0.2, -0.3], [0.0, -0.1, 0.1], lower=[0.0, -0.2, 0.0], upper=[0.0, 0.0, 0.2])
    found = scores([good, bad, plans([0.0], [0.0])])
    assert (found.workloads, found.plans) == (2, 3)
    assert found.tau == pytest.approx((1.0 + -1.0) / 2)
    assert found.pairs == pytest.approx(0.5)
    assert found.top1 == pytest.approx(math.expm1((0.0 + 0.5) / 2))
    assert found.sign == pytest.approx(1 / 3)
    assert found.captured == pytest.approx((1.0 + -0.3 / 0.2) / 2)
    assert found.error == pytest.approx((0.1 + 0.3 + 0.4) / 3)
    assert found.coverage == pytest.approx(1 / 3)


def test_without_intervals_and_gains_there_is_nothing_to_say() -> None:
    found = scores([plans([0.0, 0.001], [0.0, 0.1])])
    assert math.isnan(found.coverage)
    assert math.isnan(found.captured)
    assert math.isnan(found.sign)
    assert found.to_json().keys() == {"workloads", "plans", "top1", "top3", "top5", "error"}
