"""How well gains of plans are predicted: order, choice, sign, intervals. Ties of measuring are masked.

Everything is computed within one workload first, and averaged over workloads: gains of different graphs
are never ranked against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: A graph's best plan has to gain so much for its share to say anything.
_WORTH = 0.02


@dataclass(frozen=True)
class Plans:
    """Plans of one workload, doing nothing first: measured gains with their floors, and predictions.

    `lower` and `upper` are bounds of 90 %, where the model gives any.
    """

    workload: str
    family: str
    gains: Floats
    floors: Floats
    predicted: Floats
    lower: Floats | None = None
    upper: Floats | None = None
    #: Who proposed each plan, and the patterns of its steps; () where that is not known.
    by: tuple[str, ...] = ()
    patterns: tuple[frozenset[str], ...] = ()
    #: How many steps each plan has; () where that is not known.
    counts: tuple[int, ...] = ()
    #: Plans with a pattern of which nothing was learned, and those with a step that is unlike all that was
    #: learned from in any way (`Familiar`); () where that is not known.
    strange: tuple[bool, ...] = ()
    unlike: tuple[bool, ...] = ()
    #: `GainModel.caution` of who chooses among them.
    caution: float = 1.0
    #: Of the k steps whose gain-to-go is known: that, and `Forecast.to_go` of them, (k, 3).
    to_go: Floats | None = None
    to_go_forecast: Floats | None = None


@dataclass(frozen=True)
class Scores:
    """Means over workloads; slow-downs are ratios minus 1. NaN where there is nothing to average."""

    workloads: int
    plans: int
    #: Kendall's tau, and the share of pairs in the right order.
    tau: float
    pairs: float
    #: How much slower the best of the first so many is than the best of all.
    top1: float
    top3: float
    top5: float
    #: Of plans that surely gain or lose, the share that is predicted to do so.
    sign: float
    #: Of the best measured gain, the share that the first plan has.
    captured: float
    #: Mean absolute error of gains.
    error: float
    #: Share of plans within the interval of 90 %.
    coverage: float

    def to_json(self) -> dict[str, float]:
        """Finite figures alone."""
        return {name: value for name, value in asdict(self).items() if math.isfinite(value)}


def scores(found: Sequence[Plans]) -> Scores:
    """Of workloads with two plans and more."""
    found = [plans for plans in found if len(plans.gains) > 1]
    taus = [tau(plans) for plans in found]
    return Scores(
        workloads=len(found),
        plans=sum(len(plans.gains) - 1 for plans in found),
        tau=_mean(taus),
        pairs=_mean((1.0 + value) / 2.0 for value in taus),
        top1=math.expm1(_mean(regret(plans, 1) for plans in found)),
        top3=math.expm1(_mean(regret(plans, 3) for plans in found)),
        top5=math.expm1(_mean(regret(plans, 5) for plans in found)),
        sign=_mean(_all(found, _signs)),
        captured=_mean(_captured(plans) for plans in found),
        error=_mean(_all(found, lambda p: np.abs(p.gains - p.predicted)[1:])),
        coverage=_mean(_all(found, _inside)),
    )


def tau(plans: Plans) -> float:
    """Kendall's tau over the pairs that measuring tells apart; a pair that is predicted equal counts half
    right. NaN if there is no such pair."""
    gains, predicted = plans.gains, plans.predicted
    apart = gains[:, None] - gains[None]
    told = apart > np.maximum(plans.floors[:, None], plans.floors[None])
    if not told.any():
        return math.nan
    return float(np.sign(predicted[:, None] - predicted[None])[told].mean())


def regret(plans: Plans, first: int) -> float:
    """log(time of the best of the plans predicted to gain most / time of the best of all)."""
    chosen = np.argsort(-plans.predicted, kind="stable")[:first]
    return float(plans.gains.max() - plans.gains[chosen].max())


def _captured(plans: Plans) -> float:
    best = plans.gains.max()
    if best <= max(_WORTH, plans.floors.max()):
        return math.nan
    return float(plans.gains[int(np.argmax(plans.predicted))] / best)


def _signs(plans: Plans) -> Floats:
    sure = np.abs(plans.gains) > plans.floors
    sure[0] = False
    return np.asarray(plans.gains[sure] * plans.predicted[sure] > 0, dtype=np.float64)


def _inside(plans: Plans) -> Floats:
    if plans.lower is None or plans.upper is None:
        return np.zeros(0)
    inside = (plans.lower <= plans.gains) & (plans.gains <= plans.upper)
    return np.asarray(inside[1:], dtype=np.float64)


def _all(found: Sequence[Plans], of: Callable[[Plans], Floats]) -> list[float]:
    return [value for plans in found for value in of(plans).tolist()]


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
