"""How wide intervals have to be for plans of any length, and how many plans lie inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from passwright.training.aims import missed
from passwright.training.conformal import calibrated, conformal_scale, strange_scale
from passwright.training.evaluation_table import by_steps as table
from passwright.training.gain_metrics import Plans
from passwright.training.interval_coverage import by_steps, mean_width


def plans(family: str, errors: list[float], counts: list[int], width: float = 0.1) -> Plans:
    """Plans that gain so much more than predicted, with so many steps."""
    gains = np.array([0.0, *errors])
    none = np.zeros(len(gains))
    return Plans(family, family, gains, none, none, none - width, none + width, counts=(0, *counts))


def test_plans_are_counted_by_their_steps() -> None:
    one = plans("one", [0.05, 0.2, -0.2, 0.3], [1, 2, 4, 17])
    other = plans("other", [0.05, 0.05, 0.05], [1, 3, 40])
    single, few, many = by_steps([[one, other]])
    assert (single["steps"], single["plans"], single["families"]) == ("1", 2, 2)
    assert (single["coverage"], single["below"], single["above"]) == (1.0, 0.0, 0.0)
    assert (single["worst"], single["others"]) == ("", None)
    assert (few["steps"], few["plans"]) == ("2-4", 3)
    shares = [few[name] for name in ("coverage", "below", "above")]
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    # All that lie outside are of one family: without it, all lie inside.
    assert (few["worst"], few["others"]) == ("one", 1.0)
    assert (many["steps"], many["plans"], many["coverage"]) == ("17+", 2, 0.5)
    assert many["width"] == pytest.approx(0.1)
    assert many["error"] == pytest.approx((0.3 + 0.05) / 2)


def test_over_runs_shares_are_means_and_plans_are_counted_once() -> None:
    good, bad = plans("f", [0.0, 0.0], [1, 1]), plans("f", [0.0, 0.9], [1, 1])
    [row] = by_steps([[good], [bad]])
    assert (row["plans"], row["coverage"], row["others"]) == (2, 0.75, None)
    assert "| 1 | 2 | 1 | 75.0% | 0.0% | 25.0% | - |" in table([row])


def test_plans_without_intervals_or_steps_do_not_count() -> None:
    one = plans("f", [0.0], [1])
    assert by_steps([[replace(one, lower=None, upper=None), replace(one, counts=())]]) == []
    assert by_steps([]) == []
    assert np.isnan(mean_width([]))
    assert mean_width([one, plans("f", [0.0], [1], width=0.3)]) == pytest.approx(0.2)


def test_a_graph_counts_once_however_many_plans_it_has() -> None:
    """One graph of nineteen is wrong, and may stay outside, although it has half of all plans."""
    right = [plans(f"right{n}", [0.01], [1]) for n in range(18)]
    wrong = plans("wrong", [0.5] * 18, [1] * 18)
    assert conformal_scale([*right, wrong]) == pytest.approx(0.1)
    # Of too few graphs nobody knows: the largest score.
    assert conformal_scale([*right[:5], wrong]) == pytest.approx(5.0)


def test_what_is_unlike_all_that_was_seen_has_a_scale_besides() -> None:
    known = [plans(f"f{n % 40}", [0.01], [1]) for n in range(400)]
    strange = [replace(plans(f"s{n}", [0.3], [1]), unlike=(False, True)) for n in range(31)]
    scale = conformal_scale([*known, *strange])
    assert scale == pytest.approx(0.1)
    assert strange_scale([*known, *strange], scale) == pytest.approx(30.0)
    # Never narrower, and of too few graphs nothing is said.
    assert strange_scale([*known, *strange], 100.0) == 1.0
    assert strange_scale([*known, *strange[:20]], scale) is None
    widened = calibrated([*known, *strange])
    assert widened[0].upper is not None
    assert widened[0].upper[1] == pytest.approx(0.01)
    assert widened[-1].upper is not None
    assert widened[-1].upper[1] == pytest.approx(0.3)


def test_aims_are_told_with_how_much_they_are_missed_by() -> None:
    many, few = ({"steps": "1", "plans": count, "coverage": 0.8} for count in (100, 99))
    good = {"tau": 0.75, "top1": 0.03, "sign": 0.95}
    assert missed(good, 0.9, [few]) == []
    assert missed({}, float("nan"), []) == []
    assert missed({**good, "tau": 0.7}, 0.95, [many]) == [
        "Kendall's tau 0.700 for 0.75 or more, by 0.050",
        "plans within intervals of 90 % 0.950 for 0.87 to 0.93, by 0.020",
        "plans with 1 step within intervals of 90 % 0.800 for 0.87 to 0.93, by 0.070",
    ]
    assert missed({**good, "top1": 0.08}, 0.9, []) == [
        "slow-down of the first choice 0.080 for 0.03 or less, by 0.050"
    ]
