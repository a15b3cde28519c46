"""Where predictions cost most: by family, and by pattern."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from passwright.training.gain_metrics import Plans, regret, tau


def by_family(found: Sequence[Plans]) -> list[dict[str, Any]]:
    """Of each family: graphs, Kendall's tau, and how much slower the first choice is than the best plan, as
    a ratio minus 1; those first that cost most in all."""
    groups: dict[str, list[Plans]] = defaultdict(list)
    for plans in found:
        if len(plans.gains) > 1:
            groups[plans.family].append(plans)
    rows = [
        {
            "family": family,
            "graphs": len(group),
            "tau": _mean([tau(plans) for plans in group]),
            "top1": math.expm1(statistics.fmean(regret(plans, 1) for plans in group)),
        }
        for family, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["graphs"] * row["top1"], row["family"]))


def by_pattern(found: Sequence[Plans]) -> list[dict[str, Any]]:
    """Of each pattern: plans with it, and the mean error of their predicted log gains, absolute and with
    its sign (measured minus predicted); the largest first."""
    errors: dict[str, list[float]] = defaultdict(list)
    for plans in found:
        missed = plans.gains - plans.predicted
        for error, names in zip(missed.tolist(), plans.patterns, strict=False):
            for name in names:
                errors[name].append(error)
    rows = [
        {
            "pattern": name,
            "plans": len(known),
            "error": statistics.fmean(map(abs, known)),
            "bias": statistics.fmean(known),
        }
        for name, known in errors.items()
    ]
    return sorted(rows, key=lambda row: (-row["error"], row["pattern"]))


def by_novelty(found: Sequence[Plans]) -> dict[str, dict[str, float]]:
    """Plans with a pattern of which nothing was learned, and the others: how many, and the mean absolute
    error of their predicted log gains."""
    errors: dict[str, list[float]] = {"new pattern": [], "known patterns": []}
    for plans in found:
        missed = abs(plans.gains - plans.predicted).tolist()
        for error, strange, used in zip(missed, plans.strange, plans.patterns, strict=False):
            if used:
                errors["new pattern" if strange else "known patterns"].append(error)
    return {
        name: {"plans": len(known), "error": statistics.fmean(known)}
        for name, known in errors.items()
        if known
    }


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return statistics.fmean(known) if known else None
