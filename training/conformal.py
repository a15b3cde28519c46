"""What widths have to be multiplied by so that intervals hold what they promise for families never seen.

Split conformal prediction (Vovk) on predictions of held-out families: the score of a plan is how many
widths its measured gain lies from the mean, and the scale is the quantile that a new plan's score exceeds
in a tenth of cases.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from passwright.training.gain_metrics import Plans

_COVERAGE = 0.9
#: A width of nothing would make every error infinitely many widths.
_LEAST = 1e-4


def conformal_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """Of predictions with intervals, each by a model that had not seen the family. 1 of none."""
    return _quantile(np.concatenate([_scores(plans) for plans in found] or [np.zeros(0)]), coverage)


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


def _scores(plans: Plans) -> NDArray[np.float64]:
    """Of every plan but doing nothing."""
    if plans.lower is None or plans.upper is None:
        return np.zeros(0)
    error = plans.gains - plans.predicted
    width = np.where(error < 0, plans.predicted - plans.lower, plans.upper - plans.predicted)
    return np.asarray((np.abs(error) / np.maximum(width, _LEAST))[1:], dtype=np.float64)


def _quantile(scores: NDArray[np.float64], coverage: float) -> float:
    if not len(scores):
        return 1.0
    place = math.ceil((len(scores) + 1) * coverage)
    return float(np.sort(scores)[min(place, len(scores)) - 1])
