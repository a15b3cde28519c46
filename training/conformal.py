"""What widths have to be multiplied by so that intervals hold what they promise for families never seen.

Split conformal prediction (Vovk) on predictions of held-out families: the score of a plan is how many
widths its measured gain lies from the mean, and the scale is the quantile that a new plan's score exceeds
in a tenth of cases.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from passwright.training.gain_metrics import Plans

_COVERAGE = 0.9
#: A width of nothing would make every error infinitely many widths.
_LEAST = 1e-4


def conformal_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """Of predictions with intervals, each by a model that had not seen the family. 1 of none."""
    return _quantile(np.concatenate([_scores(plans) for plans in found] or [np.zeros(0)]), coverage)


def to_go_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """The same for gain-to-go, of the steps of which it is known."""
    return _quantile(
        np.concatenate([_to_go_scores(plans) for plans in found] or [np.zeros(0)]), coverage
    )


def held_out_coverage(found: Sequence[Plans], coverage: float = _COVERAGE) -> dict[str, float]:
    """Of each family the share of plans within intervals that were scaled by the other families alone."""
    by_family: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for plans in found:
        by_family[plans.family].append(_scores(plans))
    joined = {family: np.concatenate(scores) for family, scores in by_family.items()}
    shares = {}
    for family, own in joined.items():
        others = [scores for name, scores in joined.items() if name != family]
        if len(own) and others:
            shares[family] = float((own <= _quantile(np.concatenate(others), coverage)).mean())
    return shares


def calibrated(found: Sequence[Plans], coverage: float = _COVERAGE) -> list[Plans]:
    """With intervals scaled by the other families alone, as those of a family never seen are."""
    scores = {id(plans): _scores(plans) for plans in found}
    scales = {}
    for family in {plans.family for plans in found}:
        others = [scores[id(plans)] for plans in found if plans.family != family]
        scales[family] = _quantile(np.concatenate(others or [np.zeros(0)]), coverage)
    return [_widened(plans, scales[plans.family]) for plans in found]


def _widened(plans: Plans, scale: float) -> Plans:
    if plans.lower is None or plans.upper is None:
        return plans
    mean = plans.predicted
    lower, upper = mean - scale * (mean - plans.lower), mean + scale * (plans.upper - mean)
    return replace(plans, lower=lower, upper=upper)


def _scores(plans: Plans) -> NDArray[np.float64]:
    """Of every plan but doing nothing."""
    if plans.lower is None or plans.upper is None:
        return np.zeros(0)
    below, above = plans.predicted - plans.lower, plans.upper - plans.predicted
    return _widths_off(plans.gains - plans.predicted, below, above)[1:]


def _to_go_scores(plans: Plans) -> NDArray[np.float64]:
    if plans.to_go is None or plans.to_go_forecast is None:
        return np.zeros(0)
    mean, below, above = plans.to_go_forecast.T
    return _widths_off(plans.to_go - mean, below, above)


def _widths_off(
    error: NDArray[np.float64], below: NDArray[np.float64], above: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many widths lie between what was predicted and what was measured."""
    width = np.where(error < 0, below, above)
    return np.asarray(np.abs(error) / np.maximum(width, _LEAST), dtype=np.float64)


def _quantile(scores: NDArray[np.float64], coverage: float) -> float:
    if not len(scores):
        return 1.0
    place = math.ceil((len(scores) + 1) * coverage)
    return float(np.sort(scores)[min(place, len(scores)) - 1])
