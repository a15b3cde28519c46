"""What a gain model is to reach on families that it never saw, and by how much it misses that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Aim:
    """A figure of `gain_metrics.Scores`, and its bounds."""

    figure: str
    what: str
    least: float = 0.0
    most: float = 1.0

    def short(self, value: float) -> float:
        """By how much the value lies outside; 0 where the aim is met."""
        return max(self.least - value, value - self.most, 0.0)


AIMS = (
    Aim("tau", "Kendall's tau", least=0.75),
    Aim("top1", "slow-down of the first choice", most=0.03),
    Aim("sign", "surely faster or slower, predicted so", least=0.93),
)
#: Of all plans, and of those of each number of steps of which there are so many.
INTERVALS = Aim("coverage", "plans within intervals of 90 %", least=0.87, most=0.93)
_PLANS = 100


def missed(
    figures: Mapping[str, float], coverage: float, by_steps: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Each aim that is not met, with what was reached and by how much it is missed; in words.

    `figures`: `Scores.to_json`. `coverage`: the share of plans within intervals that other families scaled;
    NaN where there are none. `by_steps`: of `interval_coverage.by_steps`.
    """
    found = [_told(aim, aim.what, figures[aim.figure]) for aim in AIMS if aim.figure in figures]
    found.append(_told(INTERVALS, INTERVALS.what, coverage))
    found += [
        _told(
            INTERVALS,
            f"plans with {_steps(row['steps'])} within intervals of 90 %",
            row["coverage"],
        )
        for row in by_steps
        if row["plans"] >= _PLANS
    ]
    return [text for text in found if text]


def _steps(name: str) -> str:
    return f"{name} step" if name == "1" else f"{name} steps"


def _told(aim: Aim, what: str, value: float) -> str:
    if not aim.short(value) > 0:
        return ""
    wanted = f"{aim.least:g} or more" if aim.most == 1.0 else f"{aim.most:g} or less"
    if aim.least and aim.most < 1.0:
        wanted = f"{aim.least:g} to {aim.most:g}"
    return f"{what} {value:.3f} for {wanted}, by {aim.short(value):.3f}"
