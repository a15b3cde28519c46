"""The interface of what learned the gains of steps: networks, and baselines they are held against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from passwright.features.example import Example
from passwright.scheduler.gain import Interval, together

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """Of k steps: mean, and widths of a 90 % interval below and above it, (k, 3), of the gain of each and
    of the gain-to-go of the best continuation that starts with it.

    `strange`: of each, why nothing like it was ever measured, or "". `refused`: why its figures say nothing
    for that reason, or "". Both are () where nothing is strange.
    """

    gain: Floats
    to_go: Floats
    strange: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Predictor(ABC):
    """Predicts steps from their features. Deterministic: equal examples give equal numbers."""

    #: `GainModel.caution` of plans by these predictions.
    caution: float = 1.0

    @property
    @abstractmethod
    def version(self) -> str:
        """Changes whenever predictions may change."""

    @abstractmethod
    def forecast(self, examples: Sequence[Example]) -> Forecast:
        """Of all examples in one batched call, in order."""


def sum_of(steps: Floats) -> tuple[float, float, float]:
    """Mean, lower and upper bound of the gain of steps one after the other, (s, 3), as the planner adds
    them up (`gain.together`)."""
    rows = ((mean, mean - below, mean + above) for mean, below, above in steps.tolist())
    joint = together((Interval(*row) for row in rows), independent=True)
    return joint.mean, joint.lower, joint.upper
