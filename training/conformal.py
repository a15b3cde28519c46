"""What widths have to be multiplied by so that intervals hold what they promise for families never seen.

Split conformal prediction (Vovk) on predictions of held-out families: the score of a plan is how many
widths its measured gain lies from the mean, and the scale is the quantile that the score of a plan of a new
graph exceeds in a tenth of cases.

Plans of one graph are wrong together, so each graph counts once, however many plans of it were measured
(two-layer models, Dunn, Wasserman and Ramdas 2023). Long plans of most families lie inside more often than
promised; `interval_coverage.by_steps` shows how often.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from passwright.training.gain_metrics import Plans
from passwright.training.policy import least_caution

_COVERAGE = 0.9
#: A width of nothing would make every error infinitely many widths.
_LEAST = 1e-4
#: So many graphs have to have plans of a kind for these to be looked at apart.
_GRAPHS = 30
#: So far may sums of weights be off.
_ROUNDING = 1e-9


def conformal_quantile(scores: Sequence[float] | NDArray[np.float64], coverage: float) -> float:
    """What a new score, drawn as these are, exceeds in no more than `1 - coverage` of cases.

    Of n scores the one in place (n + 1) * coverage, rounded up, counted from the smallest (split conformal
    prediction, Vovk); the largest where there are too few for that. Raises ValueError of none.
    """
    if not len(scores):
        raise ValueError("no score: nothing is known about a new one")
    place = math.ceil((len(scores) + 1) * coverage)
    return float(np.sort(scores)[min(place, len(scores)) - 1])


def conformal_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """Of predictions with intervals, each by a model that had not seen the family. 1 of none."""
    return _scale([_scores(plans) for plans in found], coverage)


def to_go_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """The same for gain-to-go, of the steps of which it is known."""
    return _scale([_to_go_scores(plans) for plans in found], coverage)


def held_out_coverage(found: Sequence[Plans], coverage: float = _COVERAGE) -> dict[str, float]:
    """Of each family the share of plans within intervals that were scaled by the other families alone."""
    by_family: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for plans in found:
        by_family[plans.family].append(_scores(plans))
    shares = {}
    for family, known in by_family.items():
        own = np.concatenate(known)
        others = [one for name, some in by_family.items() if name != family for one in some]
        if len(own) and others:
            shares[family] = float((own <= _scale(others, coverage)).mean())
    return shares


def calibrated(found: Sequence[Plans], coverage: float = _COVERAGE) -> list[Plans]:
    """With intervals scaled, and with the caution that is needed, by the other families alone, as is done
    for a family never seen."""
    calibrations = {}
    for family in {plans.family for plans in found}:
        others = [plans for plans in found if plans.family != family]
        scale = conformal_scale(others, coverage)
        strange = strange_scale(others, scale, coverage)
        calibrations[family] = scale, strange, caution_at(others, scale, strange)
    return [_widened(plans, *calibrations[plans.family]) for plans in found]


def strange_scale(
    found: Sequence[Plans], scale: float, coverage: float = _COVERAGE
) -> float | None:
    """What intervals of this scale are widened by besides, for as many plans to lie within them of those
    with a step that is unlike all that was learned from; at least 1. None where there are too few graphs
    with such plans to tell."""
    scores = [_scores(plans)[_unlike(plans)[1:]] / scale for plans in found]
    scores = [own for own in scores if len(own)]
    return max(1.0, _scale(scores, coverage)) if len(scores) >= _GRAPHS else None


def caution_at(found: Sequence[Plans], scale: float, strange: float | None = None) -> float:
    """`policy.least_caution` with intervals of these scales."""
    return least_caution([_widened(plans, scale, strange) for plans in found])


def _widened(
    plans: Plans, scale: float, strange: float | None = None, caution: float = 1.0
) -> Plans:
    if plans.lower is None or plans.upper is None:
        return plans
    mean = plans.predicted
    by = scale * np.where(_unlike(plans), strange or 1.0, 1.0)
    lower, upper = mean - by * (mean - plans.lower), mean + by * (plans.upper - mean)
    return replace(plans, lower=lower, upper=upper, caution=caution)


def _unlike(plans: Plans) -> NDArray[np.bool_]:
    """Of each plan, doing nothing among them."""
    return np.array(plans.unlike or [False] * len(plans.gains), np.bool_)


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


def _scale(graphs: Sequence[NDArray[np.float64]], coverage: float) -> float:
    """The quantile of the scores of graphs that weigh alike; of too few graphs the largest score."""
    graphs = [scores for scores in graphs if len(scores)]
    if not graphs:
        return 1.0
    scores = np.concatenate(graphs)
    weights = np.concatenate([np.full(len(own), 1.0 / len(own)) for own in graphs])
    order = np.argsort(scores)
    # As in `conformal_quantile`, the new graph is one more, of which nothing is known.
    wanted = (len(graphs) + 1) * coverage - _ROUNDING
    place = int(np.searchsorted(np.cumsum(weights[order]), wanted))
    return float(scores[order][min(place, len(scores) - 1)])
