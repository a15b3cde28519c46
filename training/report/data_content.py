"""What a report about a data set of measured plans says, and about a gain model that predicts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from passwright.training.report.content import SCHEMA, About


@dataclass(frozen=True)
class Point:
    """One plan: measured and predicted log(time before / time after), as in `gain_metrics.Plans`."""

    workload: str
    family: str
    gain: float
    floor: float
    predicted: float
    #: Of 90 %; None where the model gives no interval.
    lower: float | None
    upper: float | None
    by: str
    #: Patterns of its steps, in order of their names.
    patterns: tuple[str, ...]
    #: The model has not learned from this family.
    unseen: bool

    @property
    def is_inside(self) -> bool:
        """The measured gain lies within the predicted interval."""
        if self.lower is None or self.upper is None:
            return False
        return self.lower <= self.gain <= self.upper


@dataclass(frozen=True)
class Group:
    """Scores of some of the workloads: those that the model learned from, or those that it never saw."""

    name: str
    #: `gain_metrics.Scores`, by name.
    scores: Mapping[str, float]
    #: `policy.Choices`, by name; empty where there is nothing to choose.
    choices: Mapping[str, float]
    #: Rows of `policy.risk_coverage`.
    risk: tuple[Mapping[str, float], ...]
    #: Nominal coverage of an interval, and the share of plans that lie in it.
    calibration: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class FamilyRow:
    """How well plans of one family are ranked. `top1`: how much slower the first choice is than the best
    plan, as a ratio minus 1."""

    family: str
    graphs: int
    tau: float | None
    top1: float
    unseen: bool


@dataclass(frozen=True)
class PatternRow:
    """How well plans with a pattern are predicted. `pairs`: of pairs of plans of one graph, one with the
    pattern and one without, that measuring tells apart, the share in the right order."""

    pattern: str
    plans: int
    error: float
    bias: float
    pairs: float | None
    told: int


@dataclass(frozen=True)
class SearchRow:
    """A graph on which plans were searched by measuring: gains of the best one found, and of the plan that
    the model would choose among all measured ones."""

    workload: str
    trials: int
    best: float
    chosen: float
    #: What the planner of that time chose; None where it was not measured.
    planner: float | None


@dataclass(frozen=True)
class Miss:
    """A plan that was predicted far off."""

    number: int
    point: Point
    #: The plan as text, where one record has it.
    plan: str
    date: str
    run: str
    #: Shows the model and its candidates.
    command: str


@dataclass(frozen=True)
class DataReport:
    """Measured plans, and what a gain model says of them."""

    about: About
    #: `data_stats.Stats`, as `passwright data stats --json` prints it.
    stats: Mapping[str, Any]
    points: tuple[Point, ...] = ()
    #: Median of the noise floors of the plans that were measured.
    floor: float = 0.0
    groups: tuple[Group, ...] = ()
    families: tuple[FamilyRow, ...] = ()
    patterns: tuple[PatternRow, ...] = ()
    searches: tuple[SearchRow, ...] = ()
    misses: tuple[Miss, ...] = ()
    #: What `passwright evaluate --json` found, if it was given.
    evaluation: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    ended: str = ""
    kind: str = "data"
    schema: int = SCHEMA
