"""What widths have to be multiplied by so that intervals hold what they promise for families never seen.

Split conformal prediction (Vovk) on predictions of held-out families: the score of a plan is how many
widths its measured gain lies from the mean, and the scale is the quantile that the score of a plan of a new
graph exceeds in a tenth of cases.

Plans of one graph are wrong together, so each graph counts once, however many plans of it were measured
(two-layer models, Dunn, Wasserman and Ramdas 2023). Short and long plans are looked at apart, and the
larger scale is that of all (group-conditional prediction, Vovk): on one device it is long plans that need
the wider intervals, on another short ones. So long plans of most families lie inside more often than
promised; `interval_coverage.by_steps` shows how often.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from passwright.training.gain_metrics import Plans
from passwright.training.policy import least_caution

_COVERAGE = 0.9
#: A width of nothing would make every error infinitely many widths.
_LEAST = 1e-4
#: A plan of more steps is long.
_SHORT = 4
#: So many graphs have to have plans of a length for these to be looked at apart.
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
    return _plan_scale([_scored(plans) for plans in found], coverage)


def to_go_scale(found: Sequence[Plans], coverage: float = _COVERAGE) -> float:
    """The same for gain-to-go, of the steps of which it is known."""
    return _scale([_to_go_scores(plans) for plans in found], coverage)


def held_out_coverage(found: Sequence[Plans], coverage: float = _COVERAGE) -> dict[str, float]:
    """Of each family the share of plans within intervals that were scaled by the other families alone."""
    by_family: dict[str, list[_Scored]] = defaultdict(list)
    for plans in found:
        by_family[plans.family].append(_scored(plans))
    shares = {}
    for family, known in by_family.items():
        own = np.concatenate([one.scores for one in known])
        others = [one for name, some in by_family.items() if name != family for one in some]
        if len(own) and others:
            shares[family] = float((own <= _plan_scale(others, coverage)).mean())
    return shares


def calibrated(found: Sequence[Plans], coverage: float = _COVERAGE) -> list[Plans]:
    """With intervals scaled, and with the caution that is needed, by the other families alone, as is done
    for a family never seen."""
    calibrations = {}
    for family in {plans.family for plans in found}:
        others = [plans for plans in found if plans.family != family]
        scale = conformal_scale(others, coverage)
        calibrations[family] = scale, caution_at(others, scale)
    return [_widened(plans, *calibrations[plans.family]) for plans in found]


def caution_at(found: Sequence[Plans], scale: float) -> float:
    """`policy.least_caution` with intervals of this scale."""
    return least_caution([_widened(plans, scale) for plans in found])


def _widened(plans: Plans, scale: float, caution: float = 1.0) -> Plans:
    if plans.lower is None or plans.upper is None:
        return plans
    mean = plans.predicted
    lower, upper = mean - scale * (mean - plans.lower), mean + scale * (plans.upper - mean)
    return replace(plans, lower=lower, upper=upper, caution=caution)


@dataclass(frozen=True)
class _Scored:
    """Scores of the plans of one graph, without doing nothing, and which of them are long."""

    scores: NDArray[np.float64]
    long: NDArray[np.bool_]


def _scored(plans: Plans) -> _Scored:
    if plans.lower is None or plans.upper is None:
        return _Scored(np.zeros(0), np.zeros(0, np.bool_))
    below, above = plans.predicted - plans.lower, plans.upper - plans.predicted
    scores = _widths_off(plans.gains - plans.predicted, below, above)[1:]
    counts = np.array(plans.counts[1:] or [0] * len(scores))
    return _Scored(scores, counts > _SHORT)


def _plan_scale(graphs: Sequence[_Scored], coverage: float) -> float:
    """The largest of those of all plans, of short and of long ones."""
    short = [one.scores[~one.long] for one in graphs if not one.long.all()]
    long = [one.scores[one.long] for one in graphs if one.long.any()]
    apart = [group for group in (short, long) if len(group) >= _GRAPHS]
    return max(_scale(group, coverage) for group in ([one.scores for one in graphs], *apart))


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
