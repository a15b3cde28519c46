"""Figures of a report about a data set that nothing else shows: calibration at every coverage, the order of
plans by pattern, regret against search."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from passwright.training.failures import by_pattern
from passwright.training.gain_metrics import Floats, Plans, scores
from passwright.training.labels import label_of, steps_of_plan
from passwright.training.policy import choice, choices, risk_coverage
from passwright.training.records import Record
from passwright.training.report.data_content import Group, PatternRow, Point, SearchRow

#: Coverages at which intervals are looked at, and what they promise as they are.
_COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_PROMISED = 0.9
#: Who proposed what searching measured, and what the planner chose.
_SEARCH, _PLANNER = "search", "predicted"
#: Plans keep gains in single precision.
_SAME = 1e-4


def group_of(name: str, found: Sequence[Plans]) -> Group:
    """Scores of these workloads."""
    several = [plans for plans in found if len(plans.gains) > 1]
    return Group(
        name,
        scores(found).to_json(),
        choices(found).to_json() if several else {},
        tuple(risk_coverage(found)),
        tuple(calibration(found)),
    )


def calibration(found: Sequence[Plans]) -> list[tuple[float, float]]:
    """(promised coverage, share of plans inside), where widths of 90 % are scaled to other coverages as
    those of a normal distribution are. Nothing where there are no intervals."""
    known = [p for p in found if p.lower is not None and p.upper is not None and len(p.gains) > 1]
    if not known:
        return []
    widths = np.concatenate([_widths(plans)[1:] for plans in known])
    normal = statistics.NormalDist()
    rows = []
    for coverage in _COVERAGES:
        scale = normal.inv_cdf(0.5 + coverage / 2) / normal.inv_cdf(0.5 + _PROMISED / 2)
        rows.append((coverage, float((widths <= scale).mean())))
    return rows


def _widths(plans: Plans) -> Floats:
    """How many widths lie between predicted and measured gains."""
    assert plans.lower is not None
    assert plans.upper is not None
    error = plans.gains - plans.predicted
    width = np.where(error < 0, plans.predicted - plans.lower, plans.upper - plans.predicted)
    return np.asarray(np.abs(error) / np.maximum(width, 1e-9), dtype=np.float64)


def pattern_rows(found: Sequence[Plans]) -> list[PatternRow]:
    """Patterns by their mean error, the largest first, with how well plans with and without are ordered."""
    right: dict[str, list[float]] = defaultdict(list)
    for plans in found:
        for name, share in _pairs(plans):
            right[name] += share
    return [
        PatternRow(
            row["pattern"],
            row["plans"],
            row["error"],
            row["bias"],
            statistics.fmean(told) if (told := right.get(row["pattern"])) else None,
            len(right.get(row["pattern"], ())),
        )
        for row in by_pattern(found)
    ]


def _pairs(plans: Plans) -> list[tuple[str, list[float]]]:
    """Of each pattern, for every pair of plans with and without it that measuring tells apart: 1 where the
    order is right, a half where both are predicted alike."""
    if not plans.patterns:
        return []
    gap = plans.gains[:, None] - plans.gains[None]
    told = np.abs(gap) > np.maximum(plans.floors[:, None], plans.floors[None])
    foretold = plans.predicted[:, None] - plans.predicted[None]
    points = 0.5 + 0.5 * np.sign(gap) * np.sign(foretold)
    rows = []
    for name in sorted(set().union(*plans.patterns)):
        has = np.array([name in own for own in plans.patterns])
        rows.append((name, points[told & has[:, None] & ~has[None]].tolist()))
    return rows


def search_rows(found: Sequence[Plans]) -> list[SearchRow]:
    """Of every graph on which plans were searched: the best that was found, and what would be chosen."""
    rows = []
    for plans in found:
        if _SEARCH not in plans.by:
            continue
        rows.append(
            SearchRow(
                plans.workload,
                plans.by.count(_SEARCH),
                float(plans.gains.max()),
                float(plans.gains[choice(plans)]),
                float(plans.gains[plans.by.index(_PLANNER)]) if _PLANNER in plans.by else None,
            )
        )
    return sorted(rows, key=lambda row: row.workload)


def record_of(point: Point, records: Sequence[Record]) -> Record | None:
    """The record of a point, if one alone has its gain and its patterns."""
    wanted = set(point.patterns)
    for record in records:
        label = label_of(record)
        if label is None or abs(label.gain - point.gain) > _SAME:
            continue
        if {placed.pattern for placed in steps_of_plan(record.plan)} == wanted:
            return record
    return None
