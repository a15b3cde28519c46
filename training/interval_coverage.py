"""How many plans lie within their intervals, by how many steps they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from passwright.training.gain_metrics import Plans

#: The fewest steps of each group of plans.
_FROM = (1, 2, 5, 9, 17)


def by_steps(runs: Sequence[Sequence[Plans]]) -> list[dict[str, Any]]:
    """Of plans of 1, 2 to 4, 5 to 8, 9 to 16, and more steps, over runs that predicted the same plans.

    Shares of plans: within the interval, and measured below and above it; `width` is the mean distance of
    mean and lower bound, and `error` the mean absolute error, both of log gains. `worst` is the family with
    most plans outside, or "", and `others` the share within without it; None if there is no such family, or
    no other. Groups without plans are left out, and so are plans without an interval or whose steps are not
    known.
    """
    known = [plans for run in runs for plans in run if plans.counts and plans.lower is not None]
    counts = _joined([np.array(plans.counts, np.float64) for plans in known])
    families = np.array([plans.family for plans in known for _ in plans.counts[1:]], np.str_)
    gains = _joined([plans.gains for plans in known])
    predicted = _joined([plans.predicted for plans in known])
    below = gains < _joined([plans.lower for plans in known if plans.lower is not None])
    above = gains > _joined([plans.upper for plans in known if plans.upper is not None])
    widths = predicted - _joined([plans.lower for plans in known if plans.lower is not None])
    outside = below | above
    rows = []
    for first, after in zip(_FROM, (*_FROM[1:], np.inf), strict=True):
        here = (counts >= first) & (counts < after)
        if not here.any():
            continue
        worst, others = _worst(families[here], outside[here])
        rows.append(
            {
                "steps": _name(first, after),
                "plans": int(here.sum()) // len(runs),
                "families": len(set(families[here].tolist())),
                "coverage": float(1.0 - outside[here].mean()),
                "below": float(below[here].mean()),
                "above": float(above[here].mean()),
                "width": float(widths[here].mean()),
                "error": float(np.abs(gains - predicted)[here].mean()),
                "worst": worst,
                "others": others,
            }
        )
    return rows


def mean_width(found: Sequence[Plans]) -> float:
    """From the mean to the lower bound, over all plans but doing nothing; NaN of none."""
    parts = [plans.predicted - plans.lower for plans in found if plans.lower is not None]
    widths = _joined(parts)
    return float(widths.mean()) if len(widths) else math.nan


def _worst(families: NDArray[np.str_], outside: NDArray[np.bool_]) -> tuple[str, float | None]:
    """The family with most plans outside, and the share inside of what remains; "" if none is outside."""
    if not outside.any():
        return "", None
    names = sorted(set(families.tolist()))
    worst = max(names, key=lambda name: int(outside[families == name].sum()))
    others = outside[families != worst]
    return worst, float(1.0 - others.mean()) if len(others) else None


def _joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Of every plan but doing nothing."""
    return np.concatenate([np.zeros(0), *(part[1:] for part in parts)])


def _name(first: int, after: float) -> str:
    if after == np.inf:
        return f"{first}+"
    return str(first) if after == first + 1 else f"{first}-{int(after) - 1}"
